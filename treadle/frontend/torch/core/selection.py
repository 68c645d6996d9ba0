# SPDX-License-Identifier: Apache-2.0
"""Converters of selections whose size depends on data: what is not zero, chosen, or distinct."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders import selection
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    operands,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import concatenated, sliced
from treadle.frontend.builders.reduce import total
from treadle.frontend.torch.node import AtenNode, aten, operand
from treadle.graph.broadcasting import common_shape
from treadle.graph.nodes import Node, TupleItem
from treadle.graph.types import Dim, product_of
from treadle.ops import cumulative, search, select
from treadle.ops import elementwise as ew


@aten("nonzero")
def nonzero(node: AtenNode, x: Node) -> Node:
    """Convert the coordinates of what is not zero, one row per element."""
    found = transposed(selection.nonzero(x, node.measure), (1, 0))
    node.bind_dims(dims_of(found))
    return found


@aten("nonzero_static")
def nonzero_static(node: AtenNode, x: Node, *, size: int, fill_value: int = -1) -> Node:
    """Convert the coordinates of the first `size` elements that are not zero, and a filling."""
    both = select.nonzero(x)
    places, count = TupleItem.of(both, 0), TupleItem.of(both, 1)
    total = product_of(dims_of(x))
    lacking = max(size - total, 0) if isinstance(total, int) else size
    more = broadcast(operand(0, "int64"), (lacking,))
    first = sliced(concatenated([places, more], 0), [AxisRange(0, 0, size)])
    rows = transposed(select.unravel_index(first, shape=dims_of(x)), (1, 0))
    is_found = reshaped(ew.less(counted(size), count), (size, 1))
    return ew.where(*operands(is_found, rows, scalar_like(fill_value, rows)))


@aten("masked_select")
def masked_select(node: AtenNode, x: Node, mask: Node) -> Node:
    """Convert the elements where a mask holds, in row-major order."""
    whole = common_shape(dims_of(x), dims_of(mask))
    if whole is None:
        raise ModelError(f"a mask {mask.type} does not broadcast with {x.type}")
    data, wanted = (selection.flat(broadcast(v, whole)) for v in (x, mask))
    found = selection.compressed(data, wanted, 0, node.measure)
    node.bind_dims(dims_of(found))
    return found


@aten("_unique2")
def unique(
    node: AtenNode,
    x: Node,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Node | None]:
    """Convert the distinct elements in order; the number of each element; how many there are."""
    found = selection.distinct(selection.flat(x), 0, node.measure, ascending=True)
    values, _, inverse, counts = found
    results = [values, reshaped(inverse, dims_of(x)), counts]
    return _asked(node, results, [True, return_inverse, return_counts])


@aten("unique_dim")
def unique_slices(
    node: AtenNode,
    x: Node,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Node | None]:
    """Convert the distinct slices along an axis in order; the number of each; how many."""
    values, _, inverse, counts = selection.distinct(
        x, node.axis(dim, x), node.measure, ascending=True
    )
    return _asked(node, [values, inverse, counts], [True, return_inverse, return_counts])


def _asked(node: AtenNode, results: list[Node], wanted: list[bool]) -> list[Node | None]:
    """Return the results that are asked for; nobody reads the others."""
    for k, (result, is_wanted) in enumerate(zip(results, wanted, strict=True)):
        if is_wanted:
            node.bind_dims(dims_of(result), k)
    return [r if w else None for r, w in zip(results, wanted, strict=True)]


@aten("unique_consecutive")
def unique_consecutive(
    node: AtenNode,
    x: Node,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[Node | None]:
    """Convert slices that differ from the one before; where each is; how often each follows."""
    data, axis = (selection.flat(x), 0) if dim is None else (x, node.axis(dim, x))
    shape: tuple[Dim, ...] = dims_of(x) if dim is None else dims_of(x)[axis : axis + 1]
    values, inverse, counts = selection.runs(data, axis, node.measure)
    results = [values, reshaped(inverse, shape), converted(counts, "int64")]
    return _asked(node, results, [True, return_inverse, return_counts])


@aten("repeat_interleave.Tensor")
def repeated_numbers(node: AtenNode, repeats: Node, *, output_size: Dim | None = None) -> Node:
    """Convert numbers from 0 on, each as often as a vector says: [2, 0, 1] -> [0, 0, 2]."""
    times = converted(repeats, "int64")
    size = node.measure(total(times, (0,), False)) if output_size is None else output_size
    node.bind_dims((size,))
    places = counted(size)
    return converted(
        search.search_sorted(cumulative.cumsum(times, axis=0), places, right=True), node.dtype()
    )
