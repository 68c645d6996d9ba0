# SPDX-License-Identifier: Apache-2.0
"""What products cost on a GPU: multiply-adds against loads, and multiprocessors without a block."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.limits import DEVICE_STEPS
from treadle.target.gpu_machine import Gpu

_LANE_WORDS = 4
"""Elements of a factor that a thread reads from shared memory at once."""

_FETCH = 20
"""Instructions for an element that a thread brings into shared memory."""

_WIDE = 1.2
"""How much longer threads take that have more columns than rows, measured on an H200: more of what
a warp reads are columns, which its threads share less."""

_AHEAD = {
    (128, 128, 16, 8): 8, (128, 64, 8, 8): 8, (64, 128, 8, 8): 8, (64, 64, 8, 8): 8,
    (64, 64, 8, 4): 8, (64, 64, 4, 4): 16, (32, 128, 4, 8): 16, (32, 32, 4, 4): 16,
}  # fmt: skip
"""How many steps a block fetches at once whose threads read factors a step ahead, by its tile: the
tiles that it makes faster, of 1,365 configurations of 22 products and convolutions that were
measured on an H200."""

_AHEAD_TIME = {128: 0.84, 64: 0.93, 32: 0.92, 16: 1.15}
"""How long a step of such a block takes by the sums of a thread, next to what the multiply-adds and
reads of shared memory of one that waits for its factors are counted at. Fitted with `_FEW`,
`_AHEAD_MEETING` and `_PASSES`: the choices for 36 products and convolutions take 1.02 times the
least time in the mean and 1.14 at most; those for the 22, without reading ahead, 1.15 and 1.50."""

_AHEAD_MEETING = 0.3
"""How much such a block waits where its threads meet, of what others do."""

_PASSES = 2.5
"""How often what is moved between a product in parts and their sum counts: written, and read."""

_AHEAD_REGISTERS = 48
"""Registers of such a thread for what it fetches and for addresses, next to its sums and what it
reads for two steps: the compiler takes 76 to 144 in all with 16 to 64 sums, 202 to 244 with 128."""

_MOST_PLAIN = 64
"""Sums of a thread that need not read ahead: its blocks are enough for others to compute while it
waits."""

_FEW = 3
"""Warps of a multiprocessor of which one waits, however many there are."""


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

    @property
    def sums(self) -> int:
        """How many sums a thread has."""
        return self.thread_rows * self.thread_columns

    def ahead(self, gpu: Gpu) -> int:
        """Return how many steps are fetched at once where threads read factors a step ahead.

        0: they read them when they need them, for there are no registers, or it takes longer.
        """
        steps = _AHEAD.get((self.rows, self.columns, self.thread_rows, self.thread_columns), 0)
        return steps if self._registers(steps) <= gpu.thread_registers else 0

    def steps(self, gpu: Gpu) -> int:
        """Return how many steps its blocks fetch at once."""
        return self.ahead(gpu) or DEVICE_STEPS

    def registers(self, gpu: Gpu) -> int:
        """Return about how many registers a thread has: sums, factors, addresses."""
        return self._registers(self.ahead(gpu))

    def _registers(self, ahead: int) -> int:
        if not ahead:
            return 2 * self.sums + 40
        return self.sums + 2 * (self.thread_rows + self.thread_columns) + _AHEAD_REGISTERS


WARP = (4, 8)
"""Threads of a warp along rows and along columns of a tile."""

TILES = (
    ProductTile(128, 128, 16, 8),
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


def product_tiles(gpu: Gpu, itemsize: int = 4) -> list[ProductTile]:
    """Return the tiles whose threads have registers for their sums, of so many bytes."""
    return [t for t in TILES if t.sums <= _MOST_PLAIN or (t.ahead(gpu) and itemsize == 4)]


PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts the steps of a product may be divided."""


def product_cycles(
    matrices: int, rows: int, columns: int, steps: int, tile: ProductTile, gpu: Gpu
) -> float:
    """Return the cycles of a product whose tiles are fetched into shared memory.

    Sizes of 0 are not known, and count as large.
    """
    tiles = -(-(rows or 1024) // tile.rows) * -(-(columns or 1024) // tile.columns)
    parts = tile.thread_rows + tile.thread_columns
    warps = tile.threads / gpu.warp
    shape = _WIDE if tile.thread_columns > tile.thread_rows else 1.0
    meeting = gpu.meeting_cycles
    if tile.ahead(gpu):
        shape *= _AHEAD_TIME[tile.sums]
        meeting *= _AHEAD_MEETING
    loads = warps * parts * gpu.shared_cycles / _LANE_WORDS
    busy = (tile.rows * tile.columns + (tile.rows + tile.columns) * _FETCH) / gpu.lanes

    def step(blocks: int) -> float:
        return _cycles_together(blocks, max(busy, loads) * shape, warps, _FEW, tile.sums)

    held = max(1, min(gpu.blocks, gpu.registers // (tile.registers(gpu) * tile.threads)))
    full, rest = divmod(-(-max(1, matrices) * tiles // gpu.multiprocessors), held)
    meetings = (full + (rest > 0)) * max(steps, 1) / tile.steps(gpu) * meeting
    return (full * step(held) + step(rest)) * max(steps, 1) + meetings


def _cycles_together(blocks: int, busy: float, warps: float, few: int, alone: float) -> float:
    """Return the cycles of a step of so many blocks on a multiprocessor.

    Each keeps it `busy` so long, with `warps` of which `few` wait; none takes less than `alone`.
    """
    return max(blocks * busy * (1 + few / (blocks * warps)), alone) if blocks else 0.0


def parted_cycles(
    matrices: int, rows: int, columns: int, steps: int, parts: int, tile: ProductTile, gpu: Gpu
) -> float:
    """Return the cycles of a product whose steps are divided into parts, summed afterwards."""
    each = product_cycles(matrices * parts, rows, columns, -(-steps // parts), tile, gpu)
    if parts == 1:
        return each
    moved = 4 * (parts + 1) * matrices * (rows or 1024) * (columns or 1024)
    return each + (gpu.launch_time + _PASSES * moved / gpu.memory_bytes) * gpu.clock


def least_product_cycles(matrices: int, rows: int, columns: int, steps: int, gpu: Gpu) -> float:
    """Return the cycles of a product in the best tile and the best number of parts."""
    return min(
        parted_cycles(matrices, rows, columns, steps, parts, tile, gpu)
        for tile in product_tiles(gpu)
        for parts in PARTS
    )


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

    def registers(self, depth: int, width: int) -> int:
        """Return about how many registers a thread has: scores, sums, what is fetched, the rest."""
        fetched = self.keys * (padded_steps(depth) + width) // self.threads
        return self.thread_rows * (self.thread_keys + self.columns(width)) + fetched + 64

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

_SCORE = 70
"""Instructions of a score that are no product: its power, its part in the largest of its row."""

_FEW_OF_ROWS = 2
"""Warps of a multiprocessor of which one waits in attention: they meet four times a tile."""


def padded_steps(depth: int) -> int:
    """Return the steps of products of queries and keys, in whole vectors."""
    return -(-depth // _LANE_WORDS) * _LANE_WORDS


def attention_tiles(depth: int, width: int, gpu: Gpu) -> list[AttentionTile]:
    """Return the tiles that a block has threads, registers and shared memory for.

    Queries and keys have `depth` float32 elements (0: scores are read), values have `width`.
    """

    def fits(tile: AttentionTile) -> bool:
        return (
            tile.threads <= gpu.block_threads
            and tile.shared_bytes(depth, width) <= gpu.block_bytes
            and tile.registers(depth, width) <= gpu.thread_registers
        )

    return [t for t in ATTENTION_TILES if fits(t)]


def attention_cycles_on_gpu(
    heads: int, rows: int, keys: int, depth: int, width: int, tile: AttentionTile, gpu: Gpu
) -> float:
    """Return the cycles of attention in one launch; sizes of 0 are not known and count as large."""
    columns, steps = tile.columns(width), padded_steps(depth)
    own, warps = tile.thread_rows * tile.thread_keys, tile.threads / gpu.warp
    products = own * steps + tile.thread_rows * columns * tile.keys
    loads = (tile.thread_rows + tile.thread_keys) * steps / _LANE_WORDS
    loads += tile.keys * (tile.thread_rows + columns) / _LANE_WORDS
    fetched = tile.keys * (steps + width) / tile.threads
    rest = own * _SCORE + 2 * tile.thread_rows * tile.lanes + 2 * fetched
    issued = (products + loads + rest) * tile.threads / gpu.lanes
    read, alone = (
        loads * gpu.shared_cycles * warps,
        products + loads * gpu.shared_wait_cycles + rest,
    )

    def cycles(blocks: int) -> float:
        return _cycles_together(blocks, max(issued, read), warps, _FEW_OF_ROWS, alone)

    held = _held(tile, depth, width, gpu)
    blocks = max(1, heads) * -(-(rows or 1024) // tile.rows)
    full, some = divmod(-(-blocks // gpu.multiprocessors), held)
    return (full * cycles(held) + cycles(some)) * -(-(keys or 1024) // tile.keys)


def is_attention_worth(heads: int, rows: int, keys: int, depth: int, width: int, gpu: Gpu) -> bool:
    """True where attention in one launch has a tile that fits, and takes no longer than apart.

    Sizes of 0 are not known, and in doubt it is one launch: scores of any length take no memory.
    Wide heads leave room for small tiles only, which read keys and values more often.
    """
    sizes = heads, rows, keys, depth, width
    fitting = attention_tiles(depth, width, gpu)
    if not all(sizes):
        return bool(fitting)
    fused = [attention_cycles_on_gpu(*sizes, tile, gpu) for tile in fitting]
    return bool(fused) and min(fused) <= apart_cycles(*sizes, gpu)


def apart_cycles(heads: int, rows: int, keys: int, depth: int, width: int, gpu: Gpu) -> float:
    """Return the cycles of attention in launches of their own; sizes of 0 count as large.

    Two products in tiles, and a softmax, between which the scores are written and read twice each.
    """

    def product(columns: int, steps: int) -> float:
        return least_product_cycles(heads, rows, columns, steps, gpu)

    scores = 4.0 * max(1, heads) * (rows or 1024) * (keys or 1024)
    seconds = 2 * gpu.launch_time + 4 * scores / gpu.memory_bytes
    return product(keys, depth) + product(width, keys or 1024) + seconds * gpu.clock


def _held(tile: AttentionTile, depth: int, width: int, gpu: Gpu) -> int:
    """Return how many blocks a multiprocessor holds."""
    by_memory = gpu.shared_bytes // tile.shared_bytes(depth, width)
    by_registers = gpu.registers // (tile.registers(depth, width) * tile.threads)
    return max(1, min(gpu.blocks, by_memory, by_registers))
