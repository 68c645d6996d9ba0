# SPDX-License-Identifier: Apache-2.0
"""What Strassen's algorithm does besides its products: sums of blocks before, combination after.

All of it moves vectors between registers and caches: a few additions between do not count. On a
core of AMD Zen 5 with vectors of 512 bits 3 cycles were measured per vector where blocks are added,
6 where they take much of the last cache, 6 per vector of results and 2 to bring one to its place:
the formulas give 2.9, 6.0, 6.1 and 1.5. That the sums of 128 x 768 values are made by a kernel of
their own was fitted to 60,000 cycles of two cores; the formulas give 39,000 for the kernel and
49,000 for what is read more afterwards.

That a tile makes the sums of weights which it multiplies takes, on a core of AMD Zen 4, 0.8 to 2.2
cycles per vector of 512 bits and 1.7 to 2.6 of 256; the formulas give 1.2 to 2.4 and 1.5 to 2.1.
"""

from __future__ import annotations

from treadle.cost.forks import fork_cycles
from treadle.cost.memory import (
    Numbers,
    filled_bytes,
    filled_stack_bytes,
    level_cycles,
    overlapped,
    panel_level,
    shared_cycles,
)
from treadle.cost.registers import Tile, tile_cycles
from treadle.target.base import Target

_SHARE_OF_LAST = 8
"""Values that take more than this part of the last cache are half in memory."""


def sum_cycles(vectors: Numbers, target: Target, *, in_memory: bool = False) -> Numbers:
    """Return the cycles to read or write so many vectors where blocks of values are added.

    They come from and go to level 2. `in_memory`: where they may take much of the last cache, half
    of them are there and half in memory.
    """
    size = target.vector_bytes * vectors
    near = level_cycles(size, 2, target)
    if not in_memory:
        return near
    is_far = 1.0 * (size > target.l3_bytes // _SHARE_OF_LAST)
    far = (level_cycles(size, 3, target) + size / target.machine.memory_bytes_per_cycle) / 2
    return (1.0 - is_far) * near + is_far * far


def level_of_products(held: float, target: Target) -> int:
    """Return the level of cache, 2 or 3, that the products of a pair of panels and weights lie in.

    `held` are the bytes of all that a pair of panels passes through level 2. Where tiles fetch the
    next pair into level 2 alone (`panel_level`), what does not fit there waits for level 3: the
    machine asks for too few lines at once to hide that.
    """
    return 3 if panel_level(target) == 2 and held > filled_bytes(target, 2) else 2


def first_tile_cycles(tile: Tile, read: float, target: Target, *, level: int = 2) -> float:
    """Return the cycles that a step of a tile takes longer if it makes the weights it multiplies.

    A vector of them is the sum of `read` vectors of blocks on average, which come from a `level` of
    cache; it goes there, for the tiles that follow. A sum is one operation more per vector, as a
    row is.
    """
    machine, wide = target.machine, tile.vectors
    made = tile_cycles(tile.rows + 1, wide, target, loaded=read)
    stored = wide / machine.stores_of(target.vector_bits)
    moved = level_cycles((read + 1) * wide * target.vector_bytes, level, target)
    return overlapped(max(made, stored), moved) - tile_cycles(tile.rows, wide, target)


def sums_kernel_cycles(values: Numbers, target: Target) -> Numbers:
    """Return what it costs that sums of `values` bytes are made by a kernel of their own.

    The threads meet once more, all of them, and of the values each core reads those that others
    made. A kernel of products fetches them during its arithmetic; one of sums has too little to
    hide that.
    """
    of_others = values * (1 - 1 / target.cores)
    return target.cores * fork_cycles(target) + shared_cycles(of_others, target)


def handed_on_cycles(values: float, sums: float, target: Target) -> float:
    """Return the cycles in which the cores share `sums` bytes with each other instead of `values`.

    All cores read all of what each made a part of, and makes again in the next run.
    """
    return shared_cycles((sums - values) * (target.cores - 1), target)


def combine_cycles(products: float, results: float, target: Target, *, level: int = 2) -> float:
    """Return the cycles to read so many vectors of products and to store the sums they add up to.

    The products of a pair of panels lie in a `level` of cache.
    """
    read = level_cycles(products * target.vector_bytes, level, target)
    return read + results / target.machine.stores_of(target.vector_bits)


def far_sums_cycles(size: float, target: Target) -> float:
    """Return the cycles in which a pair of panels waits for sums of values, so many bytes.

    Every pair reads all of them. What level 2 does not keep comes from level 3.
    """
    return level_cycles(max(0.0, size - filled_bytes(target, 2)), 3, target)


def written_cycles(products: float, target: Target, *, level: int = 2) -> float:
    """Return the cycles to write so many vectors of products, which go to a `level` of cache.

    Tiles of few steps follow each other too fast to hide it.
    """
    return level_cycles(products * target.vector_bytes, level, target)


def place_cycles(vectors: float, target: Target) -> float:
    """Return the cycles to read so many vectors of results again and write them in their place."""
    machine, bits = target.machine, target.vector_bits
    return vectors * (1 / machine.loads_of(bits) + 1 / machine.stores_of(bits))


def most_rows_of_half(products: int, row_bytes: int, target: Target) -> int:
    """Return how many rows half a part of a matrix has at most.

    The `products` of halves by a panel, whose rows have `row_bytes`, stay in a core's level 2, on
    the stack.
    """
    room = min(filled_bytes(target, 2), filled_stack_bytes(target))
    return max(1, room // (products * row_bytes))
