# SPDX-License-Identifier: Apache-2.0
"""Register tiles of depthwise convolutions, the cheapest by `treadle.cost.depthwise`."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.cost.depthwise import DepthwiseTile, WindowTaps, depthwise_cycles, registers_of
from treadle.limits import TILE_ROWS
from treadle.target.base import Target
from treadle.te.knobs import Knobs


def depthwise_tile(
    knobs: Knobs,
    image: tuple[int, int],
    taps: WindowTaps,
    target: Target,
    *,
    tail: int = 0,
    shape: tuple[int, int] | None = None,
) -> DepthwiseTile:
    """Return knob "tile": that with the fewest cycles for an image of (height, width) positions.

    The epilogue takes `tail` registers, which counts where the weights stay in registers, too.
    `shape`: how many rows the tile has, and axes of the window are unrolled in it; None: any.

    Sums, weights and inputs fit the registers. Ties go to tiles that leave no rest, then to the
    flatter one, then to the larger one.
    """
    room = _room(target)
    whole = room - tail
    tiles = [
        t
        for t in _tiles(image, taps, target)
        if shape in (None, (t.high, t.unrolled))
        and registers_of(t, taps) <= (whole if t.unrolled == len(taps.window) else room)
    ]

    def rank(tile: DepthwiseTile) -> tuple[float, bool, int, int]:
        rest = image[0] % tile.high > 0 or image[1] % tile.wide > 0
        return round(depthwise_cycles(image, tile, taps, target), 6), rest, tile.high, -tile.wide

    return knobs.pick("tile", tiles or [DepthwiseTile(1, 1, shape[1] if shape else 0)], cost=rank)


def lane_group_tile(
    knobs: Knobs, image: tuple[int, int], taps: WindowTaps, target: Target
) -> DepthwiseTile:
    """Return knob "tile" of groups that share a register: of one row, its taps written out.

    What is shuffled of a row serves all taps of it, and no other row of sums.
    """
    return depthwise_tile(knobs, image, taps, target, shape=(1, 1))


def _room(target: Target) -> int:
    return target.vector_registers - 3  # for inputs that are loaded early and what the tail needs


def _tiles(image: tuple[int, int], taps: WindowTaps, target: Target) -> Iterator[DepthwiseTile]:
    height, width = (max(1, size) for size in image)
    for unrolled in range(len(taps.window) + 1):
        # Rows whose windows overlap would hold the inputs of all of them.
        most = TILE_ROWS if unrolled < 2 else 1
        for high in range(1, min(height, most) + 1):
            for wide in range(1, min(width, _room(target) // high) + 1):
                yield DepthwiseTile(high, wide, unrolled)
