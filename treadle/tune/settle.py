# SPDX-License-Identifier: Apache-2.0
"""What was decided kernel by kernel, tried in the model: in its place, with its neighbours' caches.

A kernel that is faster alone may be slower where its operands come from another core's cache. Both
models run alternately, instruction by instruction; a kernel that gained nothing goes back to its
default. What is left is taken where the whole model is faster by more than chance: of two equal
models one is always ahead by a little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treadle.build.executable import Executable
from treadle.runtime.array import NDArray

_SECONDS, _LEAST_ROUNDS, _MOST_ROUNDS = 4.0, 15, 200
_LONGER = 3
"""So many times the seconds may be spent where it is not clear which model is faster."""
_DEVIATIONS = 1.64
"""Rounds that a model must win beyond half of them: one in twenty pairs of equal models does."""
_EVEN = 1.0
"""A kernel is kept when it takes at most this share of its default's time."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of whole runs before and after tuning, and the share of time that is left.

    `share` is that of the whole model, `kernels` that of each kernel: what it takes after tuning
    by what it took before. `is_sure` says that the whole is faster, or slower, by more than chance.
    """

    before: float
    after: float
    share: float
    kernels: Mapping[str, float]
    is_sure: bool = True

    @property
    def is_faster(self) -> bool:
        """True where the model takes less time after tuning, and not by chance."""
        return self.share < 1 and self.is_sure

    @property
    def slower(self) -> list[str]:
        """The kernels that take longer in the model than by default."""
        return [name for name, share in self.kernels.items() if share > _EVEN]


def compared(
    before: Executable,
    after: Executable,
    inputs: Mapping[str, NDArray],
    names: Sequence[str],
    seconds: float = _SECONDS,
) -> Comparison:
    """Run two compilations of one model alternately; compare whole runs and the kernels `names`.

    Shares are medians over rounds of the ratio within a round; whole runs are medians. It takes
    about `seconds`, longer where it is not clear by then which one is faster.
    """
    runs: tuple[list[float], list[float]] = ([], [])
    shares: dict[str, list[float]] = {name: [] for name in names}
    pair = (before, after)
    for model in pair:
        model.run(inputs)
    start = time.monotonic()
    while _goes_on(runs, time.monotonic() - start, seconds):
        order = (0, 1) if len(runs[0]) % 2 else (1, 0)
        spent: list[dict[str, float]] = [{}, {}]
        for side in order:
            runs[side].append(_run(pair[side], inputs))
            spent[side] = _by_kernel(pair[side], inputs)
        for name in names:
            if spent[0].get(name):
                shares[name].append(spent[1].get(name, 0.0) / spent[0][name])
    kernels = {name: float(np.median(s)) for name, s in shares.items() if s}
    old, new = np.asarray(runs[0]), np.asarray(runs[1])
    share = float(np.median(new / old))
    sure = _is_sure(runs)
    return Comparison(float(np.median(old)), float(np.median(new)), share, kernels, sure)


def _goes_on(runs: tuple[list[float], list[float]], spent: float, seconds: float) -> bool:
    """Return whether another round is needed."""
    rounds = len(runs[0])
    if rounds < _LEAST_ROUNDS:
        return True
    if rounds >= _MOST_ROUNDS or spent >= _LONGER * seconds:
        return False
    return spent < seconds or not _is_sure(runs)


def _is_sure(runs: tuple[list[float], list[float]]) -> bool:
    """Return whether one of two has been faster too often for equals (a test of signs)."""
    won = sum(new < old for old, new in zip(*runs, strict=True))
    rounds = len(runs[0])
    return abs(won - rounds / 2) >= _DEVIATIONS * math.sqrt(rounds) / 2


def _run(model: Executable, inputs: Mapping[str, NDArray]) -> float:
    model.run(inputs)
    start = time.perf_counter()
    model.run(inputs)
    return time.perf_counter() - start


def _by_kernel(model: Executable, inputs: Mapping[str, NDArray]) -> dict[str, float]:
    """Return the seconds of one run that each kernel takes."""
    found: dict[str, float] = {}
    for row in model.profile(inputs, 1):
        found[row.kernel] = found.get(row.kernel, 0.0) + row.mean
    return found
