# SPDX-License-Identifier: Apache-2.0
"""Numbers for the examples of operators: without a pattern, and the same wherever they are made.

They are made whenever the operators are imported, for which NumPy's generators are too heavy: who
compiles would wait for them, and have five megabytes more in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np


def uniform(shape: Sequence[int], low: float, high: float, seed: int = 0) -> np.ndarray:
    """Return float64[shape] from `low` on, below `high`."""
    parts = (_words(shape, seed) >> np.uint64(11)) * 2.0**-53  # what a float64 holds
    return low + np.asarray(parts) * (high - low)


def integers(shape: Sequence[int], low: int, high: int, seed: int = 0) -> np.ndarray:
    """Return int64[shape] from `low` on, below `high`."""
    found = (_words(shape, seed) % np.uint64(high - low)).astype(np.int64)
    return np.asarray(low + found)


def _words(shape: Sequence[int], seed: int) -> np.ndarray:
    """Return uint64[shape] of SplitMix64, which counts modulo 2**64 and mixes the bits."""
    step = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio
    start = np.uint64((seed + 1) * step % (1 << 64))
    words = start + np.arange(prod(shape), dtype=np.uint64) * np.uint64(step)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(words ^ (words >> np.uint64(31))).reshape(shape)
