# SPDX-License-Identifier: Apache-2.0
"""Plans of several batches: how long they are, how loops rank them, what makes them diverse."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from tests.tune.spaces import LEAST, measured, seconds, tiled_space
from treadle.tune.cost_model import TreeModel
from treadle.tune.history import History
from treadle.tune.planned import LoopRanker, Planned, diverse
from treadle.tune.search import Search
from treadle.tune.template import Point

pytestmark = pytest.mark.tiny


class Counted:
    """A strategy that counts how often and for how many it is asked."""

    uses_start = False

    def __init__(self) -> None:
        self.asked: list[int] = []

    def learn(self, history: History[Point]) -> None:
        """Nothing."""

    def pick(self, history: History[Point], count: int) -> Iterable[Point]:
        self.asked.append(count)
        return history.space.sample(4 * count, history.random)[:count]


def test_a_plan_serves_several_batches_and_grows_with_what_is_known() -> None:
    space, strategy = tiled_space(), Counted()
    search = Search(space, np.random.default_rng(0), Planned(strategy, 24))
    taken = measured(search, space, 100, batch=4)
    assert len(taken) == 100
    assert strategy.asked[0] == 8
    assert max(strategy.asked) == 24
    assert len(strategy.asked) < 16


def test_loops_rank_what_was_wished_for() -> None:
    space = tiled_space()
    random = np.random.default_rng(0)
    history: History[Point] = History(space, random)

    def describe(point: Point) -> np.ndarray | None:
        config = space.choice(point)
        return None if config is None else np.array([seconds(config) / LEAST], np.float32)

    points = [p for p in dict.fromkeys(space.sample(200, random)) if describe(p) is not None]
    ranker = LoopRanker(describe, TreeModel("reg"))
    assert ranker.order(history, points[:4]) == points[:4]  # nothing is known
    for point in points[:60]:
        config = space.choice(point)
        assert config is not None
        history.record(point, seconds(config))
    ordered = [seconds(c) for p in ranker.order(history, points[60:]) if (c := space.choice(p))]
    third = len(ordered) // 3
    assert np.mean(ordered[:third]) < np.mean(ordered[third:]) < np.mean(ordered[-third:])


def test_diverse_candidates_bring_values_that_no_other_has() -> None:
    rows = np.array([[0, 0], [0, 0], [0, 0], [0, 1], [5, 0]], np.float32)
    chosen = diverse(["a", "b", "c", "d", "e"], lambda _: rows, 3)
    assert chosen == ["a", "b", "c"]  # what is far more promising goes before
    many = [f"x{k}" for k in range(40)]
    alike = np.zeros((40, 3), np.float32)
    alike[3] = (1, 2, 3)
    assert diverse(many, lambda _: alike, 2) == ["x0", "x3"]
    assert diverse(many[:2], lambda _: alike, 3) == many[:2]
