# SPDX-License-Identifier: Apache-2.0
"""Converters that read or change shapes only: reshape, flatten, squeeze, shape, size."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError, TypeMismatch
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import checked, dims_of, reshaped
from treadle.frontend.onnx.core.dynamic_operands import is_computed, reshape_computed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, product_of
from treadle.ops.movement import resolve_shape


@converter("Reshape", since=(1,))
def reshape_by_attribute(node: OnnxNode) -> Node:
    """Convert a reshape whose target is an attribute."""
    node.without_effect("consumed_inputs")
    return reshaped(node.input(0), _target(node, node.integers("shape") or (), False))


@converter("Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25))
def reshape(node: OnnxNode) -> Node:
    """Convert a reshape: 0 keeps a dimension (unless allowzero), -1 is worked out."""
    allow_zero = node.flag("allowzero") if node.version >= 14 else False
    if is_computed(node, 1):
        return reshape_computed(node, allow_zero)
    return reshaped(node.input(0), _target(node, node.sizes(1, "shape"), allow_zero))


def _target(node: OnnxNode, wanted: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    shape = node.dims(0)
    target = list(wanted)
    for k, d in enumerate(target):
        if isinstance(d, int) and d < -1:
            raise ModelError(f"the target shape {list(wanted)} has the dimension {d}")
        if d == 0 and not allow_zero:
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
    return resolved


@converter("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25))
def flatten(node: OnnxNode) -> Node:
    """Convert a flattening to a matrix: dimensions before `axis` by the rest."""
    shape = node.dims(0)
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape) or (axis < 0 and node.version < 11):
        raise ModelError(f"axis {axis} of Flatten is outside a tensor of rank {len(shape)}")
    at = axis + len(shape) if axis < 0 else axis
    return reshaped(node.input(0), (product_of(shape[:at]), product_of(shape[at:])))


@converter("Squeeze", since=(1, 11))
def squeeze_by_attribute(node: OnnxNode) -> Node:
    """Convert a squeeze whose axes are an attribute."""
    return _squeezed(node, node.integers("axes"))


@converter("Squeeze", since=(13, 21, 23, 24, 25))
def squeeze(node: OnnxNode) -> Node:
    """Convert a squeeze whose axes are an input."""
    return _squeezed(node, node.constant_ints(1, "axes") if node.has_input(1) else None)


def _squeezed(node: OnnxNode, axes: Sequence[int] | None) -> Node:
    shape = node.dims(0)
    if axes is None:
        return _squeezed_where_one(node.input(0))
    dropped = node.axes(axes, len(shape))
    for k in dropped:
        if int_value(shape[k]) not in (1, None):
            raise ModelError(f"axis {k} of {list(shape)} has {shape[k]} elements, not 1")
    return reshaped(node.input(0), tuple(d for k, d in enumerate(shape) if k not in dropped))


def _squeezed_where_one(x: Node) -> Node:
    """Return `x` without its axes of 1 element.

    The rank of a result is known before a run: an open axis stays, and a run in which it has 1
    element is refused.
    """
    kept = x
    for axis, d in enumerate(dims_of(x)):
        if not isinstance(d, int):
            kept = checked(kept, "kept", d, 0, axis)
    return reshaped(kept, tuple(d for d in dims_of(x) if d != 1))


@converter("Unsqueeze", since=(1, 11))
def unsqueeze_by_attribute(node: OnnxNode) -> Node:
    """Convert an unsqueeze whose axes are an attribute."""
    return _unsqueezed(node, node.integers("axes") or ())


@converter("Unsqueeze", since=(13, 21, 23, 24, 25))
def unsqueeze(node: OnnxNode) -> Node:
    """Convert an unsqueeze whose axes are an input."""
    return _unsqueezed(node, node.constant_ints(1, "axes"))


def _unsqueezed(node: OnnxNode, axes: Sequence[int]) -> Node:
    shape = node.dims(0)
    ndim = len(shape) + len(axes)
    new = node.axes(axes, ndim)
    rest = iter(shape)
    return reshaped(node.input(0), tuple(1 if k in new else next(rest) for k in range(ndim)))


@converter("Shape", since=(1, 13, 15, 19, 21, 23, 24, 25))
def shape(node: OnnxNode) -> Node:
    """Convert the shape of a tensor (or a range of it) to a constant, or to symbolic sizes."""
    dims = node.dims(0)
    start, end = 0, len(dims)
    if node.version >= 15:
        start, end = node.integer("start", 0), node.integer("end", len(dims))
    shown = dims[_clamped(start, dims) : _clamped(end, dims)]
    return sizes_node(shown, (len(shown),))


def _clamped(position: int, dims: Sequence[Dim]) -> int:
    at = position + len(dims) if position < 0 else position
    return min(max(at, 0), len(dims))


@converter("Size", since=(1, 13, 19, 21, 23, 24, 25))
def size(node: OnnxNode) -> Node:
    """Convert the number of elements of a tensor to a constant, or to a symbolic size."""
    return sizes_node((product_of(node.dims(0)),), ())
