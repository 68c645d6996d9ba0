# SPDX-License-Identifier: Apache-2.0
"""Builders of parts by positions and lengths, as TensorFlow and TFLite list them in inputs."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import axes_from_front, dims_of, transposed
from treadle.frontend.builders.dynamic_operands import AxisRange, Measure, sliced_at_run
from treadle.frontend.builders.movement import sequences_reversed, sliced, split_at
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, normal_size
from treadle.ops import elementwise

_FAR = 1 << 40
"""A position behind the end of any axis."""


def permuted(x: Node, axes: Sequence[int], op: str) -> Node:
    """Return `x` with its axes in another order. Raises: ModelError for no permutation."""
    ndim = len(dims_of(x))
    perm = axes_from_front(axes, ndim, op)
    if len(perm) != ndim:
        raise ModelError(f"{list(perm)} is no permutation of {ndim} axes")
    return transposed(x, perm)


def split_with_rest(x: Node, axis: int, sizes: Sequence[Dim]) -> list[Node]:
    """Return parts of given sizes, of which one may be -1: what is left."""
    parts = list(sizes)
    holes = [k for k, p in enumerate(parts) if int_value(p) == -1]
    if len(holes) > 1:
        raise ModelError("more than one part has the size -1")
    if holes:
        known: Dim = 1  # takes the hole's -1 back
        for part in parts:
            known = normal_size(known + part)
        parts[holes[0]] = normal_size(dims_of(x)[axis] - known)
    return split_at(x, axis, parts)


def sliced_by_lengths(x: Node, begins: Sequence[Dim], lengths: Sequence[Dim]) -> Node:
    """Return a slice by where it begins and how long it is along every axis; -1 is what is left."""
    dims = dims_of(x)
    if not len(begins) == len(lengths) == len(dims):
        raise ModelError(f"the slice does not fit {x.type}")
    ranges = []
    for axis, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        end = dims[axis] if int_value(length) == -1 else normal_size(begin + length)
        ranges.append(AxisRange(axis, begin, end))
    return sliced(x, ranges)


def sliced_by_lengths_at_run(
    x: Node, begins: Sequence[Node], lengths: Sequence[Node], measure: Measure
) -> Node:
    """Return the slice of `sliced_by_lengths`, of int64 scalars that a run computes."""
    dims = dims_of(x)
    if not len(begins) == len(lengths) == len(dims):
        raise ModelError(f"the slice does not fit {x.type}")
    ranges = []
    for axis, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        left = elementwise.equal(length, Constant.of(-1, "int64"))
        whole = sizes_node((dims[axis],), ())
        end = elementwise.where(left, whole, elementwise.add(begin, length))
        ranges.append(AxisRange(axis, begin, end))
    return sliced_at_run(x, ranges, measure)


def padding_of_pairs(x: Node, pairs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the padding before and after every axis, which pairs of numbers say in turn."""
    if len(pairs) != 2 * len(dims_of(x)) or min(pairs, default=0) < 0:
        raise ModelError(f"the padding {list(pairs)} does not fit {x.type}")
    return list(pairs[::2]), list(pairs[1::2])


def reversed_axes(x: Node, axes: Sequence[int], op: str) -> Node:
    """Return `x` with the elements along some axes in reverse order."""
    found = axes_from_front(axes, len(dims_of(x)), op)
    return sliced(x, [AxisRange(axis, -1, -_FAR, -1) for axis in found])


def sequences_reversed_along(x: Node, lengths: Node, time: int, batch: int, op: str) -> Node:
    """Return `x` with the first `lengths[b]` steps of every sequence in reverse order.

    `time` and `batch` are any two axes, counted from the front.
    """
    if time == batch:
        raise ModelError("the axes of time and batch are one")
    order = (time, batch, *(k for k in range(len(dims_of(x))) if k not in (time, batch)))
    made = sequences_reversed(transposed(x, order), lengths, 0, op)
    return transposed(made, sorted(range(len(order)), key=lambda k: order[k]))
