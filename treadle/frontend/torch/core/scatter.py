# SPDX-License-Identifier: Apache-2.0
"""Converters of writes of single elements along an axis, and under a mask."""

from __future__ import annotations

from math import inf

from treadle import dtype as dtypes
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import sliced, taken
from treadle.frontend.torch.core.elementwise import floor_quotient
from treadle.frontend.torch.node import AtenNode, Operand, aten, operand
from treadle.graph.nodes import Node
from treadle.graph.types import product_of
from treadle.ops import cumulative, scatter
from treadle.ops import elementwise as ew

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add",
               "multiply": "mul"}  # fmt: skip


@aten("scatter.src", "scatter_add", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter_(
    node: AtenNode, x: Node, dim: int, index: Node, src: Operand, *, reduce: str = ""
) -> Node:
    """Convert writes of single elements along an axis."""
    values = operand(src, node.dtype())
    reduction = "add" if node.op == "aten.scatter_add.default" else _REDUCTIONS.get(reduce, "none")
    return _scattered(node, x, dim, index, values, reduction)


@aten("scatter_reduce.two")
def scatter_reduce(
    node: AtenNode,
    x: Node,
    dim: int,
    index: Node,
    src: Node,
    reduce: str,
    *,
    include_self: bool = True,
) -> Node:
    """Convert writes that are combined with each other, and with what is there."""
    return _combined(node, x, dim, index, src, reduce, include_self)


@aten("index_reduce")
def index_reduce(
    node: AtenNode,
    x: Node,
    dim: int,
    index: Node,
    source: Node,
    reduce: str,
    *,
    include_self: bool = True,
) -> Node:
    """Convert slices that are combined with those an index names."""
    if not dims_of(source):
        return _combined(node, x, 0, index, source, reduce, include_self)
    axis, rank = node.axis(dim, source), len(dims_of(source))
    (count,) = dims_of(reshaped(index, (product_of(dims_of(index)),)))
    wide = reshaped(index, [count if k == axis else 1 for k in range(rank)])
    places = broadcast(wide, dims_of(source))
    return _combined(node, x, dim, places, source, reduce, include_self)


def _combined(
    node: AtenNode, x: Node, dim: int, index: Node, src: Node, reduce: str, include_self: bool
) -> Node:
    """Return writes of single elements that are combined with each other, or with `x` too."""
    reduction = "add" if reduce == "mean" else _REDUCTIONS[reduce]
    start = x if include_self else _overwritten(node, x, dim, index, _neutral(reduction, x))
    made = _scattered(node, start, dim, index, src, reduction)
    if reduce != "mean":
        return made
    ones = broadcast(scalar_like(1, x), dims_of(x))
    terms = ones if include_self else _overwritten(node, ones, dim, index, 0)
    counts = _scattered(node, terms, dim, index, scalar_like(1, x), "add")
    if dtypes.is_float(element_type(x)):
        return ew.divide(made, counts)
    return floor_quotient(made, counts)


def _overwritten(node: AtenNode, x: Node, dim: int, index: Node, value: float) -> Node:
    """Return a tensor with one value wherever an index leads."""
    return _scattered(node, x, dim, index, scalar_like(value, x), "none")


def _neutral(reduction: str, x: Node) -> float:
    """Return what changes nothing that it is combined with."""
    dtype = element_type(x)
    if reduction in ("add", "mul"):
        return float(reduction == "mul")
    if dtypes.is_float(dtype):
        return -inf if reduction == "max" else inf
    return dtypes.min_value(dtype) if reduction == "max" else dtypes.max_value(dtype)


@aten("masked_scatter")
def masked_scatter(node: AtenNode, x: Node, mask: Node, source: Node) -> Node:
    """Convert writes where a mask holds, of the elements of `source` in order."""
    shape = node.dims()
    where = broadcast(mask, shape)
    size = product_of(dims_of(source))
    if size == 0:
        return broadcast(x, shape)
    flat = reshaped(where, (product_of(shape),))
    counts = cumulative.cumsum(converted(flat, "int64"), axis=0)
    places = ew.maximum(ew.subtract(counts, scalar_like(1, counts)), scalar_like(0, counts))
    chosen = taken(reshaped(source, (size,)), places, 0, node.op)
    return ew.where(where, reshaped(chosen, shape), broadcast(x, shape))


def _scattered(
    node: AtenNode, x: Node, dim: int, index: Node, values: Node, reduction: str
) -> Node:
    if not dims_of(x):
        made = _scattered_rows(
            node, reshaped(x, (1,)), 0, reshaped(index, (1,)), reshaped(values, (1,)), reduction
        )
        return reshaped(made, ())
    if not dims_of(index):
        raise ModelError("an index of rank 0 is not supported")
    values = (
        broadcast(values, dims_of(index))
        if not dims_of(values)
        else sliced(values, [AxisRange(k, 0, d) for k, d in enumerate(dims_of(index))])
    )
    return _scattered_rows(node, x, node.axis(dim, x), index, values, reduction)


def _scattered_rows(
    node: AtenNode, x: Node, axis: int, index: Node, values: Node, reduction: str
) -> Node:
    places = checked_indices(x, index, axis, op=node.op)
    return scatter.scatter_elements(x, places, values, axis=axis, reduction=reduction)
