# SPDX-License-Identifier: Apache-2.0
"""Searches: each candidate once, better than chance, the same for the same seed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.tune.spaces import LEAST, foreseen, mean_best, measured, seconds, small, tiled_space
from treadle.errors import UsageError
from treadle.te.knobs import Config, Space
from treadle.tune.cost_model import CostModel, TreeModel
from treadle.tune.search import SEARCHES, Search, make_search
from treadle.tune.template import Point, TemplateSpace

NEEDS_XGBOOST = pytest.mark.skipif(
    importlib.util.find_spec("xgboost") is None, reason="xgboost (extra tune) is not installed"
)
SEEDS = range(3)


def search_of(
    name: str, space: TemplateSpace, seed: int = 0, model: CostModel | None = None
) -> Search[Point]:
    return make_search(name, space, np.random.default_rng(seed), model)


def best_of(
    name: str, trials: int, time: Callable[[Config], float], objective: str | None = None
) -> float:
    """Return the best time of some trials, as the mean over several seeds."""
    runs = []
    for seed in SEEDS:
        space = tiled_space()
        model = TreeModel(objective) if objective else None
        search = search_of(name, space, seed, model)
        runs.append(measured(search, space, trials, time=time))
    return mean_best(runs)


@pytest.mark.parametrize("name", ["genetic", "annealing", "evolutionary"])
def test_where_the_models_of_the_knobs_are_right_few_trials_do(name: str) -> None:
    best, by_chance = (best_of(n, 48, foreseen) for n in (name, "random"))
    assert best - LEAST < 0.3 * (by_chance - LEAST)


@NEEDS_XGBOOST
@pytest.mark.parametrize("objective", ["reg", "rank"])
@pytest.mark.parametrize("name", ["annealing", "evolutionary"])
def test_where_the_models_of_the_knobs_are_wrong_the_learned_one_is_not(
    name: str, objective: str
) -> None:
    best, by_chance = best_of(name, 96, seconds, objective), best_of("random", 96, seconds)
    assert best - LEAST < 0.7 * (by_chance - LEAST)


@pytest.mark.tiny
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_proposes_everything_once_and_then_no_more(name: str) -> None:
    space = TemplateSpace(Space(small))
    search = search_of(name, space)
    taken = measured(search, space, 100, batch=3, time=lambda config: 1.0)
    assert len(taken) == 10
    assert search.propose(4) == []


@pytest.mark.tiny
@pytest.mark.parametrize("name", SEARCHES)
def test_no_candidate_is_proposed_twice(name: str) -> None:
    space = tiled_space()
    search = search_of(name, space)
    seen: list[Point] = []
    for _ in range(6):
        batch = search.propose(16)
        assert len(batch) == 16
        seen += batch
        search.tell(batch, [1.0 + len(str(space.to_json(p))) for p in batch])
    assert len(set(seen)) == len(seen)
    assert seen[0] == space.start()[0]


@pytest.mark.tiny
@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seed_proposes_the_same(name: str) -> None:
    runs = []
    for seed in (3, 3, 4):
        space = tiled_space()
        search = search_of(name, space, seed)
        proposed = []
        for _ in range(4):
            batch = search.propose(12)
            choices = [space.choice(p) for p in batch]
            proposed += choices
            search.tell(batch, [float(len(str(c))) for c in choices])
        runs.append(proposed)
    assert runs[0] == runs[1]
    assert (runs[0] == runs[2]) == (name == "grid")


@pytest.mark.tiny
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("failure", [None, math.inf, math.nan, 0.0, -1.0])
def test_a_search_goes_on_when_all_fail(name: str, failure: float | None) -> None:
    search = search_of(name, tiled_space())
    for _ in range(3):
        batch = search.propose(8)
        assert len(batch) == 8
        search.tell(batch, [failure] * len(batch))


@NEEDS_XGBOOST
@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_a_model_of_failures_alone_does_no_harm(objective: str) -> None:
    search = search_of("evolutionary", tiled_space(), model=TreeModel(objective))
    for _ in range(3):
        batch = search.propose(16)
        assert len(batch) == 16
        search.tell(batch, [math.inf] * len(batch))


@pytest.mark.tiny
@pytest.mark.parametrize("name", SEARCHES)
def test_what_an_earlier_run_measured_is_not_proposed(name: str) -> None:
    space = tiled_space()
    known = space.start()[:10]
    search = search_of(name, space)
    search.preload(known, [1.0 + i for i in range(len(known))])
    assert not set(search.propose(32)) & set(known)


@pytest.mark.tiny
@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_suggested_comes_after_the_default(name: str) -> None:
    space = tiled_space()
    search = search_of(name, space)
    wanted = space.sample(3, np.random.default_rng(9))
    search.suggest(wanted)
    assert search.propose(4) == [space.start()[0], *wanted]


@pytest.mark.tiny
def test_an_unknown_search_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no search 'gridsearch'"):
        search_of("gridsearch", tiled_space())
