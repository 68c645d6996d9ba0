# SPDX-License-Identifier: Apache-2.0
"""Converters of writes at positions that are data."""

from __future__ import annotations

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import broadcast, dims_of, reshaped
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import padded
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, as_dim, known_sizes, product_of
from treadle.ops import elementwise, scatter, sizes


@converter("Scatter", since=(9,))
@converter("ScatterElements", since=(11, 13, 16, 18))
def scatter_elements(node: OnnxNode) -> Node:
    """Convert updates of single elements along an axis."""
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    reduction = node.text("reduction", "none") if node.version >= 16 else "none"
    data = node.input(0)
    indices = checked_indices(data, node.input(1), axis, op=node.op)
    return scatter.scatter_elements(data, indices, node.input(2), axis=axis, reduction=reduction)


@converter("ScatterND", since=(11, 13, 16, 18))
def scatter_nd(node: OnnxNode) -> Node:
    """Convert updates of slices that index tuples choose."""
    reduction = node.text("reduction", "none") if node.version >= 16 else "none"
    data, indices = node.input(0), node.input(1)
    depth = int_value(dims_of(indices)[-1]) if dims_of(indices) else None
    if depth and depth <= len(dims_of(data)):
        indices = checked_indices(data, indices, 0, depth, op=node.op)
    return scatter.scatter_nd(data, indices, node.input(2), reduction=reduction)


@converter("TensorScatter", since=(24,))
def tensor_scatter(node: OnnxNode) -> Node:
    """Convert a cache update: new rows written from a start on, around the end if circular."""
    cache, update = node.dims(0), node.dims(1)
    axis = node.axis(node.integer("axis", -2), len(cache))
    mode = node.text("mode", "linear")
    if len(update) != len(cache):
        raise ModelError(f"the update {node.type(1)} and the cache {node.type(0)} differ in rank")
    if mode not in ("linear", "circular") or axis == 0:
        raise ModelError(f"TensorScatter with mode {mode!r} along axis {axis} is not defined")
    positions: Node = sizes.arange(start=0, step=1, size=update[axis])
    positions = reshaped(positions, (update[axis], *(1,) * (len(cache) - axis - 1)))
    start = node.optional(2)
    if start is not None:
        first = reshaped(start, (*dims_of(start), *(1,) * (len(cache) - 1)))
        positions = elementwise.add(first, positions)
    if mode == "circular":
        positions = elementwise.mod(positions, sizes_node((cache[axis],), ()))
    return scatter.scatter_elements(
        node.input(0), broadcast(positions, update), node.input(1), axis=axis
    )


@converter("MaxUnpool", since=(9, 11, 22))
def max_unpool(node: OnnxNode) -> Node:
    """Convert the inverse of a max pooling: values back at their positions, zeros elsewhere."""
    shape = node.dims(0)
    spatial = len(shape) - 2
    kernel = node.integers("kernel_shape") or ()
    strides = node.integers("strides") or (1,) * spatial
    pads = node.integers("pads") or (0,) * (2 * spatial)
    if not len(kernel) == len(strides) == spatial or len(pads) != 2 * spatial:
        raise ModelError(f"kernel_shape, strides and pads do not fit {node.type(0)}")
    inferred = tuple(
        as_dim((d - 1) * s + k - pads[i] - pads[i + spatial])
        for i, (d, s, k) in enumerate(zip(shape[2:], strides, kernel, strict=True))
    )
    natural = (*shape[:2], *inferred)
    count, size = product_of(shape), product_of(natural)
    zeros = broadcast(Constant.of(np.zeros(1, to_numpy(node.type(0).dtype))), (size,))
    places = checked_indices(zeros, reshaped(node.input(1), (count,)), 0, op=node.op)
    flat = scatter.scatter_elements(zeros, places, reshaped(node.input(0), (count,)), axis=0)
    return _padded_to_output(node, reshaped(flat, natural), natural)


def _padded_to_output(node: OnnxNode, x: Node, inferred: tuple[Dim, ...]) -> Node:
    if not node.has_input(2):
        return x
    wanted, natural = node.constant_ints(2, "output_shape"), known_sizes(inferred)
    if len(wanted) != len(natural) or any(w < n for w, n in zip(wanted, natural, strict=True)):
        raise ModelError(f"the output shape {list(wanted)} is smaller than {list(natural)}")
    return padded(x, (0,) * len(wanted), [w - n for w, n in zip(wanted, natural, strict=True)])
