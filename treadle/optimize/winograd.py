# SPDX-License-Identifier: Apache-2.0
"""Which convolutions run by Winograd's filtering, with which tile, and their weights.

Both ways are estimated in cycles of one core and the cheaper one is taken. What the estimate knows:
the fused multiply-adds of the register tiles, remainders included; the vectors the transforms
touch; and that weights are read from memory once per run, which only the first of several passes
over a panel of them can hide. Winograd has up to four times the weights, so it loses on small
images with many channels.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from treadle.graph.types import TensorType
from treadle.ops.conv import ConvAttrs
from treadle.ops.conv_winograd import KERNEL, POINTS, filter_matrix, missing
from treadle.ops.schedules.tiles import best_window_tile, image_cycles
from treadle.ops.schedules.winograd import BYTES_PER_CYCLE, WinogradShape, plan_winograd
from treadle.settings import get
from treadle.target.base import Target

WORTHWHILE = {2: 1.0, 4: 0.9}
"""The share of the direct way's cycles that a tile may take: more must be gained for a larger
rounding error."""


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
    if not _is_possible(attrs, data, weights) or min(_outputs(attrs, data)) < 1:
        return {None: 0.0}
    height, width = _outputs(attrs, data)
    n, channels = (d if isinstance(d, int) else 1 for d in data.shape[:2])
    filters = weights.static_shape[0]
    inputs, outputs = ceil(channels / block) * block, ceil(filters / block) * block
    registers = max(1, block // target.lanes())
    costs: dict[int | None, float] = {
        None: _direct((n, height, width), inputs, outputs, block, target)
    }
    for tile in POINTS:
        down, across = ceil(height / tile), ceil(width / tile)
        shape = WinogradShape(tile, down, across, inputs, outputs, block, n)
        cycles = plan_winograd(shape, target, width=registers).cycles
        costs[tile] = cycles / WORTHWHILE[tile]
    return costs


def why_winograd(
    attrs: ConvAttrs, data: TensorType, weights: TensorType, block: int, target: Target
) -> str:
    """Return in words what `winograd_tile` decides by."""
    if data.dtype != "float32" or weights.static_shape[2:] != (KERNEL, KERNEL):
        return f"Winograd's filtering is for float32 and windows of {KERNEL}x{KERNEL}"
    if not _is_possible(attrs, data, weights):
        return "Winograd's filtering is for known images and strides, dilations and groups of 1"
    costs = winograd_costs(attrs, data, weights, block, target)
    cycles = [f"direct {costs[None] / 1e3:.0f}"]
    cycles += [
        f"F({t}x{t},3x3) {c * WORTHWHILE[t] / 1e3:.0f}" for t, c in costs.items() if t is not None
    ]
    allowed = "" if get().winograd else "; Winograd is switched off"
    return f"estimated thousands of cycles: {', '.join(cycles)}{allowed}"


def _is_possible(attrs: ConvAttrs, data: TensorType, weights: TensorType) -> bool:
    steps = (*attrs.strides, *attrs.dilations, attrs.groups)
    kernel = weights.static_shape[2:]
    is_known = all(isinstance(d, int) for d in data.shape[1:])
    is_plain = kernel == (KERNEL, KERNEL) and all(s == 1 for s in steps)
    return data.dtype == "float32" and is_known and is_plain


def _outputs(attrs: ConvAttrs, data: TensorType) -> tuple[int, int]:
    before, after = attrs.pads_before or (0, 0), attrs.pads_after or (0, 0)
    high, wide = data.with_shape(data.shape[2:]).static_shape
    return (
        high + before[0] + after[0] - KERNEL + 1,
        wide + before[1] + after[1] - KERNEL + 1,
    )


def _direct(
    image: tuple[int, int, int], inputs: int, outputs: int, block: int, target: Target
) -> float:
    n, height, width = image
    registers = max(1, block // target.lanes())
    chunks = outputs // block
    tile = best_window_tile(height, width, chunks, target, registers=registers)
    cycles = n * inputs * KERNEL**2 * image_cycles((height, width, chunks), tile, registers)
    reading = 4 * inputs * outputs * KERNEL**2 / BYTES_PER_CYCLE
    first = cycles * tile.high * tile.wide / (n * height * width)
    return cycles + max(0.0, reading - first)


def winograd_pads(attrs: ConvAttrs, data: TensorType, tile: int) -> tuple[int, int]:
    """Return the padding after the image that fills whole tiles."""
    after = attrs.pads_after or (0, 0)
    high, wide = _outputs(attrs, data)
    return after[0] + missing(high, tile), after[1] + missing(wide, tile)


def winograd_outputs(attrs: ConvAttrs, data: TensorType) -> tuple[int, int]:
    """Return the height and width of the result."""
    return _outputs(attrs, data)


def transform_weights(w: np.ndarray, tile: int) -> np.ndarray:
    """Return weights [oc, ic, 3, 3, ib, ob] as [oc, t+2, t+2, ic, ib, ob]: rounded once."""
    matrix = filter_matrix(tile)
    both = np.kron(matrix, matrix)  # [(t+2)^2, 9]
    oc, ic, kh, kw, ib, ob = w.shape
    result = np.empty((oc, tile + 2, tile + 2, ic, ib, ob), w.dtype)
    for made, filters in zip(result, w, strict=True):
        taps = filters.transpose(1, 2, 0, 3, 4).reshape(kh * kw, -1).astype(np.float64)
        made[...] = (both @ taps).reshape(made.shape)
    return result
