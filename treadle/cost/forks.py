# SPDX-License-Identifier: Apache-2.0
"""Which work is worth handing to several threads, and what uneven shares of it cost."""

from __future__ import annotations

from math import ceil

from treadle.target.base import Target

_WORTHWHILE = 4
"""Work is shared from this many times what waking the threads costs."""
_STREAMS = 3
"""Of what an element-wise kernel reads and writes: two operands and a result."""


def fork_cycles(target: Target) -> float:
    """Return the cycles to hand a loop to the threads and wait for the last of them."""
    return target.machine.fork_cycles


def is_worth_forking(cycles: float, target: Target) -> bool:
    """True for work of so many cycles of one core that sharing it saves time."""
    return cycles >= _WORTHWHILE * target.machine.fork_cycles


def least_elements(target: Target, itemsize: int = 4) -> int:
    """Return the elements from which a stage that computes little is worth sharing.

    It takes as long as its operands and its result take to and from the last level of cache.
    """
    rate = target.machine.caches[-1].bytes_per_cycle
    return ceil(_WORTHWHILE * target.machine.fork_cycles * rate / (_STREAMS * itemsize))


def unevenness(jobs: int, target: Target) -> float:
    """Return how many times as long `jobs` equal jobs take the cores as if they shared evenly."""
    return ceil(jobs / target.cores) * target.cores / jobs
