# SPDX-License-Identifier: Apache-2.0
"""Searches: which candidates of a space to measure next, by what the measured ones took.

A `Search` keeps the account: what was proposed, what it took, what is left. A `Strategy` says what
it would like to see next; what it has no wish for is filled with candidates drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol

import numpy as np

from treadle.errors import UsageError
from treadle.tune.cost_model import CostModel, Scorer
from treadle.tune.genetic import Genetic
from treadle.tune.guided import Annealing, Evolutionary
from treadle.tune.history import Candidate, History
from treadle.tune.space import SearchSpace

_FEWEST_DRAWN = 64
_MOST_DRAWS = 16


class Strategy(Protocol[Candidate]):
    """What a search would measure next."""

    @property
    def uses_start(self) -> bool:
        """Whether all first candidates of the space are proposed first, else only the default."""

    def learn(self, history: History[Candidate]) -> None:
        """Fit what guides it to what has been measured; `pick` does so, too, where it is new."""

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return candidates, the most wanted first; those already proposed are passed over."""


class Search(Generic[Candidate]):
    """Proposes the candidates of a space, each once, and learns what they took.

    >>> search = make_search("evolutionary", space, np.random.default_rng(0), TreeModel())
    >>> while batch := search.propose(16):
    ...     search.tell(batch, measure(batch))
    """

    def __init__(
        self,
        space: SearchSpace[Candidate],
        random: np.random.Generator,
        strategy: Strategy[Candidate],
    ) -> None:
        self._history = History(space, random)
        self._strategy = strategy
        self._suggested: list[Candidate] = []
        self._start: list[Candidate] | None = None
        self._all: Iterator[Candidate] | None = None

    def draw_from(self, random: np.random.Generator) -> None:
        """Take random numbers from another generator from now on."""
        self._history.random = random

    def propose(self, count: int) -> list[Candidate]:
        """Return `count` candidates to measure, none of them twice in the life of the search.

        Fewer mean that there are no others. The first is that with which the space begins, the
        default schedule where there is one; what was suggested follows.
        """
        history = self._history
        found = history.take(self._first(), count)
        if len(found) < count:
            found += history.take(
                self._strategy.pick(history, count - len(found)), count - len(found)
            )
        while len(found) < count and (more := self._draw(count - len(found))):
            found += more
        return found

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        """Take what candidates took: inf where one failed, None where it was not measured."""
        for candidate, time in zip(candidates, seconds, strict=True):
            self._history.record(candidate, time)

    def learn(self) -> None:
        """Fit what guides the search to all it was told; a proposal does so at the latest."""
        self._strategy.learn(self._history)

    def preload(self, candidates: Sequence[Candidate], seconds: Sequence[float | None]) -> None:
        """Take what candidates took in an earlier run of this task: none is proposed again."""
        self.tell(candidates, seconds)

    def suggest(self, candidates: Iterable[Candidate]) -> None:
        """Let candidates be proposed early: the best of similar tasks, the best first."""
        self._suggested += candidates

    def _first(self) -> Iterator[Candidate]:
        if self._start is None:
            self._start = self._history.space.start()
        yield from self._start[:1]
        yield from self._suggested
        if self._strategy.uses_start:
            yield from self._start[1:]

    def _draw(self, count: int) -> list[Candidate]:
        """Return candidates drawn at random, or where those are all known, any that are left."""
        history = self._history
        for _ in range(_MOST_DRAWS):
            drawn = history.space.sample(max(_FEWEST_DRAWN, 2 * count), history.random)
            if found := history.take(drawn, count):
                return found
        if self._all is None:
            self._all = iter(history.space)
        return history.take(self._all, count)


class RandomStrategy(Generic[Candidate]):
    """Wants nothing: all is drawn at random."""

    uses_start = False

    def learn(self, history: History[Candidate]) -> None:
        """Learn nothing."""

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return nothing."""
        return ()


class Grid(Generic[Candidate]):
    """Takes the candidates in the order of the space."""

    uses_start = False

    def __init__(self) -> None:
        self._all: Iterator[Candidate] | None = None

    def learn(self, history: History[Candidate]) -> None:
        """Learn nothing."""

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return those that come next."""
        if self._all is None:
            self._all = iter(history.space)
        return self._all


SEARCHES = ("random", "grid", "genetic", "annealing", "evolutionary")
"""The names `make_search` knows."""


def make_search(
    name: str,
    space: SearchSpace[Candidate],
    random: np.random.Generator,
    model: CostModel | None = None,
) -> Search[Candidate]:
    """Return the search of a name over a space.

    `model` guides "annealing" and "evolutionary", which fit it to what they are told; without one
    the space's own estimates do. The same space, random numbers and times give the same proposals.

    Raises: UsageError where there is no such search.
    """
    scorer = Scorer(space, model)
    makers: dict[str, Callable[[], Strategy[Candidate]]] = {
        "random": RandomStrategy,
        "grid": Grid,
        "genetic": Genetic,
        "annealing": lambda: Annealing(scorer),
        "evolutionary": lambda: Evolutionary(scorer),
    }
    if name not in makers:
        raise UsageError(f"there is no search {name!r}", hint=f"there is {', '.join(SEARCHES)}")
    return Search(space, random, makers[name]())
