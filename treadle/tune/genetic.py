# SPDX-License-Identifier: Apache-2.0
"""Genetic search: children of the fastest measured candidates, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic

import numpy as np

from treadle.tune.history import Candidate, History

_FEWEST_PARENTS = 16
_ROUNDS = 4
"""Children that are known already are replaced so often."""


class Genetic(Generic[Candidate]):
    """Crosses pairs of the `population` fastest, and mutates some of their children.

    The k-th fastest is chosen with weight 1/k. The fastest stay parents until faster ones are
    measured (an elite of the whole population), so there are no generations to wait for. Until 16
    have run, candidates are drawn at random, and of those after them a quarter, so that the
    population does not become all alike. With `elite`, parents are the `population` measured last,
    as in generations, and of those before them the `elite` fastest alone.
    """

    uses_start = True

    def __init__(
        self,
        population: int = 48,
        mutated: float = 0.5,
        chance: float = 0.25,
        elite: int | None = None,
    ) -> None:
        self._population = population
        self._mutated = mutated
        self._chance = chance
        self._elite = elite

    def learn(self, history: History[Candidate]) -> None:
        """Learn nothing: parents are chosen when children are wanted."""

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return children; some places are left to chance."""
        wanted = int((history.random.random(count) >= self._chance).sum())
        return islice(self._children(history, count), wanted)

    def _parents(self, history: History[Candidate]) -> list[Candidate]:
        """Return the fastest first."""
        if self._elite is None:
            return history.best(self._population)
        latest = {*list(history.measured)[-self._population :], *history.best(self._elite)}
        return [c for c in history.best(len(history.measured)) if c in latest]

    def _children(self, history: History[Candidate], count: int) -> Iterator[Candidate]:
        """Yield new children until only known ones are born."""
        parents = self._parents(history)
        if len(parents) < min(_FEWEST_PARENTS, self._population):
            return
        rank = 1.0 / np.arange(1, len(parents) + 1)
        chance = rank / rank.sum()
        for _ in range(_ROUNDS):
            pairs = history.random.choice(len(parents), size=(2, 2 * count), p=chance)
            first, second = ([parents[i] for i in side] for side in pairs.tolist())
            children = history.space.cross(first, second, history.random)
            changed = history.space.mutate(children, history.random)
            is_changed = history.random.random(len(children)) < self._mutated
            yield from (
                m if x else c for c, m, x in zip(children, changed, is_changed, strict=True)
            )
