# SPDX-License-Identifier: Apache-2.0
"""Converters of selections whose size depends on data: what is not zero, distinct, or best."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.expr.nodes import convert, minimum
from treadle.frontend.builders.basic import converted, reshaped
from treadle.frontend.builders.movement import cut
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.interpret import evaluate
from treadle.graph.nodes import Call, Constant, Function, Node, TupleItem
from treadle.graph.types import Dim, normal_size, same_dim, tensor_type
from treadle.ops import movement, select, sizes
from treadle.ops.suppress import suppress
from treadle.ops.unique import unique


class Selection:
    """The results of an operator that fills the largest result there may be and counts.

    Its last result is the count. It gets one symbolic size for all it selects, or a number where
    everything is known.
    """

    def __init__(self, call: Call, node: OnnxNode) -> None:
        self._call = call
        self._last = len(call.type.fields) - 1  # type: ignore[union-attr]  # a tuple type
        self._known = self._values()
        self.size: Dim = node.measure(self.whole(self._last))

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
        return select.prefix(self.whole(index), size=self.size)


@converter("NonZero", since=(9, 13))
def non_zero(node: OnnxNode) -> Node:
    """Convert the coordinates of what is not zero, one row per axis."""
    found = Selection(select.nonzero(node.input(0)), node)
    return select.unravel_index(found.first(0), shape=node.type(0).shape)


def _flat(x: Node) -> Node:
    return movement.reshape(x, shape=(select.product(tensor_type(x.type).shape),))


@converter("Compress", since=(9, 11, 28))
def compress(node: OnnxNode) -> Node:
    """Convert the slices along an axis (or elements) for which a condition holds."""
    x, condition = node.input(0), node.input(1)
    if node.type(1).ndim != 1:
        raise ModelError(f"the condition must be a vector, not {node.type(1)}")
    axis = node.integer("axis") if "axis" in node.attributes else None
    if axis is None:
        x, at = _flat(x), 0
    else:
        at = node.axis(axis, node.type(0).ndim)
    extent = tensor_type(x.type).shape[at]
    kept = Selection(select.nonzero(_at_most(condition, extent)), node)
    return movement.gather(x, kept.first(0), axis=at)


def _at_most(vector: Node, count: Dim) -> Node:
    """Return the first elements of a vector: the rest of a condition decides about nothing."""
    (length,) = tensor_type(vector.type).shape
    wanted = normal_size(minimum(convert(length), count))
    if same_dim(wanted, length):
        return vector
    if isinstance(wanted, int) and isinstance(length, int):
        return cut(vector, [(0, wanted)], (1,), (0,))
    return sizes.cut(vector, begin=(0,), sizes=(wanted,), strides=(1,), axes=(0,))


@converter("Unique", since=(11, 28))
def unique_elements(node: OnnxNode) -> list[Node]:
    """Convert the distinct elements, or slices along an axis, in ascending or first order."""
    x = node.input(0)
    axis = node.integer("axis") if "axis" in node.attributes else None
    if axis is None:
        x, at = _flat(x), 0
    else:
        at = node.axis(axis, node.type(0).ndim)
    found = Selection(unique(x, axis=at, ascending=node.flag("sorted", True)), node)
    first = found.first(0)
    return [movement.gather(x, first, axis=at), first, found.whole(1), found.first(2)]


@converter("NonMaxSuppression", since=(10, 11))
def non_max_suppression(node: OnnxNode) -> Node:
    """Convert the best of overlapping boxes per class; without a limit there are none."""
    boxes, scores = node.input(0), node.input(1)
    limit = _number(node, 2, 0, "int64")
    overlap, lowest = _number(node, 3, 0.0, "float32"), _number(node, 4, 0.0, "float32")
    room = node.type(0).shape[1]
    if isinstance(limit, Constant):
        most = max(int(limit.value), 0)
        room = min(room, most) if isinstance(room, int) else room if most else 0
    centered = node.flag("center_point_box")
    filtered = node.has_input(4)
    call = suppress(
        boxes, scores, limit, overlap, lowest, room=room, centered=centered, filtered=filtered
    )
    return Selection(call, node).first(0)


def _number(node: OnnxNode, index: int, default: float, dtype: str) -> Node:
    if not node.has_input(index):
        return Constant.of(default, dtype)
    return converted(reshaped(node.input(index), ()), dtype)
