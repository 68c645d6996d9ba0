# SPDX-License-Identifier: Apache-2.0
"""Register tiles: how many rows and vectors a core keeps in registers, by a small cost model.

The model knows what bounds a loop of fused multiply-adds: the two FMA units, the latency of a chain
of dependent sums, and the loads of broadcast values and of weight vectors. It counts whole loops,
remainders included, so a tile that divides its axis wins over one that leaves a thin rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from treadle.target.base import Target

FMA_UNITS = 2
FMA_LATENCY = 4
LOADS_PER_CYCLE = 2
_STEP_OVERHEAD = 1.0
"""Cycles a step takes beyond its arithmetic: loop control and the wait for its first load."""
MOST_ROWS_HIGH = 4
FAR_BYTES_PER_CYCLE = 16.0
"""What a core reads from the cache behind its own, where weights do not stay in that."""
BUSY = 0.85
"""The share of its time that memory delivers weights while products are computed."""
_PAGE_BYTES = 4096
_LINE_BYTES = 64
_MOST_PANEL_VECTORS = 4
FROM_MEMORY, FROM_CACHE = 1000, 600
"""Cycles from a fetch to the use of its data: what memory, or a far cache, takes to answer, and
some more."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` output positions times `vectors` output vectors held in registers."""

    rows: int
    vectors: int


def tile_cycles(rows: int, vectors: int) -> float:
    """Return the cycles of one step of the reduction for a tile of rows times registers."""
    sums = rows * vectors
    compute = max(sums / FMA_UNITS, FMA_LATENCY if sums else 0)
    loads = (rows + vectors) / LOADS_PER_CYCLE
    return max(compute, loads) + _STEP_OVERHEAD


def tiles_in_registers(rows: int, vectors: int, target: Target, *, width: int = 1) -> list[Tile]:
    """Return the tiles of at most `rows` positions and `vectors` vectors that fit the registers.

    A vector takes `width` registers. Sums, weight vectors and one broadcast value must fit.
    """
    found = [Tile(1, 1)]
    for v in range(1, min(vectors, 4) + 1):
        limit = (target.vector_registers - 1 - v * width) // (v * width)
        found += [Tile(r, v) for r in range(1, min(rows, limit) + 1) if r * v > 1]
    return found


def best_tile(rows: int, vectors: int, target: Target, *, width: int = 1) -> Tile:
    """Return the tile with the fewest cycles for `rows` positions times `vectors` vectors."""

    def rank(tile: Tile) -> tuple[float, int]:
        cycles = tile_set_cycles(rows, vectors, tile, width)
        return round(cycles, 6), -tile.rows * tile.vectors

    return min(tiles_in_registers(rows, vectors, target, width=width), key=rank)


def best_rows(rows: int, vectors: int, row_bytes: int, target: Target) -> int:
    """Return the rows of the tile with the fewest cycles for `rows` (0: many) times `vectors`.

    Sums, weight vectors and one broadcast value fit the registers, and the lines read of rows that
    lie `row_bytes` apart fit the first cache. Ties go to the larger tile.
    """
    limit = max(1, (target.vector_registers - 1 - vectors) // vectors)
    limit = min(limit, _rows_side_by_side(row_bytes, target))
    if rows == 0:
        return limit
    choices = range(min(rows, limit), 0, -1)
    return min(choices, key=lambda r: tile_set_cycles(rows, vectors, Tile(r, vectors), 1))


def best_panel(rows: int, vectors: int, row_bytes: int, target: Target) -> int:
    """Return how many of the `vectors` of weights to lay side by side in a panel.

    Chosen is what `rows` (0: many) take the fewest cycles for. Ties go to the narrower panel.
    """

    def cycles(v: int) -> float:
        high = best_rows(rows, v, row_bytes, target)
        return round(tile_set_cycles(rows or high, vectors, Tile(high, v), 1) / (rows or high), 6)

    return min(range(1, min(vectors, _MOST_PANEL_VECTORS) + 1), key=cycles)


def _rows_side_by_side(row_bytes: int, target: Target) -> int:
    """Return how many rows `row_bytes` apart can be read together without evicting each other.

    Lines at the same place of a page share a set of the first cache: it is found by the place in
    the page, while the address is translated. A third of its ways is left to everything else.
    """
    ways = target.l1_bytes // _PAGE_BYTES
    places = _PAGE_BYTES // max(_LINE_BYTES, gcd(row_bytes, _PAGE_BYTES))
    return max(1, 2 * ways // 3) * places


@dataclass(frozen=True, slots=True)
class WindowTile:
    """`high` times `wide` output positions times `vectors` output vectors held in registers."""

    high: int
    wide: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Taps:
    """`count` taps of a window along one axis, `gap` apart, over `size` places.

    Position i of the window begins at place i * stride - before; other places hold zeros.
    """

    count: int
    size: int
    before: int
    stride: int = 1
    gap: int = 1

    def live(self, first: int, positions: int) -> int:
        """Return how many taps meet a place at any of `positions` positions from `first` on."""
        low = first * self.stride - self.before
        high = low + (positions - 1) * self.stride
        return sum(high + k * self.gap >= 0 > low + k * self.gap - self.size
                   for k in range(self.count))  # fmt: skip


def best_window_tile(
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
    """Return the tile with the fewest cycles for an image of height x width positions.

    A vector takes `registers` registers. `whole` tiles leave no rest of the vectors. With `taps`
    those that meet only zeros are skipped. The weights of a tile, `reduction` vectors for each of
    its own, may come from far. Ties go to the flatter tile, then to the larger one.
    """
    best: tuple[tuple[float, int, int], WindowTile] | None = None
    for v in range(1, min(vectors, 4) + 1):
        if whole and vectors % v:
            continue
        limit = (target.vector_registers - 1 - v * registers) // (v * registers)
        wait = weight_cycles(reduction, v * registers, target)
        for h in range(1, min(height, MOST_ROWS_HIGH, max(limit, 1)) + 1):
            for w in range(1, min(width, limit // h) + 1):
                tile = WindowTile(h, w, v)
                cost = image_cycles((height, width, vectors), tile, registers, taps, wait)
                rank = (round(cost, 6), h, -w * v)
                if best is None or rank < best[0]:
                    best = rank, tile
    return best[1] if best is not None else WindowTile(1, 1, 1)


def weight_cycles(reduction: int, vectors: int, target: Target) -> float:
    """Return the cycles that reading a vector of weights takes, 0 where they stay near.

    A tile reads `reduction` times `vectors`, the next one the same again.
    """
    size = 4 * target.lanes()
    is_far = reduction * vectors * size > target.l2_bytes // 2
    return size / FAR_BYTES_PER_CYCLE if is_far else 0.0


def image_cycles(
    image: tuple[int, int, int],
    tile: WindowTile,
    registers: int,
    taps: tuple[Taps, Taps] | None = None,
    wait: float = 0.0,
) -> float:
    """Return the cycles of one reduction step over the whole output, remainders included.

    With `taps`: of a step for each of them that does not meet zeros only. `wait`: cycles to read a
    vector of weights.
    """
    cycles = 0.0
    along = (None, None) if taps is None else taps
    for high, high_count in _parts_with_taps(image[0], tile.high, along[0]):
        for wide, wide_count in _parts_with_taps(image[1], tile.wide, along[1]):
            for v, count in _parts(image[2], tile.vectors):
                step = max(tile_cycles(high * wide, v * registers), v * registers * wait)
                cycles += step * high_count * wide_count * count
    return cycles


def tile_set_cycles(rows: int, vectors: int, tile: Tile, width: int, wait: float = 0.0) -> float:
    """Return the cycles of one reduction step over the whole output, remainders included.

    `wait`: cycles to read a vector of weights.
    """
    cycles = 0.0
    for tile_rows, row_count in _parts(rows, tile.rows):
        for tile_vectors, vector_count in _parts(vectors, tile.vectors):
            held = tile_vectors * width
            cycles += max(tile_cycles(tile_rows, held), held * wait) * row_count * vector_count
    return cycles


def _parts_with_taps(extent: int, factor: int, taps: Taps | None) -> list[tuple[int, int]]:
    """Return (size, count), every part counted once for each of its live taps."""
    if taps is None:
        return _parts(extent, factor)
    found: dict[int, int] = {}
    for first in range(0, extent, factor):
        size = min(factor, extent - first)
        found[size] = found.get(size, 0) + taps.live(first, size)
    return list(found.items())


def _parts(extent: int, factor: int) -> list[tuple[int, int]]:
    """Return (size, count) of full tiles and of the remainder."""
    full, rest = divmod(extent, factor)
    return [(factor, full)] * (full > 0) + [(rest, 1)] * (rest > 0)
