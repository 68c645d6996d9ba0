# SPDX-License-Identifier: Apache-2.0
"""Register tiles of depthwise convolutions, by a small cost model.

A register holds one position of some channels. A step of the loops that remain loads the weights
of the taps written out in it and every input they meet once; all sums of the tile stay in
registers. With the whole window written out, the weights too stay from tile to tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from treadle.ops.schedules.tiles import FMA_LATENCY, FMA_UNITS, LOADS_PER_CYCLE, MOST_ROWS_HIGH
from treadle.target.base import Target

_STEP_OVERHEAD = 1.0
"""Cycles of a step beyond its arithmetic, and of a tile beyond its steps."""


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


def depthwise_tile(
    image: tuple[int, int], taps: WindowTaps, target: Target, *, tail: int = 0
) -> DepthwiseTile:
    """Return the tile with the fewest cycles for an image of (height, width) positions.

    The element-wise tail takes `tail` registers, which counts where the weights stay beside it.

    Sums, weights and inputs fit the registers. Ties go to tiles that leave no rest, then to the
    flatter one, then to the larger one.
    """
    room = _room(target)
    whole = room - tail
    tiles = [
        t
        for t in _tiles(image, taps, target)
        if registers_of(t, taps) <= (whole if t.unrolled == len(taps.window) else room)
    ]
    if not tiles:
        return DepthwiseTile(1, 1, 0)

    def rank(tile: DepthwiseTile) -> tuple[float, bool, int, int]:
        rest = image[0] % tile.high > 0 or image[1] % tile.wide > 0
        return round(_image_cycles(image, tile, taps), 6), rest, tile.high, -tile.wide

    return min(tiles, key=rank)


def depthwise_cycles(image: tuple[int, int], taps: WindowTaps, target: Target) -> float:
    """Return the cycles for all positions of a register of channels, in the tile for them."""
    return _image_cycles(image, depthwise_tile(image, taps, target), taps)


def _room(target: Target) -> int:
    return target.vector_registers - 3  # for inputs that are loaded early and what the tail needs


def _tiles(image: tuple[int, int], taps: WindowTaps, target: Target) -> Iterator[DepthwiseTile]:
    height, width = (max(1, size) for size in image)
    for unrolled in range(len(taps.window) + 1):
        # Rows whose windows overlap would hold the inputs of all of them.
        most = MOST_ROWS_HIGH if unrolled < 2 else 1
        for high in range(1, min(height, most) + 1):
            for wide in range(1, min(width, _room(target) // high) + 1):
                yield DepthwiseTile(high, wide, unrolled)


def registers_of(tile: DepthwiseTile, taps: WindowTaps) -> int:
    """Return how many registers the sums, the weights and the inputs of a step take."""
    inner = taps.window[len(taps.window) - tile.unrolled :]
    inputs = prod(inner[:-1]) * _live(tile.wide, inner[-1], taps) if inner else 1
    return tile.high * tile.wide + prod(inner) + inputs


def _live(wide: int, kernel: int, taps: WindowTaps) -> int:
    """Return the most inputs of a row that are in use at once, positions one after the other."""
    reads = [o * taps.stride + k * taps.dilation for o in range(wide) for k in range(kernel)]
    last = {place: turn for turn, place in enumerate(reads)}
    held: set[int] = set()
    most = 0
    for turn, place in enumerate(reads):
        held.add(place)
        most = max(most, len(held))
        if last[place] == turn:
            held.discard(place)
    return most


def _image_cycles(image: tuple[int, int], tile: DepthwiseTile, taps: WindowTaps) -> float:
    """Return the cycles for all positions of a register of channels, remainders included."""
    height, width = (max(1, size) for size in image)
    return sum(
        _tile_cycles(DepthwiseTile(high, wide, tile.unrolled), taps) * down * across
        for high, down in _parts(height, tile.high)
        for wide, across in _parts(width, tile.wide)
    )


def _tile_cycles(tile: DepthwiseTile, taps: WindowTaps) -> float:
    split = len(taps.window) - tile.unrolled
    steps, inner = prod(taps.window[:split]), taps.window[split:]
    sums = tile.high * tile.wide
    if inner:
        places = {
            o * taps.stride + k * taps.dilation for o in range(tile.wide) for k in range(inner[-1])
        }
        inputs = tile.high * prod(inner[:-1]) * len(places)
    else:
        inputs = sums
    weights = prod(inner) if split else 0
    compute = max(sums / FMA_UNITS, FMA_LATENCY / 2) * prod(inner)
    return steps * (max(compute, (inputs + weights) / LOADS_PER_CYCLE) + _STEP_OVERHEAD) + (
        sums / LOADS_PER_CYCLE + _STEP_OVERHEAD
    )


def _parts(extent: int, factor: int) -> list[tuple[int, int]]:
    """Return (size, count) of full tiles and of the remainder."""
    full, rest = divmod(extent, factor)
    return [(factor, full)] * (full > 0) + [(rest, 1)] * (rest > 0)
