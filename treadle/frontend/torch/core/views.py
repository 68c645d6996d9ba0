# SPDX-License-Identifier: Apache-2.0
"""Converters of views along diagonals and windows, and of writes through views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.errors import ModelError
from treadle.expr.intervals import FAR
from treadle.expr.nodes import Expr
from treadle.frontend.builders import reduce
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    reshaped,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange, written_at_run
from treadle.frontend.builders.frames import framed, overlap_added
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import concatenated, sliced, taken
from treadle.frontend.builders.shapes import unsqueezed
from treadle.frontend.torch.node import AtenNode, aten, operand, prims
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, product_of
from treadle.ops import scatter


@aten("diagonal", "diagonal_copy")
def diagonal(node: AtenNode, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """Convert the diagonal of two axes, which becomes the last axis.

    In rows one behind the other its elements are one row and one element apart.
    """
    rows = _last(x, (node.axis(dim1, x), node.axis(dim2, x)))
    *lead, m, n = dims_of(rows)
    (count, width) = known_sizes((node.dims()[-1], n), "a diagonal")
    start = offset if offset >= 0 else -offset * width
    flat = reshaped(rows, (*lead, product_of([m, n])))
    end = start + max(count - 1, 0) * (width + 1) + (count > 0)
    cut = sliced(
        flat, [AxisRange(len(lead), start if count else 0, end if count else 0, width + 1)]
    )
    return reshaped(cut, node.dims())


def _last(x: Node, axes: Sequence[int]) -> Node:
    """Return `x` with some axes moved behind the others."""
    rest = [k for k in range(len(dims_of(x))) if k not in axes]
    return transposed(x, (*rest, *axes))


@aten("diag_embed")
def diag_embed(node: AtenNode, x: Node, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Node:
    """Convert a matrix per vector with it on a diagonal: a vector among zeros."""
    *lead, n = dims_of(x)
    (width,) = known_sizes((node.dims()[dim1],), "a diagonal")
    (count,) = known_sizes((n,), "a diagonal")
    start = offset if offset >= 0 else -offset * width
    places = np.full(width * width, count)
    places[start + np.arange(count) * (width + 1)] = np.arange(count)
    zero = broadcast(converted(Constant.of(0, "int64"), node.dtype()), (*lead, 1))
    found = taken(concatenated([x, zero], len(lead)), Constant.of(places), len(lead), node.op)
    made = reshaped(found, (*lead, width, width))
    rank = len(node.dims())
    return _moved(made, (rank - 2, rank - 1), (dim1 % rank, dim2 % rank))


def _moved(x: Node, source: Sequence[int], target: Sequence[int]) -> Node:
    """Return `x` with axes moved to given places; the others keep their order."""
    rest = iter(k for k in range(len(dims_of(x))) if k not in source)
    at = dict(zip(target, source, strict=True))
    return transposed(x, [at[k] if k in at else next(rest) for k in range(len(dims_of(x)))])


@aten("unfold", "unfold_copy")
def unfold(node: AtenNode, x: Node, dimension: int, size: int, step: int) -> Node:
    """Convert windows of an axis, which lie along a new last axis."""
    if not dims_of(x):
        return reshaped(x if size else sliced(reshaped(x, (1,)), [AxisRange(0, 0, 0)]), node.dims())
    axis = node.axis(dimension, x)
    found = framed(x, axis, node.dims()[axis], size, step)
    return _moved(found, (axis + 1,), (len(dims_of(x)),))


@aten("unfold_backward")
def unfold_backward(
    node: AtenNode, grad: Node, input_sizes: Sequence[Dim], dim: int, size: int, step: int
) -> Node:
    """Convert windows that are added up where they were taken from (the end of torch.istft)."""
    if not input_sizes:
        return reduce.total(grad, (0,), False) if size else operand(0, node.dtype())
    axis = dim % len(input_sizes)
    rank = len(input_sizes)
    frames = _last(grad, (axis, rank))
    made = _moved(overlap_added(frames, node.dims()[axis], step), (rank - 1,), (axis,))
    return broadcast(made, node.dims())  # torch.istft gives one window for a batch


@aten("select_scatter")
def select_scatter(node: AtenNode, x: Node, src: Node, dim: int, index: Dim) -> Node:
    """Convert a tensor of which one position of an axis is replaced."""
    axis = node.axis(dim, x)
    extent, at = known_sizes((dims_of(x)[axis], index), "a position")
    first = at % extent if extent else 0
    return _replaced(x, axis, first, first + 1, unsqueezed(src, [axis]))


@aten("slice_scatter")
def slice_scatter(
    node: AtenNode,
    x: Node,
    src: Node,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> Node:
    """Convert a tensor of which a range of an axis is replaced."""
    axis = node.axis(dim, x)
    extent = dims_of(x)[axis]
    if any(isinstance(v, Expr) for v in (extent, start, end)):
        return written_at_run(x, src, axis, 0 if start is None else start, step)
    return _with_slice(x, axis, src, slice(start, end, step))


def _with_slice(x: Node, axis: int, src: Node, part: slice) -> Node:
    """Return `x` with a known range of an axis replaced."""
    (extent,) = known_sizes(dims_of(x)[axis : axis + 1], "an axis")
    begin, stop, step = part.indices(extent)
    if step == 1:
        return _replaced(x, axis, begin, max(stop, begin), src)
    places = np.arange(extent)
    places[begin:stop:step] = extent + np.arange(len(range(begin, stop, step)))
    return taken(concatenated([x, src], axis), Constant.of(places), axis, "slice_scatter")


def _replaced(x: Node, axis: int, begin: int, end: int, src: Node) -> Node:
    parts = [sliced(x, [AxisRange(axis, 0, begin)]), src, sliced(x, [AxisRange(axis, end, FAR)])]
    full = [p for p in parts if dims_of(p)[axis] != 0]
    return concatenated(full, axis) if full else x


@aten("diagonal_scatter")
def diagonal_scatter(
    node: AtenNode, x: Node, src: Node, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Node:
    """Convert a tensor of which a diagonal is replaced."""
    axes = (node.axis(dim1, x), node.axis(dim2, x))
    rows = _last(x, axes)
    *lead, m, n = dims_of(rows)
    height, width, count = known_sizes((m, n, dims_of(src)[-1]), "a diagonal")
    start = offset if offset >= 0 else -offset * width
    places = np.arange(height * width)
    places[start + np.arange(count) * (width + 1)] = height * width + np.arange(count)
    flat = concatenated([reshaped(rows, (*lead, height * width)), src], len(lead))
    made = reshaped(taken(flat, Constant.of(places), len(lead), node.op), dims_of(rows))
    return _moved(made, (len(lead), len(lead) + 1), axes)


@aten("take")
def take(node: AtenNode, x: Node, index: Node) -> Node:
    """Convert elements by their places in row-major order."""
    return taken(reshaped(x, (product_of(dims_of(x)),)), index, 0, node.op)


@aten("put")
def put(node: AtenNode, x: Node, index: Node, source: Node, accumulate: bool = False) -> Node:
    """Convert writes of elements at places in row-major order."""
    flat = reshaped(x, (product_of(dims_of(x)),))
    count = product_of(dims_of(index))
    rows = reshaped(index, (count, 1))
    below = _from_front(rows, flat)
    made = scatter.scatter_nd(
        flat, below, reshaped(source, (count,)), reduction="add" if accumulate else "none"
    )
    return reshaped(made, dims_of(x))


def _from_front(index: Node, x: Node) -> Node:
    return converted(checked_indices(x, index, 0, op="aten.put"), "int64")


@aten("as_strided", "as_strided_copy")
def as_strided(
    node: AtenNode,
    x: Node,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Node:
    """Convert a view by strides of a tensor that fills its memory."""
    flat, _ = _memory(node, x)
    return taken(flat, Constant.of(_strided(size, stride, storage_offset)), 0, node.op)


def _memory(node: AtenNode, x: Node) -> tuple[Node, tuple[int, ...]]:
    """Return the elements of an operand as they lie in memory, and its axes in that order."""
    order = node.memory_order(0)
    if order is None:
        raise ModelError("strides of a tensor that does not fill its memory are not supported")
    return reshaped(transposed(x, order), (product_of(dims_of(x)),)), order


def _strided(size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Return the places in memory of the elements of a view by strides."""
    places = np.full((), offset or 0)
    for extent, step in zip(known_sizes(tuple(size), "a size"), stride, strict=True):
        places = places[..., None] + np.arange(extent) * step
    return places.astype("int64")


@aten("as_strided_scatter")
@prims("as_strided_scatter")
def as_strided_scatter(
    node: AtenNode,
    x: Node,
    src: Node,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Node:
    """Convert a tensor that fills its memory, of which a view by strides is replaced."""
    flat, order = _memory(node, x)
    places = _strided(size, stride, storage_offset)
    rows = Constant.of(places.reshape(-1, 1))
    made = scatter.scatter_nd(flat, rows, reshaped(src, (places.size,)))
    lying = reshaped(made, [dims_of(x)[k] for k in order])
    return transposed(lying, [order.index(k) for k in range(len(order))])


@aten("resize")
def resize(node: AtenNode, x: Node, *_size: object, **_how: object) -> Node:
    """Convert the first elements in another shape; what is beyond them nobody has set: zeros."""
    old, new = known_sizes((product_of(dims_of(x)), product_of(node.dims())), "a size")
    flat = reshaped(x, (old,))
    more = broadcast(converted(Constant.of(0, "int64"), node.dtype()), (max(new - old, 0),))
    return reshaped(sliced(concatenated([flat, more], 0), [AxisRange(0, 0, new)]), node.dims())
