# SPDX-License-Identifier: Apache-2.0
"""Builders of statistics of order: an element by its rank, the most frequent one."""

from __future__ import annotations

from treadle import dtype as dt
from treadle.expr.intervals import FAR
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import concatenated, sliced
from treadle.frontend.builders.reduce import extreme_index, total
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Node, TupleItem
from treadle.ops import elementwise as ew
from treadle.ops import indexing, running_extremes, sort


def ascending(x: Node, axis: int) -> tuple[Node, Node]:
    """Return an axis in ascending order, NaN last, and where its elements were."""
    both = sort.topk(x, k=dims_of(x)[axis], axis=axis, largest=False)
    return TupleItem.of(both, 0), TupleItem.of(both, 1)


def kth_smallest(x: Node, k: int, axis: int) -> tuple[Node, Node]:
    """Return the k-th smallest element along an axis, which stays with extent 1; where it is."""
    both = sort.topk(x, k=k, axis=axis, largest=False)
    last = [AxisRange(axis, k - 1, k)]
    return sliced(TupleItem.of(both, 0), last), sliced(TupleItem.of(both, 1), last)


def running_extreme(x: Node, axis: int, *, is_largest: bool) -> tuple[Node, Node]:
    """Return the largest or smallest elements so far along an axis, and where they are."""
    both = running_extremes.running_extreme(x, axis=axis, largest=is_largest)
    return TupleItem.of(both, 0), TupleItem.of(both, 1)


def median(x: Node, axis: int, *, skips_nan: bool) -> tuple[Node, Node]:
    """Return the lower median along an axis, which stays with extent 1, and where it is.

    A NaN makes the median NaN, or is left out with `skips_nan`.
    """
    values, places = ascending(x, axis)
    extent = sizes_node((dims_of(x)[axis],), ())
    one, two = scalar_like(1, extent), scalar_like(2, extent)
    if not dt.is_float(element_type(x)):
        rank = ew.divide(ew.subtract(extent, one), two)
        return _at_rank(values, places, _one_per_row(rank, x, axis), axis)
    missing = total(converted(ew.isnan(x), "int64"), (axis,), True)
    left = ew.subtract(extent, missing)
    middle = ew.divide(ew.maximum(ew.subtract(left, one), scalar_like(0, left)), two)
    if skips_nan:
        return _at_rank(values, places, middle, axis)
    is_whole = ew.equal(missing, scalar_like(0, missing))
    return _at_rank(values, places, ew.where(is_whole, middle, left), axis)


def _one_per_row(rank: Node, x: Node, axis: int) -> Node:
    return broadcast(rank, [1 if k == axis else d for k, d in enumerate(dims_of(x))])


def _at_rank(values: Node, places: Node, rank: Node, axis: int) -> tuple[Node, Node]:
    found = tuple(indexing.gather_elements(v, rank, axis=axis) for v in (values, places))
    return found[0], found[1]


def mode(x: Node, axis: int) -> tuple[Node, Node]:
    """Return the most frequent element along an axis, which stays with extent 1; where it is last.

    Of several that are equally frequent it is the smallest. In ascending order the place of an
    element in its run of equal ones says how many there are up to it.
    """
    values, places = ascending(x, axis)
    extent = dims_of(x)[axis]
    begins = ew.not_equal(_part(values, axis, 1, FAR), _part(values, axis, 0, -1))
    wide = [extent if k == axis else 1 for k in range(len(dims_of(x)))]
    numbers = broadcast(reshaped(counted(extent), wide), dims_of(x))
    later = ew.where(begins, _part(numbers, axis, 1, FAR), scalar_like(0, numbers))
    starts = concatenated([_part(numbers, axis, 0, 1), later], axis)
    first, _ = running_extreme(starts, axis, is_largest=True)
    rank = extreme_index(ew.subtract(numbers, first), axis, is_largest=True, keepdims=True)
    return _at_rank(values, places, rank, axis)


def _part(x: Node, axis: int, begin: int, end: int) -> Node:
    return sliced(x, [AxisRange(axis, begin, end)])
