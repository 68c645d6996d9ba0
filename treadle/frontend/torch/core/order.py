# SPDX-License-Identifier: Apache-2.0
"""Converters of what goes by order: medians, ranks, running extremes, places in sorted rows."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders import order
from treadle.frontend.builders.basic import converted, dims_of, reshaped
from treadle.frontend.torch.node import AtenNode, Operand, aten, common_dtype, operand
from treadle.graph.nodes import Node
from treadle.graph.types import product_of
from treadle.ops import cumulative, indexing, search


def _rows(x: Node) -> Node:
    """Return `x`; a scalar as a vector of one."""
    return x if dims_of(x) else reshaped(x, (1,))


def _both(node: AtenNode, found: tuple[Node, Node]) -> list[Node]:
    return [reshaped(v, node.dims(k)) for k, v in enumerate(found)]


@aten("kthvalue")
def kthvalue(node: AtenNode, x: Node, k: int, dim: int = -1, keepdim: bool = False) -> list[Node]:
    """Convert the k-th smallest element along an axis, and where it is."""
    data = _rows(x)
    return _both(node, order.kth_smallest(data, k, node.axis(dim, data)))


@aten("median", "nanmedian")
def median(node: AtenNode, x: Node) -> Node:
    """Convert the lower median of all elements."""
    flat = reshaped(x, (product_of(dims_of(x)),))
    found, _ = order.median(flat, 0, skips_nan=node.op.startswith("aten.nan"))
    return reshaped(found, ())


@aten("median.dim", "nanmedian.dim")
def median_along(node: AtenNode, x: Node, dim: int, keepdim: bool = False) -> list[Node]:
    """Convert the lower median along an axis, and where it is."""
    data = _rows(x)
    is_of_numbers = node.op.startswith("aten.nan")
    return _both(node, order.median(data, node.axis(dim, data), skips_nan=is_of_numbers))


@aten("mode")
def mode(node: AtenNode, x: Node, dim: int = -1, keepdim: bool = False) -> list[Node]:
    """Convert the most frequent element along an axis, and where it is."""
    data = _rows(x)
    return _both(node, order.mode(data, node.axis(dim, data)))


@aten("cummax", "cummin")
def running_extreme(node: AtenNode, x: Node, dim: int) -> list[Node]:
    """Convert the largest or smallest elements so far, and where they are."""
    data, is_largest = _rows(x), node.op.startswith("aten.cummax")
    found = order.running_extreme(data, node.axis(dim, data), is_largest=is_largest)
    return _both(node, found)


@aten("logcumsumexp")
def logcumsumexp(node: AtenNode, x: Node, dim: int) -> Node:
    """Convert running sums of numbers that are given by their logarithms."""
    return cumulative.logcumsumexp(x, axis=node.axis(dim, x)) if dims_of(x) else x


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    node: AtenNode,
    rows: Node,
    values: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Node | None = None,
) -> Node:
    """Convert the places where values belong in sorted rows, or in rows that `sorter` sorts."""
    if sorter is not None:
        rows = indexing.gather_elements(rows, sorter, axis=len(dims_of(rows)) - 1)
    return _places(node, rows, values, right or side == "right")


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    node: AtenNode, values: Operand, bounds: Node, *, out_int32: bool = False, right: bool = False
) -> Node:
    """Convert the places where values belong among sorted bounds."""
    return _places(node, bounds, values, right)


def _places(node: AtenNode, rows: Node, values: Operand, is_right: bool) -> Node:
    kind = common_dtype(rows, values)
    if kind == "bool":
        raise ModelError("truth values are not searched for", hint="convert them to integers")
    sought = operand(values, kind)
    found = search.search_sorted(converted(rows, kind), sought, right=is_right)
    return reshaped(converted(found, node.dtype()), node.dims())
