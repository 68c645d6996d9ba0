# SPDX-License-Identifier: Apache-2.0
"""Converters that read or change shapes only: reshape, flatten, squeeze, shape, size."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.dynamic_operands import reshaped_at_run
from treadle.frontend.builders.shapes import (
    as_matrix,
    reshaped_to,
    squeezed,
    squeezed_where_one,
    unsqueezed,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, product_of


@converter("Reshape", since=(1,))
def reshape_by_attribute(node: OnnxNode) -> Node:
    """Convert a reshape whose target is an attribute."""
    node.without_effect("consumed_inputs")
    return reshaped_to(node.input(0), node.integers("shape") or (), zero_keeps=True)


@converter("Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25))
def reshape(node: OnnxNode) -> Node:
    """Convert a reshape: 0 keeps a dimension (unless allowzero), -1 is worked out."""
    zero_keeps = not (node.version >= 14 and node.flag("allowzero"))
    if node.is_computed(1):
        wanted = node.elements(1)
        return reshaped_at_run(node.input(0), wanted, node.measure, zero_keeps=zero_keeps)
    return reshaped_to(node.input(0), node.sizes(1, "shape"), zero_keeps=zero_keeps)


@converter("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25))
def flatten(node: OnnxNode) -> Node:
    """Convert a flattening to a matrix: dimensions before `axis` by the rest."""
    shape = node.dims(0)
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape) or (axis < 0 and node.version < 11):
        raise ModelError(f"axis {axis} of Flatten is outside a tensor of rank {len(shape)}")
    return as_matrix(node.input(0), axis + len(shape) if axis < 0 else axis)


@converter("Squeeze", since=(1, 11))
def squeeze_by_attribute(node: OnnxNode) -> Node:
    """Convert a squeeze whose axes are an attribute."""
    return _squeezed(node, node.integers("axes"))


@converter("Squeeze", since=(13, 21, 23, 24, 25))
def squeeze(node: OnnxNode) -> Node:
    """Convert a squeeze whose axes are an input."""
    return _squeezed(node, node.constant_ints(1, "axes") if node.has_input(1) else None)


def _squeezed(node: OnnxNode, axes: Sequence[int] | None) -> Node:
    if axes is None:
        return squeezed_where_one(node.input(0))
    return squeezed(node.input(0), node.axes(axes, node.type(0).ndim))


@converter("Unsqueeze", since=(1, 11))
def unsqueeze_by_attribute(node: OnnxNode) -> Node:
    """Convert an unsqueeze whose axes are an attribute."""
    return unsqueezed(node.input(0), node.integers("axes") or (), node.op)


@converter("Unsqueeze", since=(13, 21, 23, 24, 25))
def unsqueeze(node: OnnxNode) -> Node:
    """Convert an unsqueeze whose axes are an input."""
    return unsqueezed(node.input(0), node.constant_ints(1, "axes"), node.op)


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
