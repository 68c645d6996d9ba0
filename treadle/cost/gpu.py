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


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """What a block of threads computes of an attention at once, and each thread of that.

    `rows` by `keys` scores, of which a thread has `thread_rows` by `thread_keys`; it has as many
    rows of the result, and its share of their columns.
    """

    rows: int
    keys: int
    thread_rows: int
    thread_keys: int

    @property
    def lanes(self) -> int:
        """How many threads share a row."""
        return self.keys // self.thread_keys

    @property
    def threads(self) -> int:
        """How many threads compute it."""
        return self.rows // self.thread_rows * self.lanes

    def columns(self, width: int) -> int:
        """Return how many columns of results `width` wide a thread computes."""
        return -(-width // self.lanes)

    def shared_bytes(self, depth: int, width: int) -> int:
        """Return what a block keeps in shared memory of float32 rows of these lengths."""
        steps = padded_steps(depth) + ROW_GAP
        queries = self.rows * steps if depth else 0
        others = self.keys * max(steps if depth else 0, self.columns(width) * self.lanes)
        weights = self.rows * (self.keys + ROW_GAP + self.lanes + ROW_GAP)
        return 4 * (queries + others + weights)


ROW_GAP = 4
"""Words after each row in shared memory: rows that threads read side by side have other banks."""

ATTENTION_TILES = (
    AttentionTile(32, 64, 4, 4),
    AttentionTile(64, 32, 8, 4),
    AttentionTile(64, 32, 4, 4),
    AttentionTile(32, 64, 4, 8),
    AttentionTile(32, 32, 4, 4),
    AttentionTile(32, 32, 2, 4),
    AttentionTile(16, 64, 2, 4),
    AttentionTile(16, 32, 2, 4),
)
"""The tiles that are tried."""

_POWER = 14
"""Instructions of a power of a score, with what finds the largest one."""

_TILE = 200
"""Cycles that the threads of a block wait for each other and for memory, in a tile."""


def padded_steps(depth: int) -> int:
    """Return the steps of products of queries and keys, in whole vectors."""
    return -(-depth // _LANE_WORDS) * _LANE_WORDS


def attention_tiles(depth: int, width: int, gpu: Gpu) -> list[AttentionTile]:
    """Return the tiles that a block has threads, registers and shared memory for.

    Queries and keys have `depth` float32 elements (0: scores are read), values have `width`.
    """

    def fits(tile: AttentionTile) -> bool:
        held = tile.thread_rows * (tile.thread_keys + tile.columns(width))
        fetched = tile.keys * (padded_steps(depth) + width) // tile.threads
        return (
            tile.threads <= gpu.block_threads
            and tile.shared_bytes(depth, width) <= gpu.block_bytes
            and held + fetched + 64 <= gpu.thread_registers
        )

    return [t for t in ATTENTION_TILES if fits(t)]


def attention_cycles_on_gpu(
    heads: int, rows: int, keys: int, depth: int, width: int, tile: AttentionTile, gpu: Gpu
) -> float:
    """Return the cycles of attention in one launch; sizes of 0 are not known and count as large."""
    columns, steps = tile.columns(width), padded_steps(depth)
    own, parts = tile.thread_rows * tile.thread_keys, tile.thread_rows + tile.thread_keys
    products = own * steps + tile.thread_rows * columns * tile.keys
    loads = parts * steps / _LANE_WORDS
    loads += tile.keys * (tile.thread_rows + columns) / _LANE_WORDS
    fetches = tile.keys * (steps + width) / tile.threads * _FETCH / _LANE_WORDS
    each = products + 2 * loads + fetches + own * _POWER
    warps = tile.threads / gpu.warp
    held = min(gpu.blocks, gpu.shared_bytes // tile.shared_bytes(depth, width))
    blocks = max(1, heads) * -(-(rows or 1024) // tile.rows)
    rounds = -(-blocks // gpu.multiprocessors)
    busy = min(1.0, min(max(held, 1), rounds) * warps / _BUSY_WARPS)
    tiles = -(-(keys or 1024) // tile.keys)
    return rounds * tiles * (each * tile.threads / gpu.lanes / busy + _TILE * busy)
