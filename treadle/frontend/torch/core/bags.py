# SPDX-License-Identifier: Apache-2.0
"""Converters of sums, means and maxima over bags of rows: embedding bags and segments."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

from treadle.errors import ModelError
from treadle.expr.intervals import FAR
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import sliced, taken
from treadle.frontend.builders.shapes import unsqueezed
from treadle.frontend.torch.core.distances import norm_of_rows
from treadle.frontend.torch.node import AtenNode, aten, operand, sum_dtype
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, product_of
from treadle.ops import cumulative, scatter, search
from treadle.ops import elementwise as ew


@aten("_embedding_bag_forward_only", "_embedding_bag")
def embedding_bag(
    node: AtenNode,
    table: Node,
    indices: Node,
    offsets: Node,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Node | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Node | None]:
    """Convert sums (0), means (1) or maxima (2) of rows of a table, a bag from each offset on.

    Nobody reads the results after the first: they are for gradients.
    """
    kind, bags = node.dtype(0), node.dims(0)[0]
    rows = converted(taken(table, indices, 0, node.op), sum_dtype(kind))
    (count,) = dims_of(indices)
    behind = search.search_sorted(offsets, counted(count, 0), right=True)
    bag = ew.subtract(behind, scalar_like(1, behind))
    if padding_idx >= 0:
        is_row = ew.not_equal(indices, scalar_like(padding_idx, indices))
        bag = ew.where(is_row, bag, operand(bags, "int64"))  # no bag has this number
    if per_sample_weights is not None:
        weights = converted(per_sample_weights, element_type(rows))
        rows = ew.multiply(rows, reshaped(weights, (count, 1)))
    return [converted(_pooled(rows, bag, bags, mode), kind), None, None, None]


@aten("embedding_renorm")
def embedding_renorm(
    node: AtenNode, table: Node, indices: Node, max_norm: float, norm_type: float
) -> Node:
    """Convert a table whose rows at `indices` are no longer than `max_norm`."""
    kind = node.dtype()
    rows = converted(table, sum_dtype(kind))
    norm = converted(
        converted(unsqueezed(norm_of_rows(rows, norm_type), [1]), kind), sum_dtype(kind)
    )
    places = reshaped(indices, (product_of(dims_of(indices)), 1))
    none = broadcast(operand(False, "bool"), dims_of(norm))
    is_named = scatter.scatter_nd(
        none, places, broadcast(operand(True, "bool"), (*dims_of(places)[:1], 1)), reduction="none"
    )
    limit = scalar_like(max_norm, norm)
    is_long = ew.logical_and(is_named, ew.greater(norm, limit))
    factor = ew.divide(limit, ew.add(norm, scalar_like(1e-7, norm)))
    return ew.where(*operands(is_long, converted(ew.multiply(rows, factor), kind), table))


def _pooled(rows: Node, bag: Node, bags: Dim, mode: int) -> Node:
    """Return rows combined by the number of their bag; an empty bag is zeros."""
    if mode not in (0, 1, 2):
        raise ModelError(f"the mode {mode} of an embedding bag is not known")
    sums = _combined(rows, bag, bags, "max" if mode == 2 else "add", -inf if mode == 2 else 0)
    if mode == 0:
        return sums
    ones = broadcast(scalar_like(1, rows), (*dims_of(rows)[:1], 1))
    counts = _combined(ones, bag, bags, "add", 0)
    is_empty = ew.equal(counts, scalar_like(0, counts))
    if mode == 1:
        return ew.divide(sums, ew.maximum(counts, scalar_like(1, counts)))
    return ew.where(broadcast(is_empty, dims_of(sums)), scalar_like(0, sums), sums)


def _combined(rows: Node, bag: Node, bags: Dim, reduction: str, start: float) -> Node:
    """Return [bags, ...]: rows [n, ...] combined by the numbers of their bags [n]."""
    count, *rest = dims_of(rows)
    whole = broadcast(scalar_like(start, rows), (bags, *rest))
    places = reshaped(bag, (count, 1))
    return scatter.scatter_nd(whole, places, rows, reduction=reduction)


_SEGMENTS: dict[str, tuple[str, float]] = {
    "sum": ("add", 0), "mean": ("add", 0), "max": ("max", -inf), "min": ("min", inf),
    "prod": ("mul", 1),
}  # fmt: skip
"""What combines the elements of a segment, and what it begins with."""


@aten("segment_reduce")
def segment_reduce(
    node: AtenNode,
    data: Node,
    reduce: str,
    *,
    lengths: Node | None = None,
    indices: Node | None = None,
    offsets: Node | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Node:
    """Convert the rows of segments, one behind the other, combined with an initial value."""
    if lengths is not None:
        ends: Node = cumulative.cumsum(converted(lengths, "int64"), axis=axis)
    elif offsets is not None:
        ends = sliced(converted(offsets, "int64"), [AxisRange(axis, 1, FAR)])
    else:
        raise ModelError("segments by indices are not supported")
    reduction, start = _SEGMENTS[reduce]
    places = _segments(ends, dims_of(data))
    rows = converted(data, sum_dtype(node.dtype()))
    begin = broadcast(scalar_like(start if initial is None else initial, rows), node.dims())
    made: Node = scatter.scatter_elements(begin, places, rows, axis=axis, reduction=reduction)
    if reduce == "mean":
        ones = broadcast(scalar_like(1, rows), dims_of(rows))
        none = broadcast(scalar_like(0, rows), node.dims())
        counts = scatter.scatter_elements(none, places, ones, axis=axis, reduction="add")
        made = _mean_of(made, counts, nan if initial is None else initial)
    return converted(made, node.dtype())


def _segments(ends: Node, shape: Sequence[Dim]) -> Node:
    """Return for each element of a shape the number of the segment that it is in.

    `ends` [..., segments] are places on the axis of the shape where their last axis stands.
    """
    axis = len(dims_of(ends)) - 1
    numbers = broadcast(counted(shape[axis]), shape[: axis + 1])
    found = search.search_sorted(ends, numbers, right=True)
    wide = reshaped(found, (*shape[: axis + 1], *(1 for _ in shape[axis + 1 :])))
    return broadcast(wide, shape)


def _mean_of(sums: Node, counts: Node, empty: float) -> Node:
    """Return sums over how many elements they have; `empty` where there are none."""
    is_empty = ew.equal(counts, scalar_like(0, counts))
    otherwise = broadcast(scalar_like(empty, sums), dims_of(sums))
    return ew.where(is_empty, otherwise, ew.divide(sums, counts))
