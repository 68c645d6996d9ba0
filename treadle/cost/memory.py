# SPDX-License-Identifier: Apache-2.0
"""What stays in which cache, what reading costs that does not, and how early to ask for it."""

from __future__ import annotations

from math import ceil, gcd, sqrt
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from treadle.cost.registers import fma_cycles, load_cycles, tile_load_cycles
from treadle.target.base import Target

_BUSY = 0.85
"""The share of its time that memory delivers weights while products are computed."""
_OVERLAP = 3.0
"""The power by which arithmetic and what is fetched meanwhile add up."""
_MARGIN = 2
"""How many times as long as when it is idle memory may take to answer."""
_MET = 4
"""Of so many steps that fetch ahead, all but one have something to fetch."""
_MANY_PASSES = 32
"""From so many passes over the same data on, what the first of them waits for does not count."""
_SHORT_ROWS = 4
"""How many times as long as one stream the same data takes in short rows, far apart."""
_SPARE_BUFFERS = 16
"""Fill buffers from which on each step of a loop may ask for lines: hints slow Cascade Lake (12)
down, not Golden Cove (16)."""
_LEVEL3_MARGIN = 2.5
"""Level 3 keeps up with rows that tiles read again for every panel where it gives so many times
what they read: on Cascade Lake it gives less, and they wait; on Zen 5 it gives more."""
_ROW_STAGES = 4
"""Stages of a row that the stack has room for, each of the largest size that is taken."""

_SHARING = 2.0
"""How many times as long as reading what another core has written sharing it takes."""

BLOCKS_AHEAD = 3
"""How many blocks of channels before its use data is fetched: level 3 answers while a tile computes
with one of them."""

STEPS_TO_LEVEL2 = 2
"""How many steps before its use a line is fetched that level 2 has: a step takes about as long as
that needs to answer."""

Numbers = TypeVar("Numbers", float, npt.NDArray[np.float64])
"""A size, or those of several candidates that are compared: one result for each."""


def memory_bytes_per_cycle(target: Target) -> float:
    """Return what each core reads from memory while all do.

    More cores have more of it together, but less than as many times as much: as their square root.
    """
    return target.machine.memory_bytes_per_cycle / sqrt(target.cores)


def shared_bytes_per_cycle(target: Target) -> float:
    """Return what a core reads from memory, or from the cache all cores share, again and again."""
    return target.machine.memory_bytes_per_cycle


def stream_cycles(size: float, target: Target) -> float:
    """Return the cycles in which a core reads `size` bytes from memory while it computes."""
    return size / (_BUSY * memory_bytes_per_cycle(target))


def overlapped(busy: float, moved: float) -> float:
    """Return the cycles of work that keeps the units `busy` while `moved` cycles of data come.

    Neither hides the other wholly: lines that come late hold up a step, and a core asks for few of
    them at once. The cube root of the sum of cubes is a quarter more than either where they are
    equal, and next to nothing where one is short. The power was fitted to products whose weights
    come from memory, and to tiles that make the sums of weights which they multiply, on Zen 4,
    Zen 5 and Granite Rapids.
    """
    return float((busy**_OVERLAP + moved**_OVERLAP) ** (1 / _OVERLAP))


def level_cycles(size: Numbers, level: int, target: Target) -> Numbers:
    """Return the cycles in which a core reads `size` bytes from a level of cache, 1 to 3."""
    return size / target.machine.caches[level - 1].bytes_per_cycle


def copy_cycles(size: float, target: Target) -> float:
    """Return the cycles in which a core reads `size` bytes and writes them, beyond level 2."""
    return level_cycles(2.0 * size, 3, target)


def again_cycles(size: float, tensor: int, target: Target) -> float:
    """Return the cycles to read `size` bytes beyond level 2, of a tensor of so many, in long runs.

    What level 3 keeps comes from there, all but the first time.
    """
    if tensor <= kept_bytes(target, 3):
        return level_cycles(size, 3, target)
    return size / memory_bytes_per_cycle(target)


def rows_cycles(size: float, tensor: int, position: int, target: Target) -> float:
    """Return what `again_cycles` does, of short rows far apart, which no machine foresees.

    Positions of whole lines are fetched ahead; of several in a line the first one is waited for.
    """
    short = position < target.machine.line_bytes
    return (_SHORT_ROWS if short else 1) * again_cycles(size, tensor, target)


def remote_cycles(size: Numbers, target: Target) -> Numbers:
    """Return the cycles in which a core reads `size` bytes that another has just written."""
    return size / target.machine.remote_bytes_per_cycle


def shared_cycles(size: Numbers, target: Target) -> Numbers:
    """Return the cycles it takes a core that it shares `size` bytes with others, again and again.

    What one core writes the others read, and it takes the lines back from their caches when it
    writes them again. The second is no cheaper than the first: 1 ns a line on Zen 4 where the cores
    share level 3, 26 ns where they do not, in place of 1 and 6 for reading; the factor is fitted to
    Winograd's convolutions, which are 2 % faster with it in the first case and 7 % in the second.
    """
    return _SHARING * remote_cycles(size, target)


def steps_to_memory(step_cycles: float, target: Target) -> float:
    """Return how many steps of so many cycles before its use memory must be asked for data."""
    return _MARGIN * target.machine.memory_latency / step_cycles


def steps_to_cores(step_cycles: float, target: Target) -> float:
    """Return how many steps before its use the caches of other cores must be asked for data."""
    return _MARGIN * target.machine.remote_latency / step_cycles


def is_met(steps: int, ahead: int) -> bool:
    """Return whether what is fetched `ahead` of a loop's `steps` is mostly read in it.

    The last `ahead` steps ask for what stands past the end, which takes as long and brings nothing.
    """
    return steps >= _MET * ahead


def fetches_by_step(vector_bytes: int, tiles: int, target: Target) -> bool:
    """Return whether the steps of a product fetch weights that they are about to read.

    Where several `tiles` read a panel they fetch the next one, and what is left to wait for is
    little: it pays where vectors are lines. Steps that share a line would all fetch it, and their
    few multiply-adds do not hide that. 0 tiles: not known how many.
    """
    return tiles == 1 or vector_bytes >= target.machine.line_bytes


def spares_buffers(target: Target) -> bool:
    """Return whether level 1 waits for so many lines that a step may ask for those of many places.

    If not, loads wait for what steps ask for ahead of them. A convolution reads rows of data and
    panels that lie apart: there the machine's own prefetchers, which ask from level 2, and the
    shares of the next panel are all that pays. The weights of a product are one run of lines.
    """
    return target.machine.fill_buffers >= _SPARE_BUFFERS


def waits_for_level3(bytes_per_cycle: float, target: Target) -> bool:
    """Return whether tiles that read so much wait for it where it comes from level 3."""
    return target.machine.caches[2].bytes_per_cycle < _LEVEL3_MARGIN * bytes_per_cycle


def panel_level(target: Target) -> int:
    """Return the level of cache, 1 or 2, into which tiles fetch the panels of the next ones.

    A fetch into level 2 leaves the buffers of level 1 to what this tile reads; the first of the
    next tiles then reads from level 2, as all of them do where a panel does not stay in level 1.
    """
    return 1 if spares_buffers(target) else 2


def next_panel_leaves(panel: int, target: Target) -> bool:
    """Return whether a panel of so many bytes that is fetched into level 2 leaves it unread.

    That holds the panel which is read meanwhile, too.
    """
    return 2 * panel >= filled_bytes(target, 2)


def is_near_again(panel: int, size: int, passes: int, target: Target) -> bool:
    """Return whether weights that tiles read `passes` times are in the first cache but for once.

    A tile reads a `panel` of the `size` bytes, the next tiles the same one; where other panels come
    between, level 2 holds all of them.
    """
    stay = panel <= filled_bytes(target, 1) and 0 < size <= kept_bytes(target, 2)
    return stay and passes >= _MANY_PASSES


def kept_bytes(target: Target, level: int) -> int:
    """Return the bytes of a level of cache, 1 to 3, that stay while other things pass: half of it.

    Of level 2 those are a core's part; level 3 is that of all cores.
    """
    return _level_bytes(target, level) // 2


def filled_bytes(target: Target, level: int) -> int:
    """Return the bytes of a level of cache that stay where nothing else is read: three quarters.

    The rest is left to the stack, to results and to lines that share a set.
    """
    return _level_bytes(target, level) * 3 // 4


def fetched_bytes(target: Target) -> int:
    """Return the bytes that come to level 2 together: a line, or a pair of lines.

    Of positions that lie apart what stands between them takes its place, too.
    """
    return max(target.machine.line_bytes, target.machine.fetch_bytes)


def _level_bytes(target: Target, level: int) -> int:
    return (target.l1_bytes, target.l2_bytes, target.l3_bytes)[level - 1]


def stream_vectors(target: Target) -> int:
    """Return how many vectors of columns to sum together where they come from memory.

    Two pages of a row: what is fetched ahead ends with a page, and their sums fit the first cache.
    """
    size = min(2 * target.machine.page_bytes, target.l1_bytes // 4)
    return max(1, size // target.vector_bytes)


def most_sums(itemsize: int, target: Target) -> int:
    """Return how many sums stay in the first cache while rows pass through it: an eighth of it."""
    return target.l1_bytes // 8 // itemsize


def weight_cycles(reduction: int, vectors: int, target: Target) -> float:
    """Return the cycles that reading a vector of weights takes, 0 where they stay in level 2.

    A tile reads `reduction` times `vectors`, the next one the same again.
    """
    size = target.vector_bytes
    stays = reduction * vectors * size <= kept_bytes(target, 2)
    return 0.0 if stays else level_cycles(size, 3, target)


def step_read_cycles(reduction: int, rows: int, vectors: int, target: Target) -> float:
    """Return the cycles in which a step of a tile reads a value of every row and its weights.

    These are so many vectors of a panel of `reduction` times as many, which comes from level 2
    where it does not stay in level 1.
    """
    bytes_of_step = vectors * target.vector_bytes
    near = tile_load_cycles(rows, vectors, target)
    if reduction * bytes_of_step <= filled_bytes(target, 1):
        return near
    return near - load_cycles(vectors, target) + level_cycles(bytes_of_step, 2, target)


def waits_for_panel(
    reduction: int, rows: int, vectors: int, target: Target, *, in_runs: bool = False
) -> bool:
    """True where a tile multiplies faster than its weights come from beyond level 1.

    They are a panel of `reduction` times `vectors`. Values that are read `in_runs` are there when
    they are wanted; others take loads in addition.
    """
    size = vectors * target.vector_bytes
    if reduction * size <= filled_bytes(target, 1):
        return False
    level = 2 if reduction * size <= kept_bytes(target, 2) else 3
    values = 0.0 if in_runs else tile_load_cycles(rows, 0, target)
    return values + level_cycles(size, level, target) > fma_cycles(rows * vectors, target)


def rows_side_by_side(row_bytes: int, target: Target) -> int:
    """Return how many rows `row_bytes` apart can be read together without evicting each other.

    Lines at the same place of a page share a set of the first cache: it is found by the place in
    the page, while the address is translated. A third of its ways is left to everything else.
    """
    page = target.machine.page_bytes
    ways = target.l1_bytes // page
    places = page // max(target.machine.line_bytes, gcd(row_bytes, page))
    return max(1, 2 * ways // 3) * places


def aligned_pitch(row_bytes: int, target: Target) -> int:
    """Return the least bytes apart, `row_bytes` or more, of rows that begin a line further each."""
    line, page = target.machine.line_bytes, target.machine.page_bytes
    return row_bytes + (line - row_bytes) % page


def leave_level2(rows: int, row_bytes: int, size: int, target: Target) -> bool:
    """True where `size` bytes of each of `rows` rows `row_bytes` apart do not stay in level 2.

    Lines at the same place of a page share sets, and such rows begin at few places.
    """
    line, page = target.machine.line_bytes, target.machine.page_bytes
    lines = -(-size // line)
    places = page // max(line, gcd(row_bytes, page))
    share = min(1.0, places * lines * line / page)
    return rows * lines * line > share * target.l2_bytes


def outlast_products(size: float, rows: int, target: Target) -> bool:
    """Return whether `size` bytes of weights take longer to read than to multiply by `rows` rows.

    Rows are those that all weights are read once for; 0 where they are not known.
    """
    level = 2 if size <= kept_bytes(target, 2) else 3
    reading = level_cycles(target.vector_bytes, level, target)
    return rows > 0 and reading >= fma_cycles(rows, target)


def scattered_cycles(rows: int, row_bytes: int, size: int, target: Target) -> float:
    """Return the cycles to read `size` bytes of each of `rows` rows again while it computes.

    Rows `row_bytes` apart that do not stay in the first cache come from level 2, and products do
    not hide that: rows that lie apart are no stream that is fetched ahead.
    """
    apart = max(target.machine.line_bytes, gcd(row_bytes, target.machine.page_bytes))
    most = rows_side_by_side(row_bytes, target) // max(1, ceil(size / apart))
    if row_bytes <= size or rows <= most:
        return 0.0
    return level_cycles(rows * size, 2, target)


def local_bytes(target: Target) -> int:
    """Return the bytes of one buffer that a thread keeps in its level 2, and on the stack.

    A part of the stack's limit is left, as a buffer may grow by the rests of tiles.
    """
    return min(kept_bytes(target, 2), filled_stack_bytes(target))


def filled_stack_bytes(target: Target) -> int:
    """Return the bytes that all buffers of a kernel take of the stack: the rest is for others."""
    return stack_bytes(target) * 3 // 4


def stack_bytes(target: Target, buffers: int = 1) -> int:
    """Return the bytes of each of so many buffers that a kernel holds on the stack together.

    Where there are no threads, those that find no room on it are lent by the caller
    (`treadle.lower.limit_stack`): they may take what stays in the last cache.
    """
    room = target.machine.stack_bytes
    lent = 0 if target.has_threads else kept_bytes(target, 3)
    return max(room, lent) // buffers


def row_stage_bytes(target: Target) -> int:
    """Return the bytes of one stage of a row that all stages of the row hold on the stack."""
    return stack_bytes(target, _ROW_STAGES)
