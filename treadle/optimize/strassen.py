# SPDX-License-Identifier: Apache-2.0
"""Which products with constant weights run by Strassen's algorithm, and their weights.

Both ways are estimated in cycles of one core. What the estimate knows: the fused multiply-adds of
the register tiles, remainders included; the vectors that sums of blocks touch; the kernel that
makes them, which products of the same values share; and that weights, 7/4 of the usual, are read
from memory once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from treadle.cost.memory import memory_bytes_per_cycle, stack_bytes
from treadle.cost.registers import Tile, tile_set_cycles
from treadle.ops.lowered.matmul_strassen import PRODUCTS, RIGHT, TRAILER
from treadle.ops.schedules.tiles import best_panel, best_rows
from treadle.settings import get
from treadle.target.base import Target

WORTHWHILE = 0.95
"""The share of the direct way's cycles it may take: more must be gained for a larger rounding
error and larger weights."""
MOST_SPREAD = 1024.0
"""How much larger a row of weights may be than the one it is added to: values that the smaller one
meets lose digits, unless many others are as large."""
MOST_BYTES = 256 << 20
"""By how much the weights of a model may grow."""
_MOST_ROWS = 768
"""Rows of a part of the values: seven products of half of them stay in a core's cache."""
SUM_CYCLES = 3.0
"""Per vector read or written where blocks of the values are added."""
COMBINE_CYCLES = 6.0
"""Per vector of the result: products are stored, read, added."""
BUSY = 0.85
"""The share of its time that memory delivers weights while products are computed."""
KERNEL_CYCLES = 60_000.0
"""What one more kernel costs: the threads meet once more, and read what the others wrote."""


@dataclass(slots=True)
class Budget:
    """By how many bytes the weights of a model may still grow."""

    spare_bytes: int = MOST_BYTES


@dataclass(frozen=True, slots=True)
class ProductShape:
    """`batch` matrices of rows x steps, times weights of steps x columns.

    `sharing` products read the same matrices.
    """

    batch: int
    rows: int
    columns: int
    steps: int
    sharing: int = 1


def strassen_width(shape: ProductShape, target: Target) -> int | None:
    """Return the columns of a panel where Strassen's algorithm wins, None where it does not."""
    if not get().winograd or not _is_possible(shape, target):
        return None
    direct, fast = _costs(shape, target)
    return _width(shape, target) if fast <= WORTHWHILE * direct else None


def why_strassen(shape: ProductShape, target: Target) -> str:
    """Return in words what `strassen_width` decides by."""
    if not _is_possible(shape, target):
        return "Strassen's algorithm is for even depths and matrices of some hundred rows"
    direct, fast = _costs(shape, target)
    allowed = "" if get().winograd else "; it is switched off"
    text = f"estimated thousands of cycles: direct {direct / 1e3:.0f}, Strassen {fast / 1e3:.0f}"
    return text + allowed


def extra_bytes(shape: ProductShape) -> int:
    """Return how much larger the weights become."""
    return (PRODUCTS - 4) * shape.steps * shape.columns


def pack_strassen(w: np.ndarray, width: int, units: np.ndarray | None = None) -> np.ndarray:
    """Return weights [k, n], k even, as [ceil(n / (2 width)), 7, k / 2, width], rounded once.

    `units` are what `column_units` says of them.
    """
    k, n = w.shape
    factors = (
        np.ones(n) if units is None else np.divide(1.0, units, where=units > 0, out=np.zeros(n))
    )
    pairs, steps = -(-n // (2 * width)), k // 2
    made = np.empty((pairs, PRODUCTS, steps, width), w.dtype)
    for pair, target in enumerate(made):
        part = slice(pair * 2 * width, (pair + 1) * 2 * width)
        columns = w[:, part].astype(np.float64) * factors[part]
        whole = np.pad(columns, ((0, 0), (0, 2 * width - columns.shape[1])))
        four = whole.reshape(2, steps, 2, width).transpose(0, 2, 1, 3).reshape(4, -1)
        target[...] = (RIGHT @ four).reshape(target.shape)
    return made


def are_rows_even(w: np.ndarray, used: int | None = None) -> bool:
    """True when rows of weights [k, n] are finite and about as large as those they are added to.

    Rows from `used` on only meet zeros.
    """
    rows = np.array([np.max(np.abs(row)) for row in w])
    upper, lower = rows.reshape(2, -1)
    lower = np.where(np.arange(len(upper), len(rows)) < (used or len(rows)), lower, upper)
    most, least = np.maximum(upper, lower), np.minimum(upper, lower)
    return bool(np.all(np.isfinite(rows))) and bool(np.all(most <= MOST_SPREAD * least))


def column_units(w: np.ndarray) -> np.ndarray | None:
    """Return powers of two, float32[n], by which columns of weights [k, n] are to be divided.

    Divided by them all columns are about equally large, and none loses digits when it is added to
    another; a column of zeros has 0. None where they are as they should be.
    """
    largest = np.maximum(np.max(w, axis=0), -np.min(w, axis=0))
    exponents = np.clip(np.frexp(largest)[1], -100, 100)
    if np.ptp(exponents) <= 2 and np.all(largest > 0):
        return None
    return np.where(largest > 0, np.exp2(exponents), 0).astype(np.float32)


def half_of(rows: int) -> int:
    """Return how many rows half a part of a matrix has; parts are about equally large."""
    return ceil(rows / 2 / ceil(rows / _MOST_ROWS))


def _is_possible(shape: ProductShape, target: Target) -> bool:
    if shape.steps % 2 or min(shape.rows, shape.columns, shape.steps) < 2:
        return False
    # The seven products of a pair of panels, which a thread keeps.
    return 4 * PRODUCTS * half_of(shape.rows) * _width(shape, target) <= 3 * stack_bytes(4)


def _row_bytes(shape: ProductShape) -> int:
    """Return how far apart the sums of neighbouring rows lie."""
    return 4 * PRODUCTS * (shape.steps // 2 + TRAILER)


def _width(shape: ProductShape, target: Target) -> int:
    lanes = target.lanes()
    vectors = ceil(shape.columns / 2 / lanes)
    return lanes * best_panel(half_of(shape.rows), vectors, _row_bytes(shape), target)


def _costs(shape: ProductShape, target: Target) -> tuple[float, float]:
    """Return the cycles of the direct way and of Strassen's."""
    lanes = target.lanes()
    vectors = ceil(shape.columns / lanes)
    wide = best_panel(shape.rows, vectors, 4 * shape.steps, target)
    tile = Tile(best_rows(shape.rows, wide, 4 * shape.steps, target), wide)
    direct = shape.batch * shape.steps * tile_set_cycles(shape.rows, vectors, tile, 1, target)
    half, wide = half_of(shape.rows), _width(shape, target) // lanes
    parts = shape.batch * ceil(shape.rows / (2 * half))
    tile = Tile(best_rows(half, wide, _row_bytes(shape), target), wide)
    halves = ceil(shape.columns / (2 * lanes * wide)) * wide
    fast = parts * PRODUCTS * shape.steps / 2 * tile_set_cycles(half, halves, tile, 1, target)
    reading = 4.0 * shape.steps * shape.columns / (BUSY * memory_bytes_per_cycle(target))
    touched = (4 + PRODUCTS) * parts * half * shape.steps / 2 / lanes
    sums = (touched * SUM_CYCLES + KERNEL_CYCLES) / shape.sharing
    made = shape.batch * shape.rows * vectors * COMBINE_CYCLES
    return max(direct, reading), max(fast, reading * PRODUCTS / 4) + sums + made
