# SPDX-License-Identifier: Apache-2.0
"""What schedules count on of a machine: its units, its caches, what memory and threads cost.

The record alone; `treadle.target.machine_rows` has one for each family of CPUs, with sources, and
`treadle.cost` the formulas over it. All times are cycles of one core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

K, M = 1 << 10, 1 << 20

STACK_BYTES = 1 * M
"""What one buffer of a kernel may take of a thread's stack where a system gives it: several times
as much."""

VECTOR_ISSUE = 8
"""Vector operations that a cycle has where no kernel has been seen to wait for a slot."""

FILL_BUFFERS = 24
"""Lines that level 1 waits for at once on Zen 3 to 5, and where it is not known."""

FETCH_BYTES = 64
"""What level 2 is filled by where no prefetcher completes pairs of lines, or it is not known."""

SHUFFLED_STRIDE = 4
"""Elements up to so far apart are read as whole vectors, one for each element of the stride, and
shuffled, on every machine; others one by one."""

DotRate = tuple[str, str, float]
"""Two element types, and how many of their products one lane of 32 bits adds up in the time of a
multiply-add."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A level of cache: bytes, what one core reads a cycle, how many cores share it.

    The rate is what a core reads during its arithmetic while the other cores read too, not the
    width of the path.
    """

    bytes: int
    bytes_per_cycle: float
    shared_by: int = 1

    @property
    def part(self) -> int:
        """The bytes of one core's part."""
        return self.bytes // self.shared_by


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The bytes that schedules count on: of level 1, of one core's part of level 2, of the last.

    Cores that share a cache near them run the same kernel, so that each has its part of it; the
    last level holds what the cores share, and is counted whole.
    """

    l1: int
    l2: int
    l3: int

    def __str__(self) -> str:
        """Return the sizes as `-caches=` of a target string takes them: "32K,1M,32M"."""
        return ",".join(map(size_text, (self.l1, self.l2, self.l3)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of a machine, all of one core unless said otherwise.

    `fma_units` multiply and add `fma_bits` each in a cycle, and a sum can be added to again after
    `fma_latency` cycles. `loads_per_cycle` of `load_bits` and `stores_per_cycle` of `store_bits`
    leave or enter the nearest cache; wider vectors take as many times as long. A cycle issues
    `vector_issue` vector operations, loads and broadcasts into registers among them: as many for a
    wider vector as it has parts of `fma_bits`. A core waits for as many lines at once as it has
    `fill_buffers`: loads that miss and hints take one each. Level 2 is filled by `fetch_bytes`: a
    line, or the pair of lines that a prefetcher completes. `iteration_cycles` is what an iteration
    of an inner loop takes beyond its arithmetic. `caches` are levels 1 to 3; where there are two,
    the last stands twice. `memory_bytes_per_cycle` is what a core reads from memory while few
    others do, `memory_latency` how long a read takes to answer. `remote_...` are of what another
    core has just written. `fork_cycles` pass until a loop has been handed to the threads and the
    last of them is done. `dot_rates` are the types of instructions that sum products of short
    elements. `stack_bytes` is what a buffer of a kernel may take of the stack of the thread that
    runs it; where there is no system, and the linker's script gives the stack, what all buffers
    that exist at once may take. `last_caches` is how many caches of the last level a chip has, or
    more: cores of two of them share none.
    """

    fma_units: int
    fma_bits: int
    fma_latency: int
    loads_per_cycle: int
    load_bits: int
    stores_per_cycle: int
    store_bits: int
    vector_issue: int = VECTOR_ISSUE
    fill_buffers: int = FILL_BUFFERS
    iteration_cycles: float
    line_bytes: int
    fetch_bytes: int = FETCH_BYTES
    page_bytes: int
    caches: tuple[Cache, Cache, Cache]
    memory_bytes_per_cycle: float
    memory_latency: int
    remote_bytes_per_cycle: float
    remote_latency: int
    fork_cycles: int
    dot_rates: tuple[DotRate, ...] = ()
    stack_bytes: int = STACK_BYTES
    last_caches: int = 1

    @property
    def sizes(self) -> CacheSizes:
        """The sizes of the caches as schedules count them."""
        first, middle, last = self.caches
        return CacheSizes(first.bytes, middle.part, last.bytes)

    def with_sizes(self, sizes: CacheSizes) -> Machine:
        """Return this machine with caches of other sizes, shared by as many cores."""
        first, middle, last = self.caches
        caches = (
            replace(first, bytes=sizes.l1),
            replace(middle, bytes=sizes.l2 * middle.shared_by),
            replace(last, bytes=sizes.l3),
        )
        return replace(self, caches=caches)

    def fmas_per_cycle(self, vector_bits: int) -> float:
        """Return how many multiply-adds of vectors of so many bits a cycle has."""
        return self.fma_units * min(1.0, self.fma_bits / vector_bits)

    def loads_of(self, vector_bits: int) -> float:
        """Return how many vectors of so many bits a core reads from its nearest cache a cycle."""
        return self.loads_per_cycle * min(1.0, self.load_bits / vector_bits)

    def stores_of(self, vector_bits: int) -> float:
        """Return how many vectors of so many bits a core writes to its nearest cache a cycle."""
        return self.stores_per_cycle * min(1.0, self.store_bits / vector_bits)

    def issued_per_cycle(self, vector_bits: int) -> float:
        """Return how many operations on vectors of so many bits a cycle issues, of any kind."""
        return self.vector_issue * min(1.0, self.fma_bits / vector_bits)

    def dot_rate(self, a: str, b: str) -> float | None:
        """Return how many products of elements of two types a 32-bit lane sums; None: it cannot."""
        return next((rate for x, y, rate in self.dot_rates if (x, y) == (a, b)), None)


def size_text(size: int) -> str:
    """Return bytes as target strings write them: 1048576 as "1M"."""
    for unit, bytes_ in (("M", M), ("K", K)):
        if size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return str(size)
