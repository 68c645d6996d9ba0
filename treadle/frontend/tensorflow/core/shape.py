# SPDX-License-Identifier: Apache-2.0
"""Converters of what changes shapes only, of shapes as values, and of tensors made from numbers."""

from __future__ import annotations

import numpy as np

from treadle.frontend.builders.basic import (
    axes_from_front,
    dims_of,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import reshaped_at_run
from treadle.frontend.builders.ranges import check_size, filled, filled_with, number_range, one_hot
from treadle.frontend.builders.shapes import (
    broadcast_shape,
    expanded,
    reshaped_to,
    squeezed,
    squeezed_where_one,
    unsqueezed,
)
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.tensorflow.node import Result, TfNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import product_of
from treadle.ops import elementwise


@converter("Reshape")
def reshape(node: TfNode) -> Node:
    """Convert a reshape."""
    if node.is_computed(1):
        return reshaped_at_run(node.input(0), node.elements(1), node.measure)
    return reshaped_to(node.input(0), node.sizes(1, "shape"))


@converter("Squeeze")
def squeeze(node: TfNode) -> Node:
    """Convert the removal of axes of one element: those listed, else all."""
    axes = node.attributes.integers("squeeze_dims") or node.attributes.integers("axis")
    if not axes:
        return squeezed_where_one(node.input(0))
    return squeezed(node.input(0), axes_from_front(axes, node.rank(0), node.op))


@converter("ExpandDims")
def expand_dims(node: TfNode) -> Node:
    """Convert a new axis of one element."""
    return unsqueezed(node.input(0), node.constant_ints(1, "axis"), node.op)


@converter("BroadcastTo")
def broadcast_to(node: TfNode) -> Node:
    """Convert a broadcast to a shape."""
    return expanded(node.input(0), node.sizes(1, "shape"))


@converter("BroadcastArgs")
def broadcast_args(node: TfNode) -> Node:
    """Convert the shape that two shapes broadcast to."""
    sizes = node.sizes(0, "shape"), node.sizes(1, "shape")
    return broadcast_shape(*sizes, node.type(0).dtype)


@converter("Shape")
def shape_as_value(node: TfNode) -> Node:
    """Convert the sizes of a tensor."""
    dims = node.dims(0)
    return sizes_node(dims, (len(dims),), node.dtype("out_type", "int32"))


@converter("ShapeN")
def shapes_as_values(node: TfNode) -> Result:
    """Convert the sizes of several tensors."""
    dtype = node.dtype("out_type", "int32")
    found = [dims_of(x) for x in node.all_inputs()]
    return [sizes_node(dims, (len(dims),), dtype) for dims in found]


@converter("Size")
def size(node: TfNode) -> Node:
    """Convert the number of elements."""
    return sizes_node((product_of(node.dims(0)),), (), node.dtype("out_type", "int32"))


@converter("Rank")
def rank(node: TfNode) -> Node:
    """Convert the number of axes."""
    return Constant.of(node.rank(0), "int32")


@converter("Fill")
def fill(node: TfNode) -> Node:
    """Convert a tensor of one value."""
    return filled_with(reshaped(node.input(1), ()), node.sizes(0, "shape"))


@converter("Empty")
def empty(node: TfNode) -> Node:
    """Convert a tensor of any values: of zeros."""
    return filled(Constant.of(0, node.dtype("dtype")), node.sizes(0, "shape"))


@converter("Range")
def range_of_three(node: TfNode) -> Node:
    """Convert start, start + delta, ... before a limit."""
    start, limit, delta = (reshaped(node.input(k), ()) for k in range(3))
    return number_range(start, limit, delta, node.measure)


@converter("LinSpace")
def linear_space(node: TfNode) -> Node:
    """Convert numbers at equal distances from a first to a last one."""
    start, stop = (node.constant(k, "ends").reshape(()) for k in (0, 1))
    count = int(node.constant_number(2, "number"))
    check_size((max(count, 0),), start.itemsize)
    return Constant.of(np.linspace(start, stop, count).astype(start.dtype))


@converter("OneHot")
def one_hot_rows(node: TfNode) -> Node:
    """Convert rows that hold one value at an index and another elsewhere."""
    (depth,) = node.sizes(1, "depth")
    on, off = (reshaped(node.input(k), ()) for k in (2, 3))
    axis = node.axis(node.attributes.integer("axis", -1), node.rank(0) + 1)
    indices = node.input(0)
    if isinstance(depth, int):  # TensorFlow does not count from the end
        zero, beyond = scalar_like(0, indices), scalar_like(depth, indices)
        indices = elementwise.where(elementwise.less(indices, zero), beyond, indices)
    return one_hot(indices, depth, off, on, axis)
