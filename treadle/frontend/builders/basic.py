# SPDX-License-Identifier: Apache-2.0
"""Small graph-building steps: constants, reshapes, broadcasts, casts, channel vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.graph.broadcasting import common_shape, is_literal_one
from treadle.graph.nodes import Constant, Node
from treadle.graph.size_rules import Rule
from treadle.graph.types import (
    Dim,
    TensorType,
    as_dim,
    known_sizes,
    normal_size,
    tensor_type,
)
from treadle.ops import elementwise, low_precision, movement, reshaping, sizes


def scalar_like(value: float, x: Node) -> Constant:
    """Return a rank-0 constant of the element type of `x`."""
    return Constant.of(value, tensor_type(x.type).dtype)


def shape_of(x: Node) -> tuple[int, ...]:
    """Return the shape of a graph value as ints. Raises TypeMismatch when it is symbolic."""
    return tensor_type(x.type).static_shape


def dims_of(x: Node) -> tuple[Dim, ...]:
    """Return the shape of a graph value; sizes may be symbolic."""
    return tensor_type(x.type).shape


def axis_from_front(axis: int, ndim: int, op: str) -> int:
    """Return an axis of a rank-`ndim` tensor counted from the front; `op` is named in the error."""
    if not -ndim <= axis < ndim:
        raise ModelError(f"axis {axis} of {op} is outside a tensor of rank {ndim}")
    return axis % ndim


def axes_from_front(axes: Sequence[int], ndim: int, op: str) -> tuple[int, ...]:
    """Return axes counted from the front. Raises ModelError for one given twice."""
    found = tuple(axis_from_front(axis, ndim, op) for axis in axes)
    if len(set(found)) != len(found):
        raise ModelError(f"the axes {list(axes)} of {op} name one axis twice")
    return found


def element_type(x: Node) -> str:
    """Return the element type of a tensor."""
    return tensor_type(x.type).dtype


def reshaped(x: Node, shape: Sequence[Dim]) -> Node:
    """Return `x` with another shape; itself where it has it, a view where it is constant."""
    target = tuple(as_dim(d) for d in shape)
    known = [d for d in target if isinstance(d, int)]
    if isinstance(x, Constant) and len(known) == len(target) and x.value.size == prod(known):
        return Constant(x.value.reshape(known), TensorType(target, x.type.dtype), x.origin)
    if tensor_type(x.type).shape == target:
        return x
    return reshaping.reshape(x, shape=target)


def counted(size: Dim, start: Dim = 0) -> Node:
    """Return int64[size]: start, start + 1, ...; a constant where both are known."""
    first = normal_size(start)
    if isinstance(size, int) and isinstance(first, int):
        return Constant.of(np.arange(first, first + size, dtype="int64"))
    return sizes.arange(start=first, step=1, size=size)


def cut_columns(x: Node, begin: int, end: int) -> Node:
    """Return the elements of the last axis from `begin` to `end`; itself where that is all."""
    axis = len(dims_of(x)) - 1
    if (begin, end) == (0, dims_of(x)[axis]):
        return x
    return movement.slice_(x, begin=(begin,), end=(end,), axes=(axis,))


def known_width(x: Node) -> int:
    """Return the size of the last axis. Raises TypeMismatch when it is symbolic."""
    return known_sizes(dims_of(x)[-1:], f"the last extent of {x.type}")[0]


def broadcast(x: Node, shape: Sequence[Dim]) -> Node:
    """Return `x` broadcast to exactly `shape`; itself where it has it."""
    target = tuple(as_dim(d) for d in shape)
    return x if dims_of(x) == target else reshaping.broadcast_to(x, shape=target)


def operands(*values: Node) -> tuple[Node, ...]:
    """Return values such that extents that meet are equal, or known to be 1, at every size.

    Extents of which only a run knows whether they are 1 are broadcast; values that certainly do
    not fit are left as they are.
    """
    whole = common_shape(*map(dims_of, values))
    return values if whole is None else tuple(stretched(v, whole) for v in values)


def checked(x: Node, rule: Rule, a: Dim, b: Dim, axis: int = 0, reason: str = "") -> Node:
    """Return `x`, which every run refuses unless `a` and `b` satisfy a rule of sizes."""
    made = sizes.checked(x, rule=rule, a=a, b=b, axis=axis, reason=reason)
    attrs = made.attrs
    assert isinstance(attrs, sizes.CheckedAttrs)
    return x if attrs.size_rule.always_holds else made


def stretched(x: Node, whole: Sequence[Dim]) -> Node:
    """Return `x` with extents of `whole` where it is not known to have extent 1."""
    dims = dims_of(x)
    met = whole[len(whole) - len(dims) :]
    return broadcast(x, [d if is_literal_one(d) else w for d, w in zip(dims, met, strict=True)])


def converted(x: Node, dtype: str, saturate: bool = True, round_mode: str = "up") -> Node:
    """Return `x` with elements of type `dtype`; itself where they are.

    `saturate` and `round_mode` are for narrow floats (see `treadle.ops.low_precision`).
    """
    source = tensor_type(x.type).dtype
    if source == dtype:
        return x
    if dt.is_narrow(source):
        return converted(low_precision.widen(x), dtype, saturate, round_mode)
    if not dt.is_narrow(dtype):
        return elementwise.cast(x, dtype=dtype)
    wide = "int32"
    if dtype in low_precision.NARROW_FLOATS:
        is_exact = source == "bool" or dt.bits(source) < 32 or source == "float32"
        wide = "float32" if is_exact else "float64"
    return low_precision.narrow(
        converted(x, wide), dtype=dtype, saturate=saturate, round_mode=round_mode
    )


def transposed(x: Node, perm: Sequence[int]) -> Node:
    """Return `x` with permuted axes; itself where nothing moves."""
    axes = tuple(perm)
    return x if axes == tuple(range(len(axes))) else reshaping.transpose(x, perm=axes)


def per_channel(x: Node, data: Node) -> Node:
    """Return a vector with a value for each channel of `data` [n, c, ...] as [1, c, 1, ...].

    A vector of another length than c is refused: when it runs where a length is not known before.
    """
    if len(dims_of(x)) != 1:
        raise ModelError(f"a vector with one value per channel is expected, not {x.type}")
    channels, *rest = dims_of(data)[1:]
    return reshaped(x, (1, channels, *(1 for _ in rest)))


def in_float32(x: Node) -> tuple[Node, str]:
    """Return a half-precision `x` widened to float32, and the type to go back to."""
    dtype = tensor_type(x.type).dtype
    wide = converted(x, "float32") if dt.is_float(dtype) and dt.bits(dtype) == 16 else x
    return wide, dtype
