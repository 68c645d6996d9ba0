# SPDX-License-Identifier: Apache-2.0
"""Register tiles: how many rows and vectors a core keeps in registers, by a small cost model.

The model knows what bounds a loop of fused multiply-adds: the two FMA units, the latency of a chain
of dependent sums, and the loads of broadcast values and of weight vectors. It counts whole loops,
remainders included, so a tile that divides its axis wins over one that leaves a thin rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.target.base import Target

FMA_UNITS = 2
FMA_LATENCY = 4
LOADS_PER_CYCLE = 2
_STEP_OVERHEAD = 0.5


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


def best_tile(rows: int, vectors: int, target: Target, *, width: int = 1) -> Tile:
    """Return the tile with the fewest cycles for `rows` positions times `vectors` vectors.

    A vector takes `width` registers. Sums, weight vectors and one broadcast value must fit.
    """
    best: tuple[float, int, Tile] | None = None
    for v in range(1, min(vectors, 4) + 1):
        limit = (target.vector_registers - 1 - v * width) // (v * width)
        for r in range(1, min(rows, limit) + 1):
            candidate = (round(_whole(rows, vectors, r, v, width), 6), -r * v, Tile(r, v))
            if best is None or candidate[:2] < best[:2]:
                best = candidate
    return best[2] if best is not None else Tile(1, 1)


def _whole(rows: int, vectors: int, r: int, v: int, width: int) -> float:
    """Cycles of one reduction step over the whole output, remainders included."""
    cycles = 0.0
    for tile_rows, row_count in _parts(rows, r):
        for tile_vectors, vector_count in _parts(vectors, v):
            cycles += tile_cycles(tile_rows, tile_vectors * width) * row_count * vector_count
    return cycles


def _parts(extent: int, factor: int) -> list[tuple[int, int]]:
    """Return (size, count) of full tiles and of the remainder."""
    full, rest = divmod(extent, factor)
    return [(factor, full)] * (full > 0) + [(rest, 1)] * (rest > 0)
