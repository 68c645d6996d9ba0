# SPDX-License-Identifier: Apache-2.0
"""Registers and cycles of tiles of depthwise convolutions.

A register holds one position of some channels. A step of the loops that remain loads the weights
of the taps written out in it and every input they meet once; all sums of the tile stay in
registers. With the whole window written out, the weights too stay from tile to tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.cost.registers import fma_cycles, load_cycles, parts_of, shuffle_cycles
from treadle.target.base import Target


@dataclass(frozen=True, slots=True)
class WindowTaps:
    """A window: its extents, by how many elements it moves along a row, how far apart taps are."""

    window: tuple[int, ...]
    stride: int = 1
    dilation: int = 1


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """`high` times `wide` sums in registers; the last `unrolled` axes of the window written out."""

    high: int
    wide: int
    unrolled: int


def registers_of(tile: DepthwiseTile, taps: WindowTaps) -> int:
    """Return how many registers the sums, the weights and the inputs of a step take."""
    inner = taps.window[len(taps.window) - tile.unrolled :]
    inputs = prod(inner[:-1]) * _live(tile.wide, inner[-1], taps) if inner else 1
    return tile.high * tile.wide + prod(inner) + inputs


def _live(wide: int, kernel: int, taps: WindowTaps) -> int:
    """Return the most inputs of a row that are in use at once, positions one after the other."""
    reads = [o * taps.stride + k * taps.dilation for o in range(wide) for k in range(kernel)]
    last = {place: step for step, place in enumerate(reads)}
    held: set[int] = set()
    most = 0
    for step, place in enumerate(reads):
        held.add(place)
        most = max(most, len(held))
        if last[place] == step:
            held.discard(place)
    return most


def depthwise_cycles(
    image: tuple[int, int], tile: DepthwiseTile, taps: WindowTaps, target: Target
) -> float:
    """Return the cycles for all positions of a register of channels, remainders included."""
    height, width = (max(1, size) for size in image)
    return sum(
        _tile_cycles(DepthwiseTile(high, wide, tile.unrolled), taps, target) * down * across
        for high, down in parts_of(height, tile.high)
        for wide, across in parts_of(width, tile.wide)
    )


def lane_group_cycles(
    image: tuple[int, int], tile: DepthwiseTile, taps: WindowTaps, target: Target
) -> float:
    """Return the cycles for a register of channels, several groups in it: `conv_lane_groups`.

    The window has an axis for the channels, and its last one is written out in the tile. Each input
    of a step is shuffled once.
    """
    height, width = (max(1, size) for size in image)
    down, kernel = prod(taps.window[:-1]), taps.window[-1]
    shuffled = sum(
        _places(DepthwiseTile(1, wide, 1), kernel, taps) * across
        for wide, across in parts_of(width, tile.wide)
    )
    return depthwise_cycles(image, tile, taps, target) + shuffle_cycles(
        shuffled * down * height, target
    )


def _tile_cycles(tile: DepthwiseTile, taps: WindowTaps, target: Target) -> float:
    split = len(taps.window) - tile.unrolled
    steps, inner = prod(taps.window[:split]), taps.window[split:]
    sums = tile.high * tile.wide
    inputs = tile.high * prod(inner[:-1]) * _places(tile, inner[-1], taps) if inner else sums
    weights = prod(inner) if split else 0
    machine = target.machine
    compute = max(fma_cycles(sums, target), machine.fma_latency / 2) * prod(inner)
    step = max(compute, load_cycles(inputs + weights, target)) + machine.iteration_cycles
    return steps * step + load_cycles(sums, target) + machine.iteration_cycles


def _places(tile: DepthwiseTile, kernel: int, taps: WindowTaps) -> int:
    """Return how many places of a row the windows of a row of the tile meet."""
    return len(
        {o * taps.stride + k * taps.dilation for o in range(tile.wide) for k in range(kernel)}
    )
