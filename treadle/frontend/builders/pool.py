# SPDX-License-Identifier: Apache-2.0
"""Builders of pools: over windows, with as many windows as wanted, over whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.expr.nodes import convert, maximum, minimum
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.reduce import extreme_index
from treadle.frontend.builders.windows import Window, padded_where_symbolic, window_of
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.graph.types import Dim, known_sizes, normal_size, same_dim, tensor_type
from treadle.ops import elementwise, indexing, pool
from treadle.ops import reduce as reductions


def max_pooled(x: Node, window: Window, *, ceil_mode: bool = False) -> Node:
    """Return the largest element of every window of x [n, c, ...]; padding never is."""
    low = float(dt.min_value(tensor_type(x.type).dtype))
    data, inner = padded_where_symbolic(x, window, low)
    return pool.max_pool.call(_attributes(data, inner, ceil_mode and data is x), [data])


def max_pooled_with_indices(
    x: Node, window: Window, *, ceil_mode: bool = False, column_major: bool = False
) -> tuple[Node, Node]:
    """Return the largest element of every window, and its position in the whole of x.

    Raises: TypeMismatch when the padding depends on a symbolic size.
    """
    plain = _attributes(x, window, ceil_mode)
    attrs = pool.MaxPoolIndicesAttrs(
        plain.kernel,
        plain.strides,
        plain.pads_before,
        plain.pads_after,
        plain.dilations,
        plain.out_sizes,
        column_major,
    )
    both = pool.max_pool_indices.call(attrs, [x])
    return TupleItem.of(both, 0), TupleItem.of(both, 1)


def average_pooled(
    x: Node, window: Window, *, ceil_mode: bool = False, count_include_pad: bool = False
) -> Node:
    """Return the mean of every window of x [n, c, ...], of its padding too if that counts."""
    data, inner = padded_where_symbolic(x, window, 0.0)
    if data is x:
        return _mean(x, window, ceil_mode, count_include_pad)
    means = _mean(data, inner, False, count_include_pad)
    if count_include_pad:
        return means
    # The padding of each run is data here: the share of every window that is none divides again.
    ones = broadcast(scalar_like(1.0, x), (1, 1, *dims_of(x)[2:]))
    inside, _ = padded_where_symbolic(ones, window, 0.0)
    return elementwise.divide(means, _mean(inside, inner, False, count_include_pad))


def _mean(x: Node, window: Window, ceil_mode: bool, count_include_pad: bool) -> Node:
    attrs = replace(_attributes(x, window, ceil_mode), count_include_pad=count_include_pad)
    return pool.avg_pool.call(attrs, [x])


def lp_pooled(x: Node, window: Window, p: float, *, ceil_mode: bool = False) -> Node:
    """Return the p-norm of every window, as the root of a mean of powers."""
    before, after = window.known_pads
    sizes = known_sizes(_out_sizes(x, window, ceil_mode))
    if sizes:  # in ceil mode: zeros up to the end of the last window
        spans = zip(sizes, window.strides, window.extents, strict=True)
        ends = [(count - 1) * stride + extent for count, stride, extent in spans]
        starts = zip(known_sizes(dims_of(x)[2:]), before, strict=True)
        after = tuple(max(e - d - b, 0) for e, (d, b) in zip(ends, starts, strict=True))
    means = pool.avg_pool(
        power(elementwise.abs(x), p),
        kernel=window.kernel,
        strides=window.strides,
        pads_before=before,
        pads_after=after,
        dilations=window.dilations,
        count_include_pad=True,
    )
    total = elementwise.multiply(means, scalar_like(prod(window.kernel), means))
    return power(total, 1.0 / p)


def global_average_pooled(x: Node) -> Node:
    """Return the mean of every channel of x [n, c, ...] as [n, c, 1, ...]."""
    return reductions.mean(x, axes=_spatial(x), keepdims=True)


def global_max_pooled(x: Node) -> Node:
    """Return the largest element of every channel of x [n, c, ...] as [n, c, 1, ...]."""
    return reductions.max_(x, axes=_spatial(x), keepdims=True)


def global_lp_pooled(x: Node, p: float) -> Node:
    """Return the p-norm of every channel of x [n, c, ...] as [n, c, 1, ...]."""
    powers = power(elementwise.abs(x), p)
    return power(reductions.sum_(powers, axes=_spatial(x), keepdims=True), 1.0 / p)


def power(x: Node, p: float) -> Node:
    """Return x to the power of a number, by cheaper operators where there are any."""
    if p == 1.0:
        return x
    if p == 2.0:
        return elementwise.multiply(x, x)
    return elementwise.sqrt(x) if p == 0.5 else elementwise.power(x, scalar_like(p, x))


def _spatial(x: Node) -> tuple[int, ...]:
    ndim = len(dims_of(x))
    if ndim < 3:
        raise ModelError(f"a pool takes data [n, c, ...], not {x.type}")
    return tuple(range(2, ndim))


def adaptive_average_pooled(x: Node, sizes: Sequence[Dim]) -> Node:
    """Return x [n, c, ...] as the means of `sizes` windows per axis, which cover it evenly.

    Of n windows over d elements, number k spans those from floor(k * d / n) to before
    ceil((k + 1) * d / n), as PyTorch has it.
    """
    if all(same_dim(size, 1) for size in sizes):
        return global_average_pooled(x)
    window = _even_window(x, sizes)
    if window is not None:
        return average_pooled(x, window)
    return _reduced_by_windows(x, sizes, _mean_inside)


def adaptive_max_pooled(x: Node, sizes: Sequence[Dim]) -> Node:
    """Return x [n, c, ...] as the maxima of `sizes` windows per axis, which cover it evenly."""
    if all(same_dim(size, 1) for size in sizes):
        return global_max_pooled(x)
    window = _even_window(x, sizes)
    if window is not None:
        return max_pooled(x, window)
    return _reduced_by_windows(x, sizes, lambda rows, _, axis: reductions.max_(rows, axes=(axis,)))


def adaptive_max_places(x: Node, sizes: Sequence[int]) -> Node:
    """Return where the largest elements of `adaptive_max_pooled` are first within a channel.

    x [n, c, ...] gives int64[n, c, *sizes]: row-major places among the spatial axes.
    """
    spatial = known_sizes(dims_of(x)[2:])
    windows = [_known_windows(d, n)[0] for d, n in zip(spatial, sizes, strict=True)]
    rank, count = len(sizes), [w.shape[1] for w in windows]
    at = np.zeros([*sizes, *count], np.int64)
    for k, places in enumerate(windows):
        shape = [1] * (2 * rank)
        shape[k], shape[rank + k] = places.shape
        at = at * spatial[k] + places.reshape(shape)
    inside = at.reshape(*sizes, prod(count))
    lead = dims_of(x)[:2]
    flat = reshaped(x, (*lead, prod(spatial)))
    elements = indexing.gather(flat, Constant.of(inside), axis=2)
    axis = rank + 2
    first = extreme_index(elements, axis, is_largest=True, keepdims=True)
    whole = broadcast(Constant.of(inside), (*lead, *inside.shape))
    found = indexing.gather_elements(whole, first, axis=axis)
    return reshaped(found, (*lead, *sizes))


def elements_inside(x: Node, window: Window, sizes: Sequence[Dim]) -> np.ndarray:
    """Return float64[*sizes]: how many elements of x [n, c, ...] each of so many windows covers."""
    counts = np.ones(())
    before, _ = window.known_pads
    for k, (count, d) in enumerate(
        zip(known_sizes(sizes), known_sizes(dims_of(x)[2:]), strict=True)
    ):
        steps = np.arange(window.kernel[k]) * window.dilations[k] - before[k]
        places = np.arange(count)[:, None] * window.strides[k] + steps
        counts = counts[..., None] * ((places >= 0) & (places < d)).sum(1)
    return counts


def _reduced_by_windows(
    x: Node, sizes: Sequence[Dim], reduce: Callable[[Node, _Windows, int], Node]
) -> Node:
    """Return x [n, c, ...] with each axis reduced to as many overlapping windows as `sizes` says.

    `reduce` gets the windows of one axis as elements along the axis after it, what is known of
    them, and that axis; it returns the data without it.
    """
    for axis, size in enumerate(sizes, start=2):
        windows = _adaptive_windows(dims_of(x)[axis], size)
        x = reduce(indexing.gather(x, windows.places, axis=axis), windows, axis + 1)
    return x


def _mean_inside(rows: Node, windows: _Windows, axis: int) -> Node:
    """Return the means along `axis` of the elements that count."""
    count, most = dims_of(windows.places)
    behind = (1,) * (len(dims_of(rows)) - axis - 1)
    inside = reshaped(windows.inside, (count, most, *behind))
    total = reductions.sum_(elementwise.where(inside, rows, scalar_like(0, rows)), axes=(axis,))
    counts = converted(reshaped(windows.counts, (count, *behind)), tensor_type(rows.type).dtype)
    return elementwise.divide(total, counts)


def _even_window(x: Node, sizes: Sequence[Dim]) -> Window | None:
    """Return the window of which there are `sizes` side by side; None where they overlap."""
    spatial = dims_of(x)[2:]
    if len(spatial) != len(sizes) or any(isinstance(n, int) and n < 1 for n in sizes):
        raise ModelError(f"{list(sizes)} windows do not fit {x.type}")
    if not all(isinstance(d, int) for d in (*spatial, *sizes)):
        return None
    if any(d % n for d, n in zip(known_sizes(spatial), known_sizes(sizes), strict=True)):
        return None
    kernel = [d // n for d, n in zip(known_sizes(spatial), known_sizes(sizes), strict=True)]
    return window_of(kernel, strides=kernel) if all(kernel) else None


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows that cover an axis evenly.

    `places` are int64[count, most], the elements of each, the last one repeated, `inside` bool:
    which are no repetitions, `counts` int64[count]: how many those are.
    """

    places: Node
    inside: Node
    counts: Node


def _adaptive_windows(extent: Dim, count: Dim) -> _Windows:
    """Return the windows of an axis, of which a run may decide both extents."""
    if isinstance(extent, int) and isinstance(count, int):
        known, are_inside = _known_windows(extent, count)
        return _Windows(*map(Constant.of, (known, are_inside, are_inside.sum(1))))
    whole, parts, one = (sizes_node((d,), ()) for d in (extent, count, 1))
    start = elementwise.divide(elementwise.multiply(counted(count), whole), parts)
    passed = elementwise.multiply(counted(count, 1), whole)
    end = elementwise.divide(elementwise.add(passed, elementwise.subtract(parts, one)), parts)
    first, last = (reshaped(v, (count, 1)) for v in (start, elementwise.subtract(end, one)))
    most = normal_size((convert(extent) + count - 1) // maximum(count, 1) + 1)
    places = elementwise.add(first, counted(most))
    counts = elementwise.add(elementwise.subtract(last, first), one)
    inside = elementwise.less_equal(places, last)
    return _Windows(elementwise.minimum(places, last), inside, reshaped(counts, (count,)))


def _known_windows(extent: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int64[count, most]: the elements of each window, the last repeated, and bool: which
    are no repetitions."""
    if extent < 1:
        raise ModelError("an adaptive pool over no elements is not defined")
    numbers = np.arange(count)
    first, end = numbers * extent // count, -(-(numbers + 1) * extent // count)
    places = first[:, None] + np.arange((end - first).max())
    return np.minimum(places, end[:, None] - 1), places < end[:, None]


def _attributes(x: Node, window: Window, ceil_mode: bool) -> pool.PoolAttrs:
    """Return the attributes of a pool of `x`."""
    before, after = window.known_pads
    sizes = _out_sizes(x, window, ceil_mode)
    return pool.PoolAttrs(window.kernel, window.strides, before, after, window.dilations, sizes)


def _out_sizes(x: Node, window: Window, ceil_mode: bool) -> tuple[Dim, ...]:
    """Return how many windows there are; empty where it is as many as fit.

    In ceil mode the last window may hang over the padded end, but starts inside the data or the pad
    before it.
    """
    if not ceil_mode:
        return _overhanging(x, window)
    sizes: list[Dim] = []
    for k, d in enumerate(dims_of(x)[2:]):
        stride, start = window.strides[k], convert(d) + window.before[k]
        span = start + window.after[k] - window.extents[k]
        count = minimum((span + (stride - 1)) // stride + 1, (start + (stride - 1)) // stride)
        sizes.append(normal_size(maximum(count, 0)))
    return tuple(sizes)


def _overhanging(x: Node, window: Window) -> tuple[Dim, ...]:
    """Return how many windows there are where one is larger than its padded axis; else empty.

    ONNX's shape inference rounds the quotient towards zero: one window hangs over an axis that
    lacks less than a stride, none is on one that lacks less than two.
    """
    sizes: list[Dim] = []
    missing = False
    for k, d in enumerate(dims_of(x)[2:]):
        stride = window.strides[k]
        span = d + window.before[k] + window.after[k] - window.extents[k]
        lacks = isinstance(span, int) and span < 0
        missing = missing or lacks
        sizes.append(normal_size(1 - -span // stride if lacks else span // stride + 1))
    if any(isinstance(d, int) and d < 0 for d in sizes):
        raise ModelError(
            f"a window of {list(window.extents)} does not fit into {x.type}",
            hint="check the kernel's shape, dilations and pads",
        )
    return tuple(sizes) if missing else ()
