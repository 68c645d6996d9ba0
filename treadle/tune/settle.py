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

_SECONDS, _LEAST_ROUNDS, _MOST_ROUNDS = 4.0, 15, 1000
_LONGER = 3
"""So many times the seconds may be spent where it is not clear which model is faster."""
_DEVIATIONS = 1.64
"""Rounds that a model must win beyond half of them: one in twenty pairs of equal models does."""
_EVEN = 1.0
"""A kernel is kept when it takes at most this share of its default's time."""


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
    """What the kernels take more after than before, all together."""

    @property
    def count(self) -> int:
        return len(self.before)

    def add(self, whole: Sequence[float], spent: Sequence[Mapping[str, float]]) -> None:
        """Take in a round: seconds of a whole run and of each kernel, before and after."""
        self.before.append(whole[0])
        self.after.append(whole[1])
        change = 0.0
        for name, ratios in self.ratios.items():
            old, new = spent[0].get(name, 0.0), spent[1].get(name, 0.0)
            if old:
                ratios.append(new / old)
                change += new - old
        self.change.append(change)

    def go_on(self, spent: float, seconds: float) -> bool:
        """Return whether another round is needed, `spent` seconds after the start."""
        if self.count < _LEAST_ROUNDS:
            return True
        if self.count >= _MOST_ROUNDS or spent >= _LONGER * seconds:
            return False
        return spent < seconds or not (self._whole() or _sign(self.change))

    def _whole(self) -> int:
        return _sign([new - old for old, new in zip(self.before, self.after, strict=True)])

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
    """Return -1 where changes are less than 0 too often for chance, 1 where greater, else 0.

    The sign test; see Conover, Practical Nonparametric Statistics, section 3.4. Changes of 0 count
    for neither.
    """
    less = sum(c < 0 for c in changes)
    count = less + sum(c > 0 for c in changes)
    beyond = less - count / 2
    if not count or abs(beyond) < _DEVIATIONS * math.sqrt(count) / 2:
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
