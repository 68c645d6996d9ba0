# SPDX-License-Identifier: Apache-2.0
"""Genetic search: children of the fastest measured candidates, without a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

import numpy as np

from treadle.tune.history import Candidate, History

_FEWEST_PARENTS = 8
_ROUNDS = 4
"""Children that are known already are replaced so often."""


class Genetic(Generic[Candidate]):
    """Crosses pairs of the `population` fastest, chosen by their speed, and mutates some children.

    The fastest stay parents until faster ones are measured (an elite of the whole population), so
    there are no generations to wait for. Until 8 have run, candidates are drawn at random.
    """

    uses_start = True

    def __init__(self, population: int = 64, mutated: float = 0.5) -> None:
        self._population = population
        self._mutated = mutated

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Yield children until there are enough new ones, or only known ones are born."""
        parents = history.best(self._population)
        if len(parents) < _FEWEST_PARENTS:
            return
        speed = 1.0 / np.array([history.measured[p] for p in parents])
        chance = speed / speed.sum()
        for _ in range(_ROUNDS):
            pairs = history.random.choice(len(parents), size=(2, 2 * count), p=chance)
            first, second = ([parents[i] for i in side] for side in pairs.tolist())
            children = history.space.cross(first, second, history.random)
            changed = history.space.mutate(children, history.random)
            is_changed = history.random.random(len(children)) < self._mutated
            yield from (
                m if x else c for c, m, x in zip(children, changed, is_changed, strict=True)
            )
