# SPDX-License-Identifier: Apache-2.0
"""Cost models: they order what they have not seen, and stand back where they know little."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tune.spaces import tiled_space
from treadle.errors import UsageError
from treadle.tune import cost_model
from treadle.tune.cost_model import (
    MISSING_NOTE,
    AnalyticModel,
    Scorer,
    TreeModel,
    make_model,
    objective_of,
)

NEEDS_XGBOOST = pytest.mark.skipif(
    importlib.util.find_spec("xgboost") is None, reason="xgboost (extra tune) is not installed"
)


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and the times that follow from three of them."""
    features = np.random.default_rng(seed).random((count, 12)).astype(np.float32)
    return features, 1e-3 * np.exp(2 * features[:, 0] + features[:, 1] * features[:, 2])


def agreement(scores: np.ndarray, seconds: np.ndarray) -> float:
    """Return the share of pairs that scores put in the order of their speeds."""
    better = seconds[:, None] < seconds[None]
    return float((scores[:, None] > scores[None])[better].mean())


@NEEDS_XGBOOST
@pytest.mark.parametrize("objective", ["reg", "rank", "rank-binary"])
def test_trees_order_what_they_have_not_seen(objective: str) -> None:
    model = TreeModel(objective)
    assert not model.is_fitted
    assert not model.predict(rows(5, 0)[0]).any()
    model.fit(*rows(200, 0))
    features, seconds = rows(300, 1)
    assert model.is_fitted
    assert agreement(model.predict(features), seconds) > 0.85
    assert model.predict(features[:0]).shape == (0,)


@NEEDS_XGBOOST
@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_rows_are_compared_within_their_group(objective: str) -> None:
    features, seconds = rows(200, 0)
    groups = np.arange(200) % 2
    seconds = np.where(groups == 1, 1e3 * seconds, seconds)  # another task, slower as a whole
    model = TreeModel(objective)
    model.fit(features, seconds, groups)
    unseen, times = rows(300, 1)
    assert agreement(model.predict(unseen), times) > 0.85


@NEEDS_XGBOOST
@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_the_same_rows_give_the_same_scores(objective: str) -> None:
    scores = []
    for _ in range(2):
        model = TreeModel(objective)
        model.fit(*rows(100, 0))
        scores.append(model.predict(rows(50, 1)[0]))
    assert np.array_equal(*scores)


@NEEDS_XGBOOST
@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_failures_are_learned_as_slow(objective: str) -> None:
    features, seconds = rows(200, 0)
    seconds[features[:, 3] > 0.5] = math.inf
    model = TreeModel(objective)
    model.fit(features, seconds)
    unseen, _ = rows(300, 1)
    scores, fails = model.predict(unseen), unseen[:, 3] > 0.5
    assert np.median(scores[fails]) < np.quantile(scores[~fails], 0.1)


@NEEDS_XGBOOST
@pytest.mark.parametrize("seconds", [[], [1.0], [1.0] * 3, [math.inf] * 20, [1.0] * 20])
def test_what_teaches_nothing_is_not_learned(seconds: list[float]) -> None:
    model = TreeModel()
    model.fit(rows(len(seconds), 0)[0], seconds)
    assert not model.is_fitted


@pytest.mark.tiny
def test_without_the_extra_the_analytic_model_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_model, "has_xgboost", lambda: False)
    model, note = make_model("rank-binary")
    assert isinstance(model, AnalyticModel)
    assert note == MISSING_NOTE
    with pytest.raises(UsageError, match="xgboost is not installed"):
        TreeModel()


@NEEDS_XGBOOST
def test_with_the_extra_there_is_nothing_to_say() -> None:
    model, note = make_model("rank")
    assert isinstance(model, TreeModel)
    assert model.objective == "rank"
    assert note is None


@pytest.mark.tiny
def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(UsageError, match="no objective"):
        objective_of("rank-ternary")


@pytest.mark.tiny
def test_the_analytic_model_leaves_the_order_to_the_estimates() -> None:
    space = tiled_space()
    points = space.sample(100, np.random.default_rng(1))
    scorer = Scorer(space, AnalyticModel())
    scorer.fit(points, [1.0] * len(points))
    order = np.argsort(scorer.score(points), kind="stable")
    assert (np.diff(space.estimate([points[i] for i in order])) <= 1e-5).all()
    assert scorer.score([]).shape == (0,)


@NEEDS_XGBOOST
def test_measurements_outweigh_the_estimates_by_and_by() -> None:
    space = tiled_space()
    points = list(dict.fromkeys(space.sample(150, np.random.default_rng(1))))
    slow = space.estimate(points).astype(float)
    reverse = 1.0 / slow  # what is measured is the opposite of what was estimated
    agreed = []
    for count in (6, 30, 100):
        scorer = Scorer(space, TreeModel())
        scorer.fit(points[:count], reverse[:count].tolist())
        agreed.append(agreement(scorer.score(points), reverse))
    assert agreed[0] < 0.5 < agreed[-1]
    assert agreed == sorted(agreed)


def test_a_broken_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "xgboost.py").write_text("raise OSError('libgomp.so.1 is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "xgboost", raising=False)
    with pytest.raises(UsageError, match=r"cannot be imported: libgomp\.so\.1 is missing"):
        make_model()
