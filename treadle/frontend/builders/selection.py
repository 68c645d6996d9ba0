# SPDX-License-Identifier: Apache-2.0
"""Builders of selections whose size depends on data: what is not zero, distinct, or best."""

from __future__ import annotations

import numpy as np

from treadle.expr.intervals import FAR
from treadle.expr.nodes import convert, minimum
from treadle.frontend.builders.basic import broadcast, converted, dims_of, scalar_like
from treadle.frontend.builders.dynamic_operands import AxisRange, Measure
from treadle.frontend.builders.movement import concatenated, cut, sliced
from treadle.frontend.builders.reduce import largest
from treadle.graph.interpret import evaluate
from treadle.graph.nodes import Call, Constant, Function, Node, TupleItem
from treadle.graph.types import Dim, normal_size, product_of, same_dim
from treadle.ops import cumulative, elementwise, indexing, reshaping, scatter, select, sizes
from treadle.ops.unique import unique


class Selection:
    """The results of an operator that fills the largest result there may be and counts.

    Its last result is the count. It gets one symbolic size for all it selects, or a number where
    everything is known.
    """

    def __init__(self, call: Call, measure: Measure) -> None:
        self._call = call
        self._last = len(call.type.fields) - 1  # type: ignore[union-attr]  # a tuple type
        self._known = self._values()
        self.size: Dim = measure(self.whole(self._last))

    def _values(self) -> list[np.ndarray] | None:
        if not all(isinstance(a, Constant) for a in self._call.args):
            return None
        values = evaluate(Function((), self._call), [])
        return [np.asarray(v) for v in values]

    def whole(self, index: int) -> Node:
        """Return result `index` as it is."""
        if self._known is not None:
            return Constant.of(self._known[index])
        return TupleItem.of(self._call, index)

    def first(self, index: int) -> Node:
        """Return the selected ones of result `index`, along its first axis."""
        if self._known is not None:
            assert isinstance(self.size, int)
            return Constant.of(self._known[index][: self.size])
        return select.head(self.whole(index), size=self.size)


def nonzero(x: Node, measure: Measure) -> Node:
    """Return int64[rank, count]: the coordinates of what is not zero, one row per axis."""
    found = Selection(select.nonzero(x), measure)
    return select.unravel_index(found.first(0), shape=dims_of(x))


def flat(x: Node) -> Node:
    """Return `x` as a vector."""
    return reshaping.reshape(x, shape=(product_of(dims_of(x)),))


def compressed(x: Node, condition: Node, axis: int, measure: Measure) -> Node:
    """Return the slices along an axis for which a vector of conditions holds."""
    kept = Selection(select.nonzero(_at_most(condition, dims_of(x)[axis])), measure)
    return indexing.gather(x, kept.first(0), axis=axis)


def _at_most(vector: Node, count: Dim) -> Node:
    """Return the first elements of a vector: the rest of a condition decides about nothing."""
    (length,) = dims_of(vector)
    wanted = normal_size(minimum(convert(length), count))
    if same_dim(wanted, length):
        return vector
    if isinstance(wanted, int) and isinstance(length, int):
        return cut(vector, [(0, wanted)], (1,), (0,))
    return sizes.dynamic_slice(vector, begin=(0,), sizes=(wanted,), strides=(1,), axes=(0,))


def distinct(
    x: Node, axis: int, measure: Measure, *, ascending: bool
) -> tuple[Node, Node, Node, Node]:
    """Return the distinct slices along an axis, in ascending order or that of their first places.

    With them their first places, the number of each slice of `x` among them, and how often they
    are.
    """
    found = Selection(unique(x, axis=axis, ascending=ascending), measure)
    first = found.first(0)
    return indexing.gather(x, first, axis=axis), first, found.whole(1), found.first(2)


def runs(x: Node, axis: int, measure: Measure) -> tuple[Node, Node, Node]:
    """Return the slices along an axis that differ from the one before.

    With them the number of each slice of `x` among them, and how many follow each other.
    """
    begins = _begins_of_runs(x, axis)
    found = Selection(select.nonzero(begins), measure)
    numbers = cumulative.cumsum(converted(begins, "int64"), axis=0)
    inverse = elementwise.subtract(numbers, scalar_like(1, numbers))
    ones = broadcast(scalar_like(1, inverse), dims_of(inverse))
    none = broadcast(scalar_like(0, inverse), dims_of(inverse))
    counts = scatter.scatter_elements(none, inverse, ones, axis=0, reduction="add")
    kept = indexing.gather(x, found.first(0), axis=axis)
    return kept, inverse, select.head(counts, size=found.size)


def _begins_of_runs(x: Node, axis: int) -> Node:
    """Return for each slice along an axis whether it is the first, or unlike the one before."""
    extent = dims_of(x)[axis]
    later = sliced(x, [AxisRange(axis, 1, FAR)])
    before = sliced(x, [AxisRange(axis, 0, -1)])
    others = tuple(k for k in range(len(dims_of(x))) if k != axis)
    differ = largest(elementwise.not_equal(later, before), others, False)
    first = sliced(broadcast(Constant.of(True), (extent,)), [AxisRange(0, 0, 1)])
    return concatenated([first, differ], 0)
