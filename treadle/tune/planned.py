# SPDX-License-Identifier: Apache-2.0
"""Plans: what a strategy wishes for, ranked once more by loop nests and chosen to be diverse.

The plans, and the choice of diverse candidates among the best, are those of AutoTVM (Chen et al.,
"Learning to Optimize Tensor Programs", NeurIPS 2018, sections 3.2 and 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from treadle.tune.cost_model import CostModel
from treadle.tune.history import Candidate, History
from treadle.tune.search import Strategy
from treadle.tune.space import Floats

_SHORTEST = 8
_OVERSAMPLED = 2
"""So many times the plan are ranked by their loops."""
_NOVELTY = 0.1
"""What a value that no other of the plan has is worth, as a share of the range of the scores."""

Describe = Callable[[Candidate], Floats | None]
"""Returns the features of a candidate's loops; None where it turns out to be none."""


class LoopRanker(Generic[Candidate]):
    """Ranks candidates by a model that has learned from the loop nests of the measured ones.

    `describe` may take long (it lowers a candidate): what it said of one is kept.
    """

    def __init__(self, describe: Describe[Candidate], model: CostModel) -> None:
        self._describe = describe
        self._model = model
        self._known: dict[Candidate, Floats | None] = {}

    def order(self, history: History[Candidate], wanted: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates, the most promising first; as they are while nothing is learned."""
        measured = [(r, history.measured[c]) for c, r in self._rows(history.measured)]
        rows = self._rows(wanted)
        if not measured or not rows:
            return list(wanted)
        self._model.fit(np.stack([r for r, _ in measured]), [t for _, t in measured])
        if not self._model.is_fitted:
            return list(wanted)
        scores = self._model.predict(np.stack([r for _, r in rows]))
        places = np.argsort(-scores, kind="stable").tolist()
        return [rows[place][0] for place in places]

    def _rows(self, candidates: Iterable[Candidate]) -> list[tuple[Candidate, Floats]]:
        found: list[tuple[Candidate, Floats]] = []
        for candidate in candidates:
            if candidate not in self._known:
                self._known[candidate] = self._describe(candidate)
            row = self._known[candidate]
            if row is not None:
                found.append((candidate, row))
        return found


class Planned(Generic[Candidate]):
    """Lets a strategy plan several batches at once, up to `size` candidates.

    A plan is as long as what was measured before it, but at least 8: while little is known, it is
    made anew often. With `diversity` above 1, so many times the plan are asked for, and those taken
    that are both promising and unlike each other.
    """

    def __init__(
        self,
        strategy: Strategy[Candidate],
        size: int,
        *,
        ranker: LoopRanker[Candidate] | None = None,
        diversity: float | None = None,
    ) -> None:
        self._strategy = strategy
        self._size = size
        self._ranker = ranker
        self._diversity = diversity
        self._plan: list[Candidate] = []

    @property
    def uses_start(self) -> bool:
        """As the strategy says."""
        return self._strategy.uses_start

    def learn(self, history: History[Candidate]) -> None:
        """Learn as the strategy does."""
        self._strategy.learn(history)

    def pick(self, history: History[Candidate], count: int) -> Iterable[Candidate]:
        """Return the next of the plan."""
        self._plan = [c for c in self._plan if not history.is_seen(c)]
        if len(self._plan) < count:
            length = max(count, min(self._size, max(_SHORTEST, len(history.measured))))
            self._plan = self._made(history, length)
        return self._plan[:count]

    def _made(self, history: History[Candidate], length: int) -> list[Candidate]:
        more = max(self._diversity or 1.0, _OVERSAMPLED if self._ranker is not None else 1.0)
        found = list(dict.fromkeys(self._strategy.pick(history, int(more * length))))
        if self._ranker is not None:
            found = self._ranker.order(history, found)
        if self._diversity is not None and self._diversity > 1:
            found = diverse(found[: int(self._diversity * length)], history.space.features, length)
        return found[:length]


def diverse(
    ranked: Sequence[Candidate], features: Callable[[Sequence[Candidate]], Floats], count: int
) -> list[Candidate]:
    """Return `count` of candidates given the best first: those that bring values no other has.

    Greedy for the sum of their ranks and of the distinct values in their columns (submodular: Chen
    et al., section 3.3).
    """
    if len(ranked) <= count:
        return list(ranked)
    columns = _numbered(features(ranked))
    rank = np.linspace(1.0, 0.0, len(ranked))
    seen = np.zeros(int(columns.max(initial=0)) + 1, bool)
    left = np.ones(len(ranked), bool)
    chosen: list[int] = []
    for _ in range(count):
        gain = np.where(left, rank + _NOVELTY * (~seen[columns]).sum(axis=1), -np.inf)
        best = int(gain.argmax())
        chosen.append(best)
        left[best] = False
        seen[columns[best]] = True
    return [ranked[place] for place in chosen]


def _numbered(rows: Floats) -> NDArray[np.int64]:
    """Return the values of each column as numbers that no other column has."""
    found = np.zeros(rows.shape, np.int64)
    start = 0
    for column in range(rows.shape[1]):
        values, places = np.unique(rows[:, column], return_inverse=True)
        found[:, column] = start + places
        start += len(values)
    return found
