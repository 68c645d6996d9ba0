# SPDX-License-Identifier: Apache-2.0
"""Converters of what changes shapes only, of shapes as values, and of tensors made from numbers."""

from __future__ import annotations

import numpy as np

from treadle.frontend.builders.basic import (
    axes_from_front,
    broadcast,
    converted,
    dims_of,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import reshaped_at_run
from treadle.frontend.builders.movement import padded
from treadle.frontend.builders.ranges import check_size, filled_with, number_range, one_hot
from treadle.frontend.builders.shapes import (
    broadcast_shape,
    expanded,
    reshaped_to,
    squeezed,
    squeezed_where_one,
    unsqueezed,
)
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.tflite.node import TfliteNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, scatter


@converter("RESHAPE")
def reshape(node: TfliteNode) -> Node:
    """Convert a reshape to the shape of an input, or of the options."""
    if not node.has_input(1):
        wanted = node.options.integers("new_shape") or node.result().shape
        return reshaped_to(node.input(0), wanted)
    if node.is_computed(1):
        return reshaped_at_run(node.input(0), node.elements(1), node.measure)
    return reshaped_to(node.input(0), node.sizes(1, "shape"))


@converter("SQUEEZE")
def squeeze(node: TfliteNode) -> Node:
    """Convert the removal of axes of one element: those listed, else all."""
    axes = node.options.integers("squeeze_dims")
    if not axes:
        return squeezed_where_one(node.input(0))
    return squeezed(node.input(0), axes_from_front(axes, node.rank(0), node.op))


@converter("EXPAND_DIMS")
def expand_dims(node: TfliteNode) -> Node:
    """Convert a new axis of one element."""
    return unsqueezed(node.input(0), node.constant_ints(1, "axis"), node.op)


@converter("BROADCAST_TO")
def broadcast_to(node: TfliteNode) -> Node:
    """Convert a broadcast to a shape."""
    return expanded(node.input(0), node.sizes(1, "shape"))


@converter("BROADCAST_ARGS")
def broadcast_args(node: TfliteNode) -> Node:
    """Convert the shape that two shapes broadcast to."""
    sizes = node.sizes(0, "shape"), node.sizes(1, "shape")
    return broadcast_shape(*sizes, node.result().dtype)


@converter("SHAPE")
def shape_as_value(node: TfliteNode) -> Node:
    """Convert the sizes of a tensor."""
    dims = node.dims(0)
    return sizes_node(dims, (len(dims),), node.result().dtype)


@converter("RANK")
def rank(node: TfliteNode) -> Node:
    """Convert the number of axes."""
    return Constant.of(node.rank(0), "int32")


@converter("FILL")
def fill(node: TfliteNode) -> Node:
    """Convert a tensor of one value."""
    made = filled_with(reshaped(node.input(1), ()), node.sizes(0, "shape"))
    return node.moved(made, source=1)


@converter("RANGE")
def range_of_three(node: TfliteNode) -> Node:
    """Convert start, start + delta, ... before a limit."""
    start, limit, delta = (reshaped(node.input(k), ()) for k in range(3))
    return number_range(start, limit, delta, node.measure)


@converter("ONE_HOT")
def one_hot_rows(node: TfliteNode) -> Node:
    """Convert rows that hold one value at an index and another elsewhere."""
    (depth,) = node.sizes(1, "depth")
    on, off = (reshaped(node.input(k), ()) for k in (2, 3))
    axis = node.axis(node.options.integer("axis"), node.rank(0) + 1)
    indices = node.input(0)
    if isinstance(depth, int):  # TFLite does not count from the end
        zero, beyond = scalar_like(0, indices), scalar_like(depth, indices)
        indices = elementwise.where(elementwise.less(indices, zero), beyond, indices)
    return one_hot(indices, depth, off, on, axis)


@converter("SPARSE_TO_DENSE")
def sparse_to_dense(node: TfliteNode) -> Node:
    """Convert values at given places of a tensor that holds one value elsewhere."""
    shape = node.sizes(1, "shape")
    whole = broadcast(reshaped(node.input(3), ()), shape)
    places = converted(node.input(0), "int64")
    count, rank = (node.dims(0)[0] if node.rank(0) else 1), len(shape)
    values = broadcast(node.input(2), (count,))
    return scatter.scatter_nd(whole, reshaped(places, (count, rank)), values)


@converter("MATRIX_DIAG")
def matrix_diag(node: TfliteNode) -> Node:
    """Convert vectors to matrices that hold them on their diagonal."""
    x = node.input(0)
    (size,) = node.shape(0)[-1:]
    check_size((size, size), 1)
    on_diagonal = Constant.of(np.eye(size, dtype="bool"))
    rows = reshaped(x, (*dims_of(x)[:-1], 1, size))
    return elementwise.where(on_diagonal, rows, scalar_like(0, x))


@converter("MATRIX_SET_DIAG")
def matrix_set_diag(node: TfliteNode) -> Node:
    """Convert matrices with another diagonal."""
    rows, columns = node.shape(0)[-2:]
    check_size((rows, columns), 1)
    diagonal = node.input(1)
    if rows > columns:
        ends = (0,) * (node.rank(1) - 1)
        diagonal = padded(diagonal, (*ends, 0), (*ends, rows - columns))
    spread = reshaped(diagonal, (*dims_of(diagonal), 1))
    return elementwise.where(
        Constant.of(np.eye(rows, columns, dtype="bool")), spread, node.input(0)
    )
