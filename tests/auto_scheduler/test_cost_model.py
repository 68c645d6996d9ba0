# SPDX-License-Identifier: Apache-2.0
"""One model for all tasks, kept as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.auto_scheduler.workloads import matmul_add, options, row_softmax, task_of
from treadle import auto_scheduler
from treadle.auto_scheduler.screen import Screen
from treadle.errors import UsageError
from treadle.tune.cost_model import has_xgboost
from treadle.tune.space import Floats

NEEDS_XGBOOST = pytest.mark.skipif(not has_xgboost(), reason="the extra tune is not installed")


def rows(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).random((count, 3), np.float32)


@NEEDS_XGBOOST
def test_what_one_task_shows_is_known_of_another() -> None:
    task, other = task_of(matmul_add, 32, 24, 16), task_of(row_softmax, 16, 16)
    whole = auto_scheduler.XGBModel()
    spaces = [auto_scheduler.SketchPolicy(t).space(Screen(0)) for t in (task, other)]
    first, second = (
        whole.model(t.name, s) for t, s in zip((task, other), spaces, strict=True) if s
    )
    known = rows(64, 0)
    first.fit(known, (1 + known[:, 0]).tolist())
    assert second.is_fitted
    fresh = rows(64, 1)
    scores = second.predict(fresh)
    assert np.corrcoef(scores, -fresh[:, 0])[0, 1] > 0.8


@NEEDS_XGBOOST
def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    whole = auto_scheduler.XGBModel(model_file=str(path))
    with pytest.raises(UsageError, match="learned nothing"):
        whole.save(path)
    known = rows(64, 0)
    whole.learn("a", known, (1 + known[:, 0]).tolist())
    again = auto_scheduler.XGBModel()
    again.load(path)
    np.testing.assert_array_equal(again.scores(known), whole.scores(known))
    assert not again.scores(rows(4, 1)[:, :2]).any()  # rows of other columns


@NEEDS_XGBOOST
@pytest.mark.parametrize("text", ["", "{}", "[1]", "import os", "{" * 100_000, '{"learner": 1}'])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="holds no cost model"):
        auto_scheduler.XGBModel().load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        auto_scheduler.XGBModel().load(tmp_path / "nothing")


@NEEDS_XGBOOST
def test_it_learns_from_a_log(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", task_of(matmul_add, 32, 24, 16)
    task.tune(options(log, 5))
    space = auto_scheduler.SketchPolicy(task).space(Screen(0))
    assert space is not None
    model = auto_scheduler.XGBModel()
    model.update_from_file(log)
    assert not model.is_fitted
    assert model.model(task.name, space).is_fitted
    told = auto_scheduler.XGBModel()
    pairs = list(auto_scheduler.load_records(log))
    told.update([p[0] for p in pairs], [p[1] for p in pairs])
    features = space.features(space.start())
    expected = model.model(task.name, space).predict(features)
    np.testing.assert_array_equal(told.model(task.name, space).predict(features), expected)


def test_without_the_extra_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for module in ("treadle.tune.cost_model", "treadle.auto_scheduler.cost_model"):
        monkeypatch.setattr(f"{module}.has_xgboost", lambda: False)
    task = task_of(matmul_add, 32, 24, 16)
    task.tune(options(tmp_path / "log.json", 2, verbose=1))
    assert "pip install 'treadle[tune]'" in capsys.readouterr().out
    with pytest.raises(UsageError, match="xgboost is not installed"):
        auto_scheduler.XGBModel().save(tmp_path / "model.json")
