# SPDX-License-Identifier: Apache-2.0
"""What a search has proposed so far, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

from treadle.tune.space import SearchSpace

Candidate = TypeVar("Candidate", bound=Hashable)


class History(Generic[Candidate]):
    """The candidates of a space that were proposed or measured.

    `measured` are seconds, inf of what failed, in the order they came in.
    """

    def __init__(self, space: SearchSpace[Candidate], random: np.random.Generator) -> None:
        self.space = space
        self.random = random
        self.measured: dict[Candidate, float] = {}
        self._seen: set[Candidate] = set()

    def take(self, candidates: Iterable[Candidate], count: int) -> list[Candidate]:
        """Return the first `count` of candidates that were not proposed; now they are."""
        return list(islice(self._fresh(candidates), count))

    def _fresh(self, candidates: Iterable[Candidate]) -> Iterable[Candidate]:
        for candidate in candidates:
            if candidate not in self._seen:
                self._seen.add(candidate)
                yield candidate

    def is_seen(self, candidate: Candidate) -> bool:
        """Return whether a candidate was proposed or measured."""
        return candidate in self._seen

    def record(self, candidate: Candidate, seconds: float | None) -> None:
        """Keep what a candidate took, of several times the best; None tells nothing of it."""
        self._seen.add(candidate)
        if seconds is not None:
            taken = seconds if seconds > 0.0 else math.inf  # NaN counts as failed too
            self.measured[candidate] = min(taken, self.measured.get(candidate, math.inf))

    def best(self, count: int) -> list[Candidate]:
        """Return up to `count` of the fastest that did not fail, the fastest first."""
        ran = [(seconds, c) for c, seconds in self.measured.items() if seconds < math.inf]
        return [c for _, c in sorted(ran, key=lambda pair: pair[0])[:count]]
