# SPDX-License-Identifier: Apache-2.0
"""Converters of choices and writes by index, and of what is sorted or selected by value."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    reshaped,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import concatenated, sliced, taken
from treadle.frontend.builders.selection import nonzero as places_of
from treadle.frontend.torch.node import AtenNode, aten, operand
from treadle.graph.broadcasting import common_shape
from treadle.graph.nodes import Node, TupleItem
from treadle.ops import indexing, scatter, sort


@aten("embedding")
def embedding(
    node: AtenNode,
    weights: Node,
    indices: Node,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Node:
    """Convert rows of a table."""
    return taken(weights, indices, 0, node.op)


@aten("index_select")
def index_select(node: AtenNode, x: Node, dim: int, index: Node) -> Node:
    """Convert slices along an axis by a vector of positions."""
    flat = reshaped(index, (1,)) if not dims_of(index) else index
    if not dims_of(x):
        return x
    return taken(x, flat, node.axis(dim, x), node.op)


@aten("gather")
def gather(node: AtenNode, x: Node, dim: int, index: Node, sparse_grad: bool = False) -> Node:
    """Convert single elements by their positions along an axis.

    An index without elements may have another rank.
    """
    if 0 in dims_of(index):
        return broadcast(operand(0, node.dtype()), node.dims())
    if not dims_of(x) or not dims_of(index):
        return broadcast(reshaped(x, (1,) * len(dims_of(index))), node.dims())
    axis = node.axis(dim, x)
    return indexing.gather_elements(
        _as_large(x, index, axis), checked_indices(x, index, axis, op=node.op), axis=axis
    )


def _as_large(x: Node, index: Node, axis: int) -> Node:
    """Return `x` cut to the extents of `index` on all axes but `axis`."""
    ranges = [AxisRange(k, 0, d) for k, d in enumerate(dims_of(index)) if k != axis]
    return sliced(x, ranges)


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(node: AtenNode, x: Node, indices: Sequence[Node | None]) -> Node:
    """Convert a choice by index tensors, which broadcast; axes without one are whole.

    The axes of the result that indices make stand where the first of them does if they are
    neighbours, else in front.
    """
    given = without_masks(node, indices)
    if not given:
        return x
    axes = [axis for axis, _ in given]
    rest = [k for k in range(len(dims_of(x))) if k not in axes]
    front = transposed(x, (*axes, *rest))
    checked = [
        converted(checked_indices(front, i, k, op=node.op), "int64")
        for k, (_, i) in enumerate(given)
    ]
    parts = _met(checked)
    shape = dims_of(parts[0])
    if len(parts) == 1:
        made: Node = indexing.gather(front, parts[0], axis=0)
    else:
        tuples = concatenated([reshaped(p, (*shape, 1)) for p in parts], len(shape))
        made = indexing.gather_nd(front, tuples)
    made = _inside(made, axes, len(shape))
    node.bind_dims(dims_of(made))
    return made


def _inside(made: Node, axes: Sequence[int], n: int) -> Node:
    """Return a choice with its first `n` axes, those of indices of `axes`, where they belong."""
    if axes != list(range(axes[0], axes[0] + len(axes))) or axes[0] == 0:
        return made
    before = axes[0]
    perm = (*range(n, n + before), *range(n), *range(n + before, len(dims_of(made))))
    return transposed(made, perm)


def _met(indices: Sequence[Node]) -> list[Node]:
    """Return index tensors that broadcast as tensors of one shape."""
    shape = common_shape(*map(dims_of, indices))
    if shape is None:
        raise ModelError(f"indices of {[str(i.type) for i in indices]} do not broadcast")
    return [broadcast(i, shape) for i in indices]


def without_masks(node: AtenNode, indices: Sequence[Node | None]) -> list[tuple[int, Node]]:
    """Return axes with their indices; a mask is an index of each of its axes, where it holds."""
    given: list[tuple[int, Node]] = []
    axis = 0
    for i in indices:
        if i is not None and element_type(i) in ("bool", "uint8"):
            found = places_of(i, node.measure)
            rank = len(dims_of(i))
            given += [(axis + k, part) for k, part in enumerate(_rows(found, rank))]
            axis += rank
            continue
        given += [(axis, i)] if i is not None else []
        axis += 1
    return given


def _rows(x: Node, count: int) -> list[Node]:
    cut = [sliced(x, [AxisRange(0, k, k + 1)]) for k in range(count)]
    return [reshaped(c, dims_of(x)[1:]) for c in cut]


@aten("index_put", "_unsafe_index_put")
def index_put(
    node: AtenNode,
    x: Node,
    indices: Sequence[Node | None],
    values: Node,
    accumulate: bool = False,
) -> Node:
    """Convert writes at index tensors, which broadcast and stand on the first axes."""
    given = without_masks(node, indices)
    if not given:
        raise ModelError("index_put without indices is not supported")
    axes = [axis for axis, _ in given]
    rest = [k for k in range(len(dims_of(x))) if k not in axes]
    perm = (*axes, *rest)
    front = transposed(x, perm)
    parts = _met(
        [
            converted(checked_indices(front, i, k, op=node.op), "int64")
            for k, (_, i) in enumerate(given)
        ]
    )
    shape = dims_of(parts[0])
    tuples = concatenated([reshaped(p, (*shape, 1)) for p in parts], len(shape))
    left = [dims_of(x)[k] for k in rest]
    is_inside = axes == list(range(axes[0], axes[0] + len(axes))) and axes[0] > 0
    if is_inside:
        n, before = len(shape), axes[0]
        wide = broadcast(values, (*left[:before], *shape, *left[before:]))
        order = (
            *range(before, before + n), *range(before), *range(before + n, n + len(left)),
        )  # fmt: skip
        updates = transposed(wide, order)
    else:
        updates = broadcast(values, (*shape, *left))
    made = scatter.scatter_nd(front, tuples, updates, reduction="add" if accumulate else "none")
    return transposed(made, [perm.index(k) for k in range(len(perm))])


@aten("topk")
def topk(
    node: AtenNode, x: Node, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Node]:
    """Convert the largest or smallest elements along an axis, and where they are."""
    return _topk(node, x, k, dim, largest)


@aten("sort", "sort.stable")
def sort_(
    node: AtenNode, x: Node, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> list[Node]:
    """Convert an axis in order, and where its elements were."""
    extent = dims_of(x)[node.axis(dim, x)] if dims_of(x) else 1
    return _topk(node, x, extent, dim, descending)


def _topk(node: AtenNode, x: Node, k: object, dim: int, largest: bool) -> list[Node]:
    data = x if dims_of(x) else reshaped(x, (1,))
    both = sort.topk(data, k=k, axis=node.axis(dim, data), largest=largest)
    return [reshaped(TupleItem.of(both, n), node.dims(n)) for n in range(2)]
