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
    """Return the cycles of one step of the reduction for a tile."""
    sums = rows * vectors
    compute = max(sums / FMA_UNITS, FMA_LATENCY if sums else 0)
    loads = (rows + vectors) / LOADS_PER_CYCLE
    return max(compute, loads) + _STEP_OVERHEAD


def best_tile(rows: int, vectors: int, target: Target, *, depth: int = 0) -> Tile:
    """Return the tile with the fewest cycles for `rows` positions times `vectors` vectors.

    Sums, weight vectors and one broadcast value must fit the registers.
    """
    best: tuple[float, int, Tile] | None = None
    for v in range(1, min(vectors, 4) + 1):
        if vectors % v:
            continue
        limit = (target.vector_registers - 1 - v) // v
        for r in range(1, min(rows, limit) + 1):
            cycles = _whole(rows, r, v) * (vectors // v)
            candidate = (round(cycles, 6), -r * v, Tile(r, v))
            if best is None or candidate[:2] < best[:2]:
                best = candidate
    return best[2] if best is not None else Tile(1, 1)


def _whole(rows: int, tile: int, vectors: int) -> float:
    full, rest = divmod(rows, tile)
    cycles = full * tile_cycles(tile, vectors)
    return cycles + (tile_cycles(rest, vectors) if rest else 0.0)
