# SPDX-License-Identifier: Apache-2.0
"""What was decided kernel by kernel, tried in the model: in its place, with its neighbours' caches.

A kernel that is faster alone may be slower where its operands come from another core's cache. Both
models run alternately, instruction by instruction; a kernel that gained nothing goes back to its
default. What is left is taken where the model is faster by more than chance: of two equal models
one is always ahead by a little. A gain of a percent is less than the noise of whole runs, but not
of the kernels that were changed: where whole runs leave it open, these decide.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from treadle.build.executable import Executable
from treadle.runtime.array import NDArray

_SECONDS, _MOST_SECONDS, _PART = 4.0, 15.0, 1 / 40
"""A comparison takes such a part of the time that was spent on tuning, within these seconds."""
_LEAST_ROUNDS, _MOST_ROUNDS = 15, 1000
_LONGER = 3
"""So many times the seconds may be spent where it is not clear which model is faster."""
_DEVIATIONS = 1.64
"""By how many standard deviations a model is ahead that is faster; one in twenty equal ones is."""
_EVEN = 1.0
"""A kernel is kept when it takes at most this share of its default's time."""
_DIGITS = 9
"""Changes are logarithms of ratios; what differs in later digits is rounding."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of whole runs before and after tuning, and the share of time that is left.

    `share` is that of the whole model; `ratios` holds for each kernel what it took after tuning by
    what it took before, one figure per round. `whole` and `kernels` say of whole runs, and of the
    compared kernels together, whether they are faster (-1) or slower (1) by more than chance.
    """

    before: float
    after: float
    share: float
    ratios: Mapping[str, Sequence[float]]
    whole: int = 0
    kernels: int = 0

    @property
    def is_faster(self) -> bool:
        """True where the model takes less time after tuning, and not by chance.

        Where that is open for whole runs, they must not take longer, and the kernels take less.
        """
        return self.share < 1 and (self.whole or self.kernels) < 0

    @property
    def is_sure(self) -> bool:
        """True where whole runs are faster, or slower, by more than chance."""
        return self.whole != 0


@dataclass(slots=True)
class Evidence:
    """What each kernel took in the model by what its default took, over all comparisons."""

    ratios: dict[str, list[float]] = field(default_factory=dict)

    def add(self, found: Comparison) -> None:
        """Take in the rounds of a comparison."""
        for name, ratios in found.ratios.items():
            self.ratios.setdefault(name, []).extend(ratios)

    def slower(self, names: Sequence[str]) -> list[str]:
        """Return those of some kernels that take longer in the model than their defaults."""
        return [n for n in names if n in self.ratios and np.median(self.ratios[n]) > _EVEN]


def seconds_for(tuned: float) -> float:
    """Return how long to compare two models after so many seconds of tuning."""
    return min(max(_SECONDS, _PART * tuned), _MOST_SECONDS)


def compared(
    before: Executable,
    after: Executable,
    inputs: Mapping[str, NDArray],
    names: Sequence[str],
    seconds: float = _SECONDS,
) -> Comparison:
    """Run two compilations of one model alternately; compare whole runs and the kernels `names`.

    The share is the median over rounds of the ratio within a round; whole runs are medians. It
    takes about `seconds`, longer where it is not clear by then which one is faster.
    """
    rounds = _Rounds({name: [] for name in names})
    pair = (before, after)
    for model in pair:
        model.run(inputs)
    start = time.monotonic()
    while rounds.go_on(time.monotonic() - start, seconds):
        order = (0, 1) if rounds.count % 2 else (1, 0)
        whole, spent = [0.0, 0.0], [dict[str, float](), dict[str, float]()]
        for side in order:
            whole[side] = _run(pair[side], inputs)
            spent[side] = _by_kernel(pair[side], inputs) if names else {}
        rounds.add(whole, spent)
    return rounds.comparison()


@dataclass(slots=True)
class _Rounds:
    """Seconds of each round: of whole runs, before and after, and of kernels."""

    ratios: dict[str, list[float]]
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    change: list[float] = field(default_factory=list)
    """What the kernels take after by what they take before, all together: its logarithm."""

    @property
    def count(self) -> int:
        return len(self.before)

    def add(self, whole: Sequence[float], spent: Sequence[Mapping[str, float]]) -> None:
        """Take in a round: seconds of a whole run and of each kernel, before and after."""
        self.before.append(whole[0])
        self.after.append(whole[1])
        both = [0.0, 0.0]
        for name, ratios in self.ratios.items():
            old, new = spent[0].get(name, 0.0), spent[1].get(name, 0.0)
            if old:
                ratios.append(new / old)
                both = [both[0] + old, both[1] + new]
        self.change.append(math.log(both[1] / both[0]) if all(both) else 0.0)

    def go_on(self, spent: float, seconds: float) -> bool:
        """Return whether another round is needed, `spent` seconds after the start."""
        if self.count < _LEAST_ROUNDS:
            return True
        if self.count >= _MOST_ROUNDS or spent >= _LONGER * seconds:
            return False
        return spent < seconds or not (self._whole() or _sign(self.change))

    def _whole(self) -> int:
        return _sign([math.log(n / o) for o, n in zip(self.before, self.after, strict=True)])

    def comparison(self) -> Comparison:
        """Return what the rounds say."""
        old, new = np.asarray(self.before), np.asarray(self.after)
        return Comparison(
            float(np.median(old)),
            float(np.median(new)),
            float(np.median(new / old)),
            {name: r for name, r in self.ratios.items() if r},
            self._whole(),
            _sign(self.change),
        )


def _sign(changes: Sequence[float]) -> int:
    """Return -1 where paired changes are below 0 by more than chance, 1 where above, else 0.

    The signed ranks of Wilcoxon (Individual comparisons by ranking methods, 1945): how far a change
    is from 0 counts by its rank, so that a round in which something else ran counts like others.
    Changes of 0 count for neither, equal ones share their ranks.
    """
    found = np.asarray([c for c in np.round(changes, _DIGITS) if c])
    count = len(found)
    _, place, alike = np.unique(np.abs(found), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(alike) - (alike - 1) / 2)[place]
    beyond = count * (count + 1) / 4 - float(np.sum(ranks[found > 0]))
    deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    if not count or abs(beyond) < _DEVIATIONS * deviation:
        return 0
    return -1 if beyond > 0 else 1


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
