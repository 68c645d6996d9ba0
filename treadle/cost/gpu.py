# SPDX-License-Identifier: Apache-2.0
"""What products cost on a GPU: multiply-adds against loads, and multiprocessors without a block."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.target.gpu_machine import Gpu

_LANE_WORDS = 4
"""Elements of a factor that a thread reads from shared memory at once."""

_FETCH = 6
"""Instructions for an element that a thread brings into shared memory."""

_STEP = 2
"""Instructions of a step that are no multiply-add and no load."""

_BUSY_WARPS = 8
"""So many warps of a multiprocessor hide what its memory takes."""


@dataclass(frozen=True, slots=True)
class ProductTile:
    """What a block of threads computes of a product, and each thread of that.

    The threads of a warp are `WARP` of the tile's thread rows times columns.
    """

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        """How many threads compute it."""
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)


WARP = (4, 8)
"""Threads of a warp along rows and along columns of a tile."""

TILES = (
    ProductTile(128, 128, 8, 8),
    ProductTile(128, 64, 8, 8),
    ProductTile(64, 128, 8, 8),
    ProductTile(64, 64, 8, 8),
    ProductTile(64, 64, 8, 4),
    ProductTile(64, 64, 4, 4),
    ProductTile(32, 128, 4, 8),
    ProductTile(32, 64, 4, 4),
    ProductTile(64, 32, 4, 4),
    ProductTile(32, 32, 4, 4),
    ProductTile(16, 64, 4, 4),
    ProductTile(16, 32, 4, 4),
)
"""The tiles that are tried."""


PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts the steps of a product may be divided."""


def product_cycles(
    matrices: int, rows: int, columns: int, steps: int, tile: ProductTile, gpu: Gpu
) -> float:
    """Return the cycles of a product whose tiles are fetched into shared memory.

    Sizes of 0 are not known, and count as large.
    """
    tiles = -(-(rows or 1024) // tile.rows) * -(-(columns or 1024) // tile.columns)
    blocks = max(1, matrices) * tiles
    registers = 2 * tile.thread_rows * tile.thread_columns + 40
    held = max(1, min(gpu.blocks, gpu.registers // (registers * tile.threads)))
    rounds = -(-blocks // gpu.multiprocessors)
    warps = min(held, rounds) * tile.threads / gpu.warp
    products = tile.thread_rows * tile.thread_columns
    loads = (tile.thread_rows + tile.thread_columns) / _LANE_WORDS
    fetches = (tile.rows + tile.columns) / tile.threads * _FETCH
    share = products / (products + loads + fetches + _STEP) * min(1.0, warps / _BUSY_WARPS)
    return rounds * tile.rows * tile.columns * max(steps, 1) / gpu.lanes / share


def parted_cycles(
    matrices: int, rows: int, columns: int, steps: int, parts: int, tile: ProductTile, gpu: Gpu
) -> float:
    """Return the cycles of a product whose steps are divided into parts, summed afterwards."""
    each = product_cycles(matrices * parts, rows, columns, -(-steps // parts), tile, gpu)
    if parts == 1:
        return each
    moved = 4 * (parts + 1) * matrices * (rows or 1024) * (columns or 1024)
    return each + (gpu.launch_time + 2 * moved / gpu.memory_bytes) * gpu.clock


def element_cycles(elements: float, steps: float, gpu: Gpu) -> float:
    """Return the cycles of sums where each thread reads all of one element by itself."""
    rounds = -(-elements // (gpu.multiprocessors * (gpu.threads // 2)))
    return rounds * steps * gpu.read_cycles
