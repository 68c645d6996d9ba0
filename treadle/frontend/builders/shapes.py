# SPDX-License-Identifier: Apache-2.0
"""Builders of what changes shapes only: reshape, flatten, squeeze, unsqueeze, expand."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError, TypeMismatch
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import axes_from_front, broadcast, checked, dims_of, reshaped
from treadle.frontend.symbolic import sizes_node
from treadle.graph.broadcasting import common_dim, common_shape, is_literal_one, taken_dim
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, product_of, same_dim
from treadle.ops.reshaping import resolve_shape


def reshaped_to(x: Node, wanted: Sequence[Dim], *, zero_keeps: bool = False) -> Node:
    """Return `x` in a shape of which one extent may be -1: what is left.

    With `zero_keeps` a 0 stands for the extent that `x` has at the same place.
    """
    shape = dims_of(x)
    target = list(wanted)
    for k, d in enumerate(target):
        if isinstance(d, int) and d < -1:
            raise ModelError(f"the target shape {list(wanted)} has the dimension {d}")
        if d == 0 and zero_keeps:
            if k >= len(shape):
                raise ModelError(f"the 0 at {k} in {list(wanted)} has no dimension to keep")
            target[k] = shape[k]
    try:
        resolved = resolve_shape(shape, target)
    except TypeMismatch as e:
        holes = sum(int_value(d) == -1 for d in target)
        if holes > 1:
            raise ModelError(f"the target shape {list(wanted)} has more than one -1") from e
        raise ModelError(f"{list(shape)} cannot be reshaped to {list(wanted)}") from e
    return reshaped(x, resolved)


def flattened(x: Node, first: int, end: int) -> Node:
    """Return `x` with the axes from `first` to before `end` as one; 1 element where there are none.

    [a, b, c, d] flattened from 1 to 3  ->  [a, b * c, d]
    """
    shape = dims_of(x)
    return reshaped(x, (*shape[:first], product_of(shape[first:end]), *shape[end:]))


def as_matrix(x: Node, axis: int) -> Node:
    """Return `x` as a matrix: the axes before `axis` by the rest."""
    shape = dims_of(x)
    return reshaped(x, (product_of(shape[:axis]), product_of(shape[axis:])))


def squeezed(x: Node, axes: Sequence[int]) -> Node:
    """Return `x` without axes of 1 element, counted from the front."""
    shape = dims_of(x)
    for k in axes:
        if int_value(shape[k]) not in (1, None):
            raise ModelError(f"axis {k} of {list(shape)} has {shape[k]} elements, not 1")
    return reshaped(x, tuple(d for k, d in enumerate(shape) if k not in axes))


def squeezed_where_one(x: Node) -> Node:
    """Return `x` without its axes of 1 element.

    The rank of a result is known before a run: an axis of symbolic size stays, and a run in which
    it has 1 element is refused.
    """
    kept = x
    for axis, d in enumerate(dims_of(x)):
        if not isinstance(d, int):
            kept = checked(kept, "kept", d, 0, axis)
    return reshaped(kept, tuple(d for d in dims_of(x) if d != 1))


def unsqueezed(x: Node, axes: Sequence[int], op: str = "the operator") -> Node:
    """Return `x` with new axes of 1 element: where they are in the result."""
    shape = dims_of(x)
    ndim = len(shape) + len(axes)
    new = axes_from_front(axes, ndim, op)
    rest = iter(shape)
    return reshaped(x, tuple(1 if k in new else next(rest) for k in range(ndim)))


def expanded(x: Node, wanted: Sequence[Dim]) -> Node:
    """Return `x` broadcast together with a shape: extents of 1 in `wanted` keep its own."""
    dims = dims_of(x)
    own: list[Dim] = [*[1] * (len(wanted) - len(dims)), *dims]
    whole: list[Dim] = [*[1] * (len(own) - len(wanted)), *wanted]
    result, target = x, list[Dim]()
    for axis, (d, w) in enumerate(zip(own, whole, strict=True)):
        found = _expanded_dim(d, w)
        if found is None:
            raise ModelError(f"{x.type} does not broadcast to {list(wanted)}: {d} against {w}")
        target.append(found)
        if isinstance(d, int) and d != 1 and not isinstance(w, int):
            result = checked(result, "equal", taken_dim(w, d), d, axis)
    return broadcast(result, target)


def _expanded_dim(own: Dim, wanted: Dim) -> Dim | None:
    """Return the extent of an axis whose size is `wanted`, or its own where that is 1."""
    if isinstance(wanted, int) or is_literal_one(wanted) or is_literal_one(own):
        return common_dim(own, wanted)
    return own if isinstance(own, int) or same_dim(own, wanted) else taken_dim(wanted, own)


def broadcast_shape(a: Sequence[Dim], b: Sequence[Dim], dtype: str) -> Node:
    """Return the shape that two shapes broadcast to, as integers. Raises: ModelError for none."""
    made = common_shape(tuple(a), tuple(b))
    if made is None:
        raise ModelError("the two shapes do not broadcast")
    return sizes_node(made, (len(made),), dtype)
