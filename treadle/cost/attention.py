# SPDX-License-Identifier: Apache-2.0
"""Attention in blocks of rows: what of a head is in which cache, and what its softmax costs."""

from __future__ import annotations

from collections.abc import Callable

from treadle.cost.memory import kept_bytes, level_cycles, stack_bytes
from treadle.cost.registers import (
    Tile,
    cycles_with_bodies,
    fma_cycles,
    parts_of,
    tile_cycles,
    tile_load_cycles,
)
from treadle.target.base import Target

_ON_STACK = ("scores", "powers", "queries", "values")
"""What of a block lies on the stack together."""

BLOCK_VECTORS = 2
"""Vectors of rows in a block: with two, every key and value that is read meets as many rows as a
register tile has; more would not make the products any cheaper."""

DYNAMIC_KEYS = 8
"""Keys of a register tile where their number is dynamic: the last tile may be wasted in part."""

_PRODUCTS = 3
"""What attention takes, in products with the values: these, the scores, as much for the softmax."""

_STORE_AND_LOAD = 6
"""Multiply-adds of a vector that fit into the time of the softmax in memory, per vector of scores:
it reads and writes them three times."""

_LEAST_SAVED = 0.1
"""The share of all scores that must be left out for it to be worth while: blocks of rows compute
more than their rows see, and loops whose ends differ are not unrolled."""


def most_scores(itemsize: int, target: Target) -> int:
    """Return how many elements a block of scores has at most, which lies on the stack."""
    return stack_bytes(target, len(_ON_STACK)) // itemsize


def block_vectors(keys: int, lanes: int, itemsize: int, target: Target) -> int:
    """Return how many vectors of rows a block has, 0 where not even one fits.

    The scores and their powers share the first cache where that leaves two vectors, and half of
    the second in any case.
    """
    row = keys * itemsize * lanes
    inner, outer = target.l1_bytes // (2 * row), kept_bytes(target, 2) // (2 * row)
    most = min(outer, most_scores(itemsize, target) // (keys * lanes), BLOCK_VECTORS)
    return max(0, min(most, max(2, inner)))


def scores_cycles(keys: int, vectors: int, tile: Tile, target: Target) -> tuple[float, float]:
    """Return what a step of all tiles of scores takes, of so many keys by vectors of rows.

    Then what the largest of them reads from the first cache, by multiply-add, where two take the
    same.
    """
    reads = tile_load_cycles(tile.rows, tile.vectors, target) / (tile.rows * tile.vectors)
    return _tiles_cycles(keys, vectors, tile, lambda *_: 0.0, target), reads


def values_cycles(
    rows: int, vectors: int, tile: Tile, keys: int, itemsize: int, target: Target
) -> tuple[float, float]:
    """Return what a key takes in the products of a block with its values, in vectors of columns.

    A tile reads the values of all keys again, a few columns of each: whole lines, which come from
    level 2 where those of `keys` and the weights of the block do not lie in level 1 together. Then
    what the largest tile reads, where two take the same.
    """

    def read(high: int, wide: int) -> float:
        line = target.machine.line_bytes
        lines = -(-wide * target.vector_bytes // line) * line
        if keys * (lines + rows * itemsize) <= target.l1_bytes:
            return tile_load_cycles(high, wide, target)
        return tile_load_cycles(high, 0, target) + level_cycles(lines, 2, target)

    reads = read(tile.rows, tile.vectors) / (tile.rows * tile.vectors)
    return _tiles_cycles(rows, vectors, tile, read, target), reads


def _tiles_cycles(
    rows: int, vectors: int, tile: Tile, read: Callable[[int, int], float], target: Target
) -> float:
    """Return the cycles of a step of all tiles, none less than `read`; each kind has code."""
    kinds = [
        (high, wide, down * across)
        for high, down in parts_of(rows, tile.rows)
        for wide, across in parts_of(vectors, tile.vectors)
    ]
    cycles = sum(max(tile_cycles(h, w, target), read(h, w)) * n for h, w, n in kinds)
    return round(cycles_with_bodies(cycles, len(kinds)), 6)


def attention_cycles(products: float, lanes: int, target: Target) -> float:
    """Return the cycles of attention whose results are sums of so many products altogether."""
    return fma_cycles(_PRODUCTS * products / lanes, target)


def is_worth_trimming(seen: int, scores: int) -> bool:
    """True where leaving out scores but those that are seen saves time."""
    return seen <= (1 - _LEAST_SAVED) * scores


def has_rows_for_lanes(rows: int, keys: int, depth: int, lanes: int) -> bool:
    """True where scores cost less with rows as lanes, kept in a cache, than with keys and stored.

    Lanes without a row are idle; softmax over scores in memory reads and writes them again.
    """
    in_rows = keys * depth * -(-rows // lanes)
    in_keys = rows * (depth + _STORE_AND_LOAD) * -(-keys // lanes)
    return in_rows <= in_keys
