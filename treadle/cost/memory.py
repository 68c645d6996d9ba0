# SPDX-License-Identifier: Apache-2.0
"""What stays in which cache, what reading costs that does not, and how early to ask for it."""

from __future__ import annotations

from math import ceil, gcd, sqrt

from treadle.target.base import Target
from treadle.target.machine import STACK_BYTES

_BUSY = 0.85
"""The share of its time that memory delivers weights while products are computed."""
_MARGIN = 2
"""How many times as long as when it is idle memory may take to answer."""


def memory_bytes_per_cycle(target: Target) -> float:
    """Return what each core reads from memory while all do.

    More cores have more of it together, but less than as many times as much: as their square root.
    """
    return target.machine.memory_bytes_per_cycle / sqrt(target.cores)


def shared_bytes_per_cycle(target: Target) -> float:
    """Return what a core reads from memory, or from the cache all cores share, again and again."""
    return target.machine.memory_bytes_per_cycle


def stream_cycles(size: float, target: Target) -> float:
    """Return the cycles in which a core reads `size` bytes from memory once, beside products."""
    return size / (_BUSY * memory_bytes_per_cycle(target))


def level_cycles(size: float, level: int, target: Target) -> float:
    """Return the cycles in which a core reads `size` bytes from a level of cache, 1 to 3."""
    return size / target.machine.caches[level - 1].bytes_per_cycle


def remote_cycles(size: float, target: Target) -> float:
    """Return the cycles in which a core reads `size` bytes that another has just written."""
    return size / target.machine.remote_bytes_per_cycle


def steps_to_memory(step_cycles: float, target: Target) -> float:
    """Return how many steps of so many cycles before its use memory must be asked for data."""
    return _MARGIN * target.machine.memory_latency / step_cycles


def steps_to_cores(step_cycles: float, target: Target) -> float:
    """Return how many steps before its use the caches of other cores must be asked for data."""
    return _MARGIN * target.machine.remote_latency / step_cycles


def weight_cycles(reduction: int, vectors: int, target: Target) -> float:
    """Return the cycles that reading a vector of weights takes, 0 where they stay near.

    A tile reads `reduction` times `vectors`, the next one the same again.
    """
    size = target.vector_bytes
    is_far = reduction * vectors * size > target.l2_bytes // 2
    return level_cycles(size, 3, target) if is_far else 0.0


def rows_side_by_side(row_bytes: int, target: Target) -> int:
    """Return how many rows `row_bytes` apart can be read together without evicting each other.

    Lines at the same place of a page share a set of the first cache: it is found by the place in
    the page, while the address is translated. A third of its ways is left to everything else.
    """
    page = target.machine.page_bytes
    ways = target.l1_bytes // page
    places = page // max(target.machine.line_bytes, gcd(row_bytes, page))
    return max(1, 2 * ways // 3) * places


def scattered_cycles(rows: int, row_bytes: int, size: int, target: Target) -> float:
    """Return the cycles to read `size` bytes of each of `rows` rows again, beside products.

    Rows `row_bytes` apart that do not stay in the first cache come from level 2, and products do
    not hide that: rows that lie apart are no stream that is fetched ahead.
    """
    apart = max(target.machine.line_bytes, gcd(row_bytes, target.machine.page_bytes))
    most = rows_side_by_side(row_bytes, target) // max(1, ceil(size / apart))
    if row_bytes <= size or rows <= most:
        return 0.0
    return level_cycles(rows * size, 2, target)


def local_bytes(target: Target) -> int:
    """Return the bytes of one buffer that a thread keeps near: half of a cache, and on the stack.

    A part of the stack's limit is left, as a buffer may grow by the rests of tiles.
    """
    return min(target.l2_bytes // 2, STACK_BYTES * 3 // 4)


def stack_bytes(buffers: int = 1) -> int:
    """Return the bytes of each of so many buffers that a kernel holds on the stack together."""
    return STACK_BYTES // buffers
