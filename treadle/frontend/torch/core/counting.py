# SPDX-License-Identifier: Apache-2.0
"""Converters of counts of values and of what falls between edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle import dtype as dt
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import sliced
from treadle.frontend.builders.reduce import largest, smallest, total
from treadle.frontend.builders.selection import flat
from treadle.frontend.torch.node import AtenNode, aten, operand
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes
from treadle.ops import elementwise as ew
from treadle.ops import scatter, search


def _counted(places: Node, size: Dim, weights: Node) -> Node:
    """Return for each place below `size` the sum of the weights with that place; others count
    nowhere."""
    none = broadcast(scalar_like(0, weights), (size,))
    each = broadcast(weights, dims_of(places))
    return scatter.scatter_elements(none, places, each, axis=0, reduction="add")


@aten("bincount")
def bincount(node: AtenNode, x: Node, weights: Node | None = None, minlength: int = 0) -> Node:
    """Convert how often each number from 0 to the largest is there, or the sum of its weights."""
    places = converted(x, "int64")
    each = scalar_like(1, places) if weights is None else converted(weights, node.dtype())
    size: Dim = minlength
    if dims_of(x) != (0,):
        needed = ew.add(largest(places, (0,), False), scalar_like(1, places))
        size = node.measure(ew.maximum(needed, scalar_like(minlength, places)))
    node.bind_dims((size,))
    return _counted(places, size, each)


@aten("histc")
def histc(node: AtenNode, x: Node, bins: int = 100, min: float = 0, max: float = 0) -> Node:
    """Convert counts of the elements in `bins` equal parts of a range, by default their own."""
    kind = node.dtype()
    wide = "float64" if dt.bits(kind) > 32 else "float32"
    data = converted(flat(x), wide)
    low, high = _range(data, min, max, margin=1)
    places = _equal_parts(data, low, high, bins)
    return converted(_counted(places, bins, operand(1, wide)), kind)


def _range(x: Node, low: float, high: float, margin: float) -> tuple[Node, Node]:
    """Return the ends of a range; if it is empty those of the data, or around them if they meet."""
    kind = element_type(x)
    if low != high:
        return operand(low, kind), operand(high, kind)
    if dims_of(x) == (0,):
        return operand(low, kind), operand(low + 1, kind)
    first, last = smallest(x, (0,), False), largest(x, (0,), False)
    one, is_point = scalar_like(margin, x), ew.equal(first, last)
    begin = ew.where(is_point, ew.subtract(first, one), first)
    return begin, ew.where(is_point, ew.add(last, one), last)


def _equal_parts(x: Node, low: Node, high: Node, bins: int) -> Node:
    """Return the number of the part of a range that each element is in; -1 - bins outside of it."""
    share = ew.divide(ew.subtract(x, low), ew.subtract(high, low))
    place = converted(ew.floor(ew.multiply(share, scalar_like(bins, x))), "int64")
    inside = ew.logical_and(ew.greater_equal(x, low), ew.less_equal(x, high))
    last = ew.minimum(place, scalar_like(bins - 1, place))
    return ew.where(inside, last, scalar_like(bins, place))


@aten("histogram.bin_ct")
def histogram(
    node: AtenNode,
    x: Node,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Node | None = None,
    density: bool = False,
) -> list[Node]:
    """Convert counts, or sums of weights, in equal parts of a range, and their edges."""
    data = flat(x)
    begin, end = range or (0, 0)
    low, high = _range(data, begin, end, margin=0.5)
    steps = Constant.of(np.linspace(0, 1, bins + 1), element_type(x))
    back = Constant.of(1 - np.linspace(0, 1, bins + 1), element_type(x))
    edges = ew.add(ew.multiply(back, low), ew.multiply(steps, high))
    return [_between(data, edges, bins, weight, density), edges]


@aten("histogram.bins_tensor")
def histogram_of_edges(
    node: AtenNode, x: Node, edges: Node, *, weight: Node | None = None, density: bool = False
) -> list[Node]:
    """Convert counts, or sums of weights, between edges, and those."""
    (count,) = known_sizes(dims_of(edges), "the number of edges")
    return [_between(flat(x), edges, count - 1, weight, density), edges]


def _between(x: Node, edges: Node, bins: int, weight: Node | None, density: bool) -> Node:
    """Return the sums of weights between edges; the last edge belongs to the last part."""
    found = search.search_sorted(edges, x, right=True)
    one = scalar_like(1, found)
    last = reshaped(sliced(edges, [AxisRange(0, bins, bins + 1)]), ())
    place = ew.subtract(ew.where(ew.equal(x, last), ew.subtract(found, one), found), one)
    outside = ew.less(place, scalar_like(0, place))
    place = ew.where(outside, scalar_like(bins, place), place)
    each = scalar_like(1, edges) if weight is None else flat(converted(weight, element_type(edges)))
    sums = _counted(place, bins, each)
    if not density:
        return sums
    later, before = (sliced(edges, [AxisRange(0, k, k + bins)]) for k in (1, 0))
    whole = ew.multiply(total(sums, (0,), False), ew.subtract(later, before))
    return ew.divide(sums, whole)
