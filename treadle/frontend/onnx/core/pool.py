# SPDX-License-Identifier: Apache-2.0
"""Converters of pools over windows and over whole images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.expr.nodes import convert, maximum, minimum
from treadle.frontend.builders.basic import broadcast, dims_of, scalar_like
from treadle.frontend.onnx.core.window import Window, padded_window, read_kernel, read_window
from treadle.frontend.onnx.node import OnnxNode, Result, converter
from treadle.graph.nodes import Node, TupleItem
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import elementwise, pool
from treadle.ops import reduce as reductions


def _window(node: OnnxNode) -> Window:
    return read_window(node, read_kernel(node, None), node.dims(0)[2:])


def _out_sizes(node: OnnxNode, window: Window) -> tuple[Dim, ...]:
    """Return how many windows there are; empty where it is as many as fit.

    In ceil mode the last window may hang over the padded end, but starts inside the data or the pad
    before it.
    """
    if not node.flag("ceil_mode"):
        return _overhanging(node, window)
    sizes: list[Dim] = []
    for k, d in enumerate(node.dims(0)[2:]):
        stride, start = window.strides[k], convert(d) + window.before[k]
        span = start + window.after[k] - window.extents[k]
        count = minimum((span + (stride - 1)) // stride + 1, (start + (stride - 1)) // stride)
        sizes.append(normal_size(maximum(count, 0)))
    return tuple(sizes)


def _overhanging(node: OnnxNode, window: Window) -> tuple[Dim, ...]:
    """Return how many windows there are where one is larger than its padded axis; else empty.

    ONNX's shape inference rounds the quotient towards zero: one window hangs over an axis that
    lacks less than a stride, none is on one that lacks less than two.
    """
    sizes: list[Dim] = []
    missing = False
    for k, d in enumerate(node.dims(0)[2:]):
        stride = window.strides[k]
        span = d + window.before[k] + window.after[k] - window.extents[k]
        lacks = isinstance(span, int) and span < 0
        missing = missing or lacks
        sizes.append(normal_size(1 - -span // stride if lacks else span // stride + 1))
    if any(isinstance(d, int) and d < 0 for d in sizes):
        raise ModelError(
            f"a window of {list(window.extents)} does not fit into {node.type(0)}",
            hint="check kernel_shape, dilations and pads",
        )
    return tuple(sizes) if missing else ()


@converter("MaxPool", since=(1, 8, 10, 11, 12, 22))
def max_pool(node: OnnxNode) -> Result:
    """Convert a pool of the largest value, and of its position where that is wanted."""
    x, window = node.input(0), _window(node) if node.wants(1) else None
    if window is None:
        low = float(dt.min_value(node.type(0).dtype))
        x, window = padded_window(node, x, read_kernel(node, None), low)
    attrs: dict[str, object] = {
        "kernel": window.kernel,
        "strides": window.strides,
        "pads_before": window.before,
        "pads_after": window.after,
        "dilations": window.dilations,
        "out_sizes": _out_sizes(node, window),
    }
    column_major = node.flag("storage_order") if node.version >= 8 else False
    if not node.wants(1):
        return pool.max_pool.call(pool.max_pool.make_attrs(attrs), [x])
    indexed = pool.max_pool_indices.make_attrs({**attrs, "column_major": column_major})
    both = pool.max_pool_indices.call(indexed, [x])
    return [TupleItem.of(both, k) for k in range(2)]


@converter("AveragePool", since=(1, 7, 10, 11, 19, 22))
def average_pool(node: OnnxNode) -> Node:
    """Convert a pool of the mean; the padding counts only with `count_include_pad`."""
    return _average(node, node.input(0), node.flag("count_include_pad"))


def _average(node: OnnxNode, x: Node, include_pad: bool) -> Node:
    data, window = padded_window(node, x, read_kernel(node, None), 0.0)
    if data is x:
        return _mean(x, window, _out_sizes(node, window), include_pad)
    means = _mean(data, window, (), include_pad)
    if include_pad:
        return means
    # The padding of each run is data here: the share of every window that is none divides again.
    spatial = (1, 1, *dims_of(x)[2:])
    inside, _ = padded_window(node, broadcast(scalar_like(1.0, x), spatial), window.kernel, 0.0)
    return elementwise.divide(means, _mean(inside, window, (), include_pad))


def _mean(x: Node, window: Window, out_sizes: Sequence[Dim], include_pad: bool) -> Node:
    return pool.avg_pool(
        x,
        kernel=window.kernel,
        strides=window.strides,
        pads_before=window.before,
        pads_after=window.after,
        dilations=window.dilations,
        out_sizes=tuple(out_sizes),
        count_include_pad=include_pad,
    )


@converter("LpPool", since=(1, 2, 11, 18, 22))
def lp_pool(node: OnnxNode) -> Node:
    """Convert a pool of the p-norm, as the root of a mean of powers."""
    p = _norm_order(node)
    window = _window(node)
    sizes = known_sizes(_out_sizes(node, window))
    after = window.after
    if sizes:  # in ceil mode: zeros up to the end of the last window
        spans = zip(sizes, window.strides, window.extents, strict=True)
        ends = [(count - 1) * stride + extent for count, stride, extent in spans]
        spatial = known_sizes(node.dims(0)[2:])
        starts = zip(spatial, window.before, strict=True)
        after = tuple(max(e - d - b, 0) for e, (d, b) in zip(ends, starts, strict=True))
    means = pool.avg_pool(
        _power(elementwise.abs(node.input(0)), p),
        kernel=window.kernel,
        strides=window.strides,
        pads_before=window.before,
        pads_after=after,
        dilations=window.dilations,
        count_include_pad=True,
    )
    total = elementwise.multiply(means, scalar_like(prod(window.kernel), means))
    return _power(total, 1.0 / p)


@converter("GlobalAveragePool", since=(1, 22))
def global_average_pool(node: OnnxNode) -> Node:
    """Convert the mean of every channel."""
    return reductions.mean(node.input(0), axes=_spatial(node), keepdims=True)


@converter("GlobalMaxPool", since=(1, 22))
def global_max_pool(node: OnnxNode) -> Node:
    """Convert the maximum of every channel."""
    return reductions.max_(node.input(0), axes=_spatial(node), keepdims=True)


@converter("GlobalLpPool", since=(1, 2, 22))
def global_lp_pool(node: OnnxNode) -> Node:
    """Convert the p-norm of every channel."""
    p = _norm_order(node)
    powers = _power(elementwise.abs(node.input(0)), p)
    return _power(reductions.sum_(powers, axes=_spatial(node), keepdims=True), 1.0 / p)


def _norm_order(node: OnnxNode) -> float:
    p = node.number("p", 2.0) if node.version == 1 else float(node.integer("p", 2))
    if p < 1:
        raise ModelError(f"the p of {node.op} is {p}, at least 1 is needed")
    return p


def _power(x: Node, p: float) -> Node:
    if p == 1.0:
        return x
    if p == 2.0:
        return elementwise.multiply(x, x)
    return elementwise.sqrt(x) if p == 0.5 else elementwise.power(x, scalar_like(p, x))


def _spatial(node: OnnxNode) -> tuple[int, ...]:
    if node.type(0).ndim < 3:
        raise ModelError(f"{node.op} takes data [n, c, ...], not {node.type(0)}")
    return tuple(range(2, node.type(0).ndim))
