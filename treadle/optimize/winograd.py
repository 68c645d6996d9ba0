# SPDX-License-Identifier: Apache-2.0
"""Which convolutions run by Winograd's filtering, with which tile, and their weights.

Both ways are estimated in cycles of one core and the cheaper one is taken. What the estimate knows:
the fused multiply-adds of the register tiles, remainders included; the vectors the transforms
touch; and that weights are read from memory once per run, which only the first of several passes
over a panel of them can hide. Winograd has up to four times the weights, so it loses on small
images with many channels.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

import numpy as np

from treadle.cost.memory import memory_bytes_per_cycle, weight_cycles
from treadle.cost.registers import Taps, image_cycles
from treadle.graph.types import TensorType, known_sizes
from treadle.ops.conv import ConvAttrs, conv_axes
from treadle.ops.lowered.conv_winograd import (
    KERNEL,
    TILES,
    WinogradAttrs,
    filter_matrix,
    padded_extent,
    taps_of_phase,
    tiles_along,
)
from treadle.ops.schedules.tiles import best_window_tile
from treadle.ops.schedules.winograd import WinogradShape, plan_winograd
from treadle.settings import get
from treadle.target.base import Target

WORTHWHILE = {1: {2: 1.0, 3: 0.9, 4: 0.9}, 2: {2: 1.0, 3: 0.95, 4: 0.95}}
"""The share of the direct way's cycles that a tile may take, by stride: more must be gained for a
larger rounding error, and for more weights."""


FEW_LIVE = 0.75
"""The share of taps that meet no padding below which the others are skipped."""


def winograd_tile(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, block: int, target: Target
) -> int | None:
    """Return the tile (2 or 4) with which a convolution runs best, None for the direct way."""
    costs = winograd_costs(attrs, data, weights, block, target)
    return min(costs, key=lambda tile: costs[tile]) if get().winograd else None


def winograd_costs(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, block: int, target: Target
) -> dict[int | None, float]:
    """Return the cycles of the direct way (None) and of every tile that can be used.

    Those of a tile are divided by its `WORTHWHILE`. A batch that is not known counts as 1.
    """
    if not _is_possible(attrs, data, weights) or min(_outputs(attrs, data, weights)) < 1:
        return {None: 0.0}
    *deep, height, width = _outputs(attrs, data, weights)
    n, channels = (d if isinstance(d, int) else 1 for d in data.shape[:2])
    filters, _, *kernel = weights.static_shape
    n *= prod(deep)
    groups = attrs.groups
    # A tap of the depth adds products like a channel.
    inputs = groups * ceil(channels / groups / block) * block * prod(kernel[:-2])
    outputs = groups * ceil(filters / groups / block) * block
    registers = max(1, block // target.lanes())
    unused = -(channels // groups) % block if data.ndim == 4 else 0  # the natural order
    costs: dict[int | None, float] = {
        None: groups
        * _direct(
            (n, height, width),
            (inputs // groups - unused, outputs // groups),
            block,
            target,
            taps_of(attrs, data, weights),
            whole=groups > 1,
        )
    }
    stride = _stride(attrs)
    for tile in TILES:
        gaps = _gaps(attrs)
        down, across = tiles_along(height, tile, gaps[0]), tiles_along(width, tile, gaps[1])
        parts = (inputs * stride**2, outputs, block)
        skipped = unused if groups == 1 else 0
        shape = WinogradShape(tile, down, across, *parts, n, gaps, stride, skipped, groups)
        cycles = plan_winograd(shape, target, width=registers).cycles
        costs[tile] = cycles / WORTHWHILE[stride][tile]
    return costs


def winograd_in_groups(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, merged: int, block: int, target: Target
) -> tuple[int, int] | None:
    """Return how many groups to take as one, and the tile, where that beats the direct way.

    That takes `merged` groups as one. Channels taken together fill whole blocks.
    """
    groups = attrs.groups
    filters, inputs, *kernel = weights.static_shape
    widths = inputs, filters // groups

    def costs_of(together: int) -> dict[int | None, float]:
        whole = TensorType((filters, inputs * together, *kernel), weights.dtype)
        return winograd_costs(replace(attrs, groups=groups // together), data, whole, block, target)

    direct = costs_of(merged)[None]
    found = {
        (together, tile): cost
        for together in range(1, groups + 1)
        if groups % together == 0 and all(w * together % block == 0 for w in widths)
        for tile, cost in costs_of(together).items()
        if tile is not None and cost < direct
    }
    return min(found, key=lambda key: found[key]) if found and get().winograd else None


def why_winograd(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, block: int, target: Target
) -> str:
    """Return in words what `winograd_tile` decides by."""
    if data.dtype != "float32" or weights.static_shape[-2:] != (KERNEL, KERNEL):
        return f"Winograd's filtering is for float32 and windows of {KERNEL}x{KERNEL}"
    if not _is_possible(attrs, data, weights):
        return "Winograd's filtering is for known images and strides of 1, or 2 by 2"
    costs = winograd_costs(attrs, data, weights, block, target)
    cycles = [f"direct {costs[None] / 1e3:.0f}"]
    worth = WORTHWHILE[_stride(attrs)]
    tiles = [(t, c * worth[t]) for t, c in costs.items() if t is not None]
    cycles += [f"F({t}x{t},3x3) {c / 1e3:.0f}" for t, c in tiles]
    allowed = "" if get().winograd else "; Winograd is switched off"
    return f"estimated thousands of cycles: {', '.join(cycles)}{allowed}"


def _is_possible(attrs: ConvAttrs, data: TensorType, weights: TensorType) -> bool:
    _, _, *kernel = weights.static_shape
    steps = attrs.strides[-2:]
    strided = data.ndim == 4 and steps == (2, 2) and _gaps(attrs) == (1, 1)
    is_dense = strided or all(s == 1 for s in steps)
    is_square = len(kernel) >= 2 and kernel[-2:] == [KERNEL, KERNEL]
    is_known = all(isinstance(d, int) for d in data.shape[1:])
    return (
        data.dtype == "float32"
        and is_known
        and is_square
        and is_dense
        and (data.ndim == 4 or attrs.groups == 1)
    )


def _gaps(attrs: ConvAttrs) -> tuple[int, int]:
    """Return how far apart the rows and the columns of a window are."""
    high, wide = attrs.dilations[-2:] or (1, 1)
    return high, wide


def _stride(attrs: ConvAttrs) -> int:
    return attrs.strides[-1] if attrs.strides else 1


def _outputs(attrs: ConvAttrs, data: TensorType, weights: TensorType) -> tuple[int, ...]:
    image = _image(data)
    axes = conv_axes(attrs, image, weights.static_shape[2:])
    spare = (a.before + a.after - a.extent for a in axes)
    sizes = zip(image, spare, axes, strict=True)
    return tuple((size + more) // a.stride + 1 for size, more, a in sizes)


def _image(data: TensorType) -> tuple[int, ...]:
    """Return the extents besides batch and channels."""
    return known_sizes(data.shape[2:])


def taps_of(attrs: ConvAttrs, data: TensorType, weights: TensorType) -> tuple[Taps, Taps] | None:
    """Return the taps of a window on an image; None where too few meet padding to skip those."""
    counts = weights.static_shape[2:]
    if len(counts) != 2 or not all(isinstance(d, int) for d in data.shape[2:]):
        return None
    sizes = _image(data)
    none, ones = (0, 0), (1, 1)
    before, after = attrs.pads_before or none, attrs.pads_after or none
    strides, gaps = attrs.strides or ones, attrs.dilations or ones
    high, wide = (Taps(counts[k], sizes[k], before[k], strides[k], gaps[k]) for k in (0, 1))
    outputs = [
        (sizes[k] + before[k] + after[k] - gaps[k] * (counts[k] - 1) - 1) // strides[k] + 1
        for k in (0, 1)
    ]
    share = prod(
        sum(t.live(i, 1) for i in range(n)) / max(1, n * t.count)
        for t, n in zip((high, wide), outputs, strict=True)
    )
    return (high, wide) if share < FEW_LIVE else None


def _direct(
    image: tuple[int, int, int],
    channels: tuple[int, int],
    block: int,
    target: Target,
    taps: tuple[Taps, Taps] | None,
    *,
    whole: bool,
) -> float:
    n, height, width = image
    inputs, outputs = channels
    registers = max(1, block // target.lanes())
    chunks = outputs // block
    reduction = inputs * KERNEL**2
    tile = best_window_tile(
        height, width, chunks, target, registers=registers, whole=whole, taps=taps,
        reduction=reduction,
    )  # fmt: skip
    wait = weight_cycles(reduction, tile.vectors * registers, target)
    steps = image_cycles((height, width, chunks), tile, registers, target, taps, wait)
    cycles = n * inputs * steps * (1 if taps is not None else KERNEL**2)
    reading = 4 * inputs * outputs * KERNEL**2 / memory_bytes_per_cycle(target)
    first = cycles * tile.high * tile.wide / (n * height * width)
    return cycles + max(0.0, reading - first)


def winograd_pads(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, tile: int
) -> tuple[int, ...]:
    """Return the padding after each axis, that of the image filled up to whole tiles."""
    none = (0,) * (data.ndim - 2)
    *deep, _, _ = attrs.pads_after or none
    before, gaps, stride = attrs.pads_before or none, _gaps(attrs), _stride(attrs)
    outputs, image = _outputs(attrs, data, weights)[-2:], _image(data)[-2:]
    whole = (padded_extent(n, tile, gap, stride) for n, gap in zip(outputs, gaps, strict=True))
    held = (size + first for size, first in zip(image, before[-2:], strict=True))
    return *deep, *(end - size for end, size in zip(whole, held, strict=True))


def winograd_attrs(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, tile: int
) -> WinogradAttrs:
    """Return the attributes of the filtering that stands for a convolution."""
    height, width = _outputs(attrs, data, weights)[-2:]
    gaps = _gaps(attrs)
    if data.ndim == 4:
        stride, groups = _stride(attrs), attrs.groups
        return WinogradAttrs(tile, height, width, dilations=gaps, stride=stride, groups=groups)
    strides, dilations = attrs.strides or (1,), attrs.dilations or (1,)
    return WinogradAttrs(tile, height, width, strides[0], dilations[0], gaps)


def transform_weights(w: np.ndarray, tile: int, stride: int = 1) -> np.ndarray:
    """Return weights [oc, ic, kd?, 3, 3, ib, ob] as [oc, p, p, stride^2 * ic * kd, ib, ob].

    p points: see `WinogradAttrs`. They are rounded once.
    """
    taps = taps_of_phase(stride)
    matrix = filter_matrix(tile, taps)
    both = np.kron(matrix, matrix)  # [points^2, taps^2]
    oc, *chunks, kh, kw, ib, ob = w.shape
    points = tile + taps - 1
    result = np.empty((oc, points**2, stride**2 * prod(chunks), ib * ob), w.dtype)
    missing = taps * stride - KERNEL
    for made, filters in zip(result, w.reshape(oc, -1, kh, kw, ib, ob), strict=True):
        full = np.pad(filters, [(0, 0), (0, missing), (0, missing), (0, 0), (0, 0)])
        split = full.reshape(-1, taps, stride, taps, stride, ib, ob).transpose(2, 4, 0, 1, 3, 5, 6)
        # A product per block of channels: BLAS is slow to share one wide product among threads.
        phases = split.astype(np.float64).reshape(-1, taps**2, ib * ob)
        made[...] = (both @ phases).transpose(1, 0, 2)
    return result.reshape(oc, points, points, -1, ib, ob)
