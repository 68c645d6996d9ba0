# SPDX-License-Identifier: Apache-2.0
"""Which work is worth handing to several threads, and what uneven shares of it cost."""

from __future__ import annotations

from math import ceil
from typing import overload

import numpy as np
import numpy.typing as npt

from treadle.target.base import Target

_WORTHWHILE = 4
"""Work is shared from this many times what waking the threads costs."""
_STREAMS = 3
"""Of what an element-wise kernel reads and writes: two operands and a result."""

# Jobs that each core has at least where there is a choice of what a job is: with n of them a core
# that has one job less than another is idle for 1/n of the time at most. The larger the jobs, the
# less they cost besides; so each has its own least number.

STRIPS_PER_CORE = 2
"""Strips of columns that are summed: narrower ones read shorter runs of memory."""
HEADS_PER_CORE = 3
"""Heads of an attention: blocks of rows of one head read its keys and values again."""
CHANNELS_PER_CORE = 4
"""Channels of pooling: single rows would divide to find their place."""
PANELS_PER_CORE = 4
"""Groups of output channels of a convolution: panels of a group read the same data."""
ROWS_PER_CORE = 4
"""Rows of a chain of reductions: other schedules share a row among the cores."""
VECTOR_ROWS_PER_CORE = 16
"""Rows of vectors of an element-wise kernel: single vectors would divide to find their place."""


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


def least_unknown_elements() -> int:
    """Return `least_elements` of a machine of which nothing is known.

    For operators that are written by hand and say in what they compute whether it is shared.
    """
    return least_elements(Target("llvm"))


@overload
def unevenness(jobs: int, target: Target) -> float: ...
@overload
def unevenness(jobs: npt.NDArray[np.int64], target: Target) -> npt.NDArray[np.float64]: ...
def unevenness(
    jobs: int | npt.NDArray[np.int64], target: Target
) -> float | npt.NDArray[np.float64]:
    """Return how many times as long `jobs` equal jobs take the cores as if they shared evenly.

    Of several counts that are compared, one result for each.
    """
    return -(-jobs // target.cores) * target.cores / jobs
