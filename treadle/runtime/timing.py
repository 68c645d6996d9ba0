# SPDX-License-Identifier: Apache-2.0
"""Timing: how often to call, what the figures are, and arguments that no cache holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from treadle.errors import UsageError

_LEAST_EVICTED, _MOST_EVICTED = 64 << 20, 1 << 30
"""Bytes that are written to drive others out of the caches; twice the last cache in between."""


@dataclass(frozen=True)
class BenchmarkResult:
    """Seconds per call, one figure per repeat; prints as the summary table in milliseconds."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Arithmetic mean in seconds."""
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        """Median in seconds."""
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        """Smallest in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """Largest in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation (of the population) in seconds."""
        return float(np.std(self.results))

    def __str__(self) -> str:
        names = ("mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)")
        values = (self.mean, self.median, self.max, self.min, self.std)
        head = " ".join(f"{name:^12}" for name in names)
        row = " ".join(f"{value * 1e3:^12.4f}" for value in values)
        return f"Execution time summary:\n{head}\n{row}"


def measure(
    time: Callable[[int], float], number: int, repeat: int, min_repeat_ms: float
) -> BenchmarkResult:
    """Call `time(number) -> seconds` once to warm up, then `repeat` times.

    `number` grows until one repeat takes `min_repeat_ms`.
    """
    if number < 1 or repeat < 1 or min_repeat_ms < 0:
        raise UsageError(
            f"number={number}, repeat={repeat}, min_repeat_ms={min_repeat_ms} cannot be measured",
            hint="number and repeat are 1 or more, min_repeat_ms is 0 or more",
        )
    time(1)
    results = []
    for _ in range(repeat):
        seconds = time(number)
        while seconds * 1e3 < min_repeat_ms:
            wanted = min_repeat_ms / max(seconds * 1e3 / number, 1e-6) + 1
            number = int(max(min(wanted, number * 1000.0), number * 1.618 + 1))
            seconds = time(number)
        results.append(seconds / number)
    return BenchmarkResult(tuple(results))


def out_of_cache(
    time: Callable[[int], float], memory: Sequence[np.ndarray]
) -> Callable[[int], float]:
    """Return `time` with `memory` (writable bytes) driven out of the caches before every call.

    Every byte is written as it is, which takes its line from the caches of other cores; then other
    memory, more than the last cache holds, is written over it.
    """

    def cold(number: int) -> float:
        total = 0.0
        for _ in range(number):
            for flat in memory:
                np.bitwise_or(flat, 0, out=flat)
            other = _other_memory()
            np.add(other, 1, out=other)
            total += time(1)
        return total

    return cold


@cache
def _other_memory() -> np.ndarray:
    last = _last_cache_bytes()
    return np.zeros(min(max(2 * last, _LEAST_EVICTED), _MOST_EVICTED), np.uint8)


def _last_cache_bytes() -> int:
    """Return the size of the last cache; 0 where the system does not say."""
    try:
        return max(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 0)
    except (ValueError, OSError):
        return 0
