# SPDX-License-Identifier: Apache-2.0
"""Searches guided by a score: simulated annealing and evolution over many unmeasured candidates.

Both look at thousands of candidates by score and ask for the best; a share is left to chance, so
that a model that is wrong meets what it does not know (epsilon-greedy). Annealing of many chains at
once is the search of AutoTVM (Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018),
evolution from the best measured ones that of Ansor (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from treadle.tune.cost_model import Scorer
from treadle.tune.genetic import Genetic
from treadle.tune.history import Candidate, History

_NOISE = 0.2
"""The scale of what chance adds to a learned score, in deviations: so that not all of a batch are
variants of the one that the model likes best."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a generation of an evolution came to; number 0 is the population it begins with.

    `scores` are those of the distinct new candidates met so far that would be measured, the best
    first. `changed` and `unchanged` count children per generation that differ from their parents,
    and those that do not. `seconds` are since the evolution began.
    """

    number: int
    is_last: bool
    size: int
    scores: Sequence[float]
    changed: int
    unchanged: int
    seconds: float


OnGeneration = Callable[[Generation], None]


class _Guide(Generic[Candidate]):
    """The score of candidates by all that was measured, and the best unmeasured ones seen."""

    def __init__(self, scorer: Scorer[Candidate], history: History[Candidate], fitted: int) -> None:
        self._scorer = scorer
        self._history = history
        self._found: dict[Candidate, float] = {}
        measured = history.measured
        if len(measured) > fitted:
            scorer.fit(list(measured), list(measured.values()))
        self.fitted = len(measured)

    def score(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return the scores of candidates, and remember them."""
        scores = self._scorer.score(candidates)
        self._found.update(zip(candidates, scores.tolist(), strict=True))
        return scores

    def best_scores(self, count: int) -> list[float]:
        """Return the scores of the best new candidates seen, the best first."""
        new = (s for c, s in self._found.items() if not self._history.is_seen(c))
        return sorted(new, reverse=True)[:count]

    def wishes(self, count: int, chance: float) -> list[Candidate]:
        """Return the best new ones, so many that a share of `count` is left to chance."""
        random = self._history.random
        fresh = [c for c in self._found if not self._history.is_seen(c)]
        scores = np.array([self._found[c] for c in fresh])
        noise = _NOISE if self._scorer.is_fitted else 0.0
        order = np.argsort(-(scores + random.gumbel(scale=noise, size=len(fresh))), kind="stable")
        kept = int((random.random(count) >= chance).sum())
        return [fresh[i] for i in order[:kept].tolist()]


class _Tally(Generic[Candidate]):
    """Counts what changes from one generation to the next, where somebody wants to know."""

    def __init__(
        self,
        guide: _Guide[Candidate],
        wanted: int,
        generations: int,
        on_generation: OnGeneration | None,
    ) -> None:
        self._guide = guide
        self._wanted = wanted
        self._generations = generations
        self._on_generation = on_generation
        self._start = time.perf_counter()
        self._before: set[Candidate] | None = None
        self._changed = self._bred = 0

    def tell(self, number: int, population: Sequence[Candidate]) -> None:
        """Tell of a generation that has been scored."""
        if self._on_generation is None:
            return
        if self._before is not None:
            self._bred += len(population)
            self._changed += sum(c not in self._before for c in population)
        self._before = set(population)
        per = max(number, 1)
        self._on_generation(
            Generation(
                number,
                number == self._generations,
                len(population),
                self._guide.best_scores(self._wanted),
                self._changed // per,
                (self._bred - self._changed) // per,
                time.perf_counter() - self._start,
            )
        )


class Evolutionary(Generic[Candidate]):
    """Lets a population evolve by score for some generations.

    It begins with the fastest measured ones and others drawn at random. The parents of the next
    generation are the better of three drawn (tournaments); a tenth stays as it is. While no model
    has learned anything, half of what it wants are children of measured ones (`Genetic`): estimates
    that are wrong would never be found out.
    """

    uses_start = True

    def __init__(
        self,
        scorer: Scorer[Candidate],
        *,
        population: int = 384,
        generations: int = 4,
        chance: float = 0.1,
        crossed: float = 0.2,
        on_generation: OnGeneration | None = None,
    ) -> None:
        """`on_generation` is told of each generation when it has been scored."""
        self._on_generation = on_generation
        self._scorer = scorer
        self._population = population
        self._generations = generations
        self._chance = chance
        self._crossed = crossed
        self._unguided: Genetic[Candidate] = Genetic(chance=0.0)
        self._fitted = 0

    def learn(self, history: History[Candidate]) -> None:
        """Fit the model to what has been measured."""
        self._fitted = _Guide(self._scorer, history, self._fitted).fitted

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return the best by score of all generations."""
        guide = _Guide(self._scorer, history, self._fitted)
        self._fitted = guide.fitted
        tally = _Tally(guide, 2 * count, self._generations, self._on_generation)
        best = history.best(self._population // 8)
        drawn = history.space.sample(self._population - len(best), history.random)
        population = [*best, *drawn]
        for number in range(self._generations):
            scores = guide.score(population)
            tally.tell(number, population)
            if not population:
                break
            population = self._next(history, population, scores)
        guide.score(population)
        tally.tell(self._generations, population)
        if self._scorer.is_fitted:
            return guide.wishes(count, self._chance)
        half = guide.wishes(count - count // 2, self._chance)
        return chain(half, self._unguided.pick(history, count // 2))

    def _next(
        self,
        history: History[Candidate],
        population: Sequence[Candidate],
        scores: NDArray[np.float64],
    ) -> list[Candidate]:
        random, space = history.random, history.space
        elite = np.argsort(-scores, kind="stable")[: self._population // 10]
        children = self._population - len(elite)
        crossed = int(children * self._crossed)
        parents = _winners(population, scores, children + crossed, random)
        mothers, fathers, others = (
            parents[:crossed],
            parents[crossed : 2 * crossed],
            parents[2 * crossed :],
        )
        return [
            *(population[i] for i in elite.tolist()),
            *space.cross(mothers, fathers, random),
            *space.mutate(others, random),
        ]


def _winners(
    population: Sequence[Candidate],
    scores: NDArray[np.float64],
    count: int,
    random: np.random.Generator,
) -> list[Candidate]:
    """Return `count` winners of tournaments of three."""
    drawn = random.integers(len(population), size=(count, 3))
    best = drawn[np.arange(count), scores[drawn].argmax(axis=1)]
    return [population[i] for i in best.tolist()]


class Annealing(Generic[Candidate]):
    """Lets many chains walk by mutation, each step taken that is better, or not much worse.

    How much worse falls from a deviation of the scores to nothing. Chains go on where they were
    at the last proposal.
    """

    uses_start = True

    def __init__(
        self,
        scorer: Scorer[Candidate],
        *,
        chains: int = 96,
        steps: int = 16,
        chance: float = 0.1,
    ) -> None:
        self._scorer = scorer
        self._count = chains
        self._steps = steps
        self._chance = chance
        self._chains: list[Candidate] = []
        self._fitted = 0

    def learn(self, history: History[Candidate]) -> None:
        """Fit the model to what has been measured."""
        self._fitted = _Guide(self._scorer, history, self._fitted).fitted

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return the best by score of all that the chains have met."""
        guide = _Guide(self._scorer, history, self._fitted)
        self._fitted = guide.fitted
        random = history.random
        best = history.best(self._count // 8)
        kept = self._chains[: self._count - len(best)]
        drawn = history.space.sample(self._count - len(best) - len(kept), random)
        chains = [*best, *kept, *drawn]
        scores = guide.score(chains)
        for step in range(self._steps if chains else 0):
            heat = 1.0 - step / self._steps
            moved = history.space.mutate(chains, random)
            after = guide.score(moved)
            gain = np.minimum((after - scores) / heat, 0.0)
            takes = random.random(len(chains)) < np.exp(gain)
            chains = [m if t else c for c, m, t in zip(chains, moved, takes, strict=True)]
            scores = np.where(takes, after, scores)
        self._chains = chains[len(best) :]
        return guide.wishes(count, self._chance)
