# SPDX-License-Identifier: Apache-2.0
"""Register tiles: how many rows and vectors a core keeps in registers, the cheapest of all.

The costs are `treadle.cost.registers`'; here are the tiles that are compared.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from treadle.cost.loops import tile_start_cycles
from treadle.cost.memory import (
    aligned_pitch,
    copy_cycles,
    kept_bytes,
    level_cycles,
    rows_side_by_side,
    spares_buffers,
    step_read_cycles,
    weight_cycles,
)
from treadle.cost.registers import (
    LOADED,
    Taps,
    Tile,
    WindowTile,
    image_cycles,
    parts_of,
    tile_set_cycles,
)
from treadle.limits import ROW_VECTORS, TILE_ROWS, TILE_VECTORS
from treadle.target.base import Target
from treadle.te.knobs import Knobs


def tiles_in_registers(rows: int, vectors: int, target: Target, *, width: int = 1) -> list[Tile]:
    """Return the tiles of at most `rows` positions and `vectors` vectors that fit the registers.

    A vector takes `width` registers. Sums, weight vectors and one broadcast value must fit.
    """
    found = [Tile(1, 1)]
    for v in range(1, min(vectors, TILE_VECTORS) + 1):
        limit = (target.vector_registers - 1 - v * width) // (v * width)
        found += [Tile(r, v) for r in range(1, min(rows, limit) + 1) if r * v > 1]
    return found


def pick_tile(
    knobs: Knobs, rows: int, vectors: int, target: Target, *, width: int = 1, most_rows: int = 0
) -> Tile:
    """Return knob "tile": that with the fewest cycles for `rows` positions times `vectors` vectors.

    It has no more than `most_rows` where that is not 0. Ties go to the larger tile.
    """

    def rank(tile: Tile) -> tuple[float, int]:
        cycles = tile_set_cycles(rows, vectors, tile, width, target)
        return round(cycles, 6), -tile.rows * tile.vectors

    high = min(rows, most_rows or rows)
    return knobs.pick("tile", tiles_in_registers(high, vectors, target, width=width), cost=rank)


def pick_rows(knobs: Knobs, rows: int, vectors: int, row_bytes: int, target: Target) -> int:
    """Return knob "rows": those of the tile with the fewest cycles for `rows` (0: many) positions.

    Sums, `vectors` of weights and one broadcast value fit the registers, and the lines read of rows
    that lie `row_bytes` apart fit the first cache. Ties go to the larger tile.
    """
    limit = max(1, (target.vector_registers - 1 - vectors) // vectors)
    limit = min(limit, rows_side_by_side(row_bytes, target))
    choices = range(min(rows or limit, limit), 0, -1)

    def cycles(high: int) -> float:
        whole = tile_set_cycles(rows or high, vectors, Tile(high, vectors), 1, target)
        return whole / (1 if rows else high)

    return knobs.pick("rows", choices, cost=cycles)


@lru_cache(maxsize=4096)
def best_rows(rows: int, vectors: int, row_bytes: int, target: Target) -> int:
    """Return what `pick_rows` does by default."""
    return pick_rows(Knobs(), rows, vectors, row_bytes, target)


@lru_cache(maxsize=4096)
def best_panel(rows: int, vectors: int, row_bytes: int, target: Target) -> int:
    """Return how many of the `vectors` of weights to lay side by side in a panel.

    Chosen is what `rows` (0: many) take the fewest cycles for. Ties go to the narrower panel.
    """

    def cycles(v: int) -> float:
        high = best_rows(rows, v, row_bytes, target)
        return round(
            tile_set_cycles(rows or high, vectors, Tile(high, v), 1, target) / (rows or high), 6
        )

    return min(range(1, min(vectors, TILE_VECTORS) + 1), key=cycles)


@lru_cache(maxsize=4096)
def row_pitch(rows: int, vectors: int, steps: int, itemsize: int, target: Target) -> int:
    """Return how many bytes apart a product of `steps` steps reads its `rows` of values.

    Rows a power of two apart evict each other, so few of them are read together, by wide panels
    that leave the near caches: a copy of rows that lie a line further apart may cost less.
    """
    apart = steps * itemsize
    further = aligned_pitch(apart, target)
    if rows <= rows_side_by_side(apart, target) or spares_buffers(target):
        return apart

    def cycles(pitch: int) -> float:
        v = best_panel(rows, vectors, pitch, target)
        tile = Tile(best_rows(rows, v, pitch, target), v)
        panel = steps * v * target.vector_bytes
        level = 2 if panel <= kept_bytes(target, 2) else 3
        of_vector = target.vector_bytes + tile.rows * itemsize / v  # and the values that it meets
        wait = level_cycles(of_vector, level, target) / LOADED
        return steps * tile_set_cycles(rows, vectors, tile, 1, target, wait)

    copying = copy_cycles(rows * apart, target)
    return further if cycles(further) + copying < cycles(apart) else apart


@lru_cache(maxsize=4096)
def best_row_panel(vectors: int, steps: int, target: Target) -> int:
    """Return how many of the `vectors` of weights of `steps` steps to lay side by side for one row.

    One row has few sums: wide panels keep the units busy. All vectors of the last panel are read,
    which counts where weights come from level 3. Ties go to the wider panel.
    """
    wait = weight_cycles(steps, vectors, target)

    def cycles(v: int) -> tuple[float, int]:
        panels = -(-vectors // v)
        sums = steps * tile_set_cycles(1, panels * v, Tile(1, v), 1, target, wait)
        return round(sums + panels * tile_start_cycles(target), 6), -v

    return min(range(1, min(vectors, ROW_VECTORS) + 1), key=cycles)


def pick_window_tile(
    knobs: Knobs,
    height: int,
    width: int,
    vectors: int,
    target: Target,
    *,
    registers: int = 1,
    whole: bool = False,
    taps: tuple[Taps, Taps] | None = None,
    reduction: int = 0,
) -> WindowTile:
    """Return knob "tile": that with the fewest cycles for an image of height x width positions.

    A vector takes `registers` registers. `whole` tiles leave no rest of the vectors. With `taps`
    those that meet only zeros are skipped. The weights of a tile, `reduction` vectors for each of
    its own, may come from level 3 or memory. Ties go to the tile whose remainders need the fewest
    bodies of their own, each as long as a tile is large; then to the flatter tile, to the larger
    one, and to the one whose reads take the least, of weights from level 2 where they pass level 1.
    """
    image = (height, width, vectors)

    def rank(tile: WindowTile) -> tuple[float, int, int, int, float]:
        held = tile.vectors * registers
        wait = weight_cycles(reduction, held, target)
        cost = image_cycles(image, tile, registers, target, taps, wait)
        parts = zip(image, (tile.high, tile.wide, tile.vectors), strict=True)
        bodies = prod(len(parts_of(extent, factor)) for extent, factor in parts)
        read = step_read_cycles(reduction, tile.high * tile.wide, held, target)
        return round(cost, 6), bodies, tile.high, -tile.wide * tile.vectors, round(read, 6)

    tiles = window_tiles(image, target, registers, whole=whole)
    return knobs.pick("tile", tiles, cost=rank)


def window_tiles(
    image: tuple[int, int, int], target: Target, registers: int, *, whole: bool
) -> list[WindowTile]:
    """Return the tiles of height, width and vectors that fit the registers, one at least."""
    height, width, vectors = image
    found: list[WindowTile] = []
    for v in range(1, min(vectors, TILE_VECTORS) + 1):
        if whole and vectors % v:
            continue
        limit = (target.vector_registers - 1 - v * registers) // (v * registers)
        for h in range(1, min(height, TILE_ROWS, max(limit, 1)) + 1):
            found += [WindowTile(h, w, v) for w in range(1, min(width, limit // h) + 1)]
    return found or [WindowTile(1, 1, 1)]
