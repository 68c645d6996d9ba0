# SPDX-License-Identifier: Apache-2.0
"""The tuners: what they try, what counts, what is told of it, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.autotvm.templates import (
    QUICK,
    Seen,
    matmul_task,
    option,
    product,
    slow_link,
    ways_task,
)
from treadle import autotvm
from treadle.autotvm.task import Task
from treadle.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from treadle.errors import UsageError
from treadle.runtime.toolchain import link_shared
from treadle.tune.cost_model import has_xgboost
from treadle.tune.failures import MeasureErrorNo

TUNERS: list[Callable[[Task], Tuner]] = [
    lambda t: XGBTuner(t, plan_size=6, loss_type="rank-binary", diversity_filter_ratio=2),
    lambda t: XGBTuner(t, feature_type="knob", loss_type="reg"),
    lambda t: GATuner(t, pop_size=4, elite_num=2, mutation_prob=0.3),
    RandomTuner,
    GridSearchTuner,
]


@pytest.mark.parametrize("tuner_of", TUNERS)
def test_a_tuner_measures_each_configuration_once_and_knows_the_fastest(
    tuner_of: Callable[[Task], Tuner],
) -> None:
    task = matmul_task()
    tuner, seen = tuner_of(task), Seen()
    tuner.tune(n_trial=12, measure_option=option(), callbacks=[seen])
    assert len(set(seen.configs)) == len(seen.configs) == 12
    assert all(r.error_no == MeasureErrorNo.NO_ERROR for r in seen.results)
    assert all(len(r.costs) in (1, 2) and r.all_cost > 0 for r in seen.results)
    assert all((i.task, i.target) == (task, task.target) for i in seen.inputs)
    means = [sum(r.costs) / len(r.costs) for r in seen.results]
    best = means.index(min(means))
    assert tuner.best_config == seen.inputs[best].config
    assert tuner.best_iter == best
    assert tuner.best_flops == pytest.approx(2 * 16**3 / means[best])


def test_what_goes_wrong_has_its_number_and_never_a_time() -> None:
    seen = Seen()
    tuner = GridSearchTuner(ways_task())
    tuner.tune(n_trial=20, measure_option=option(), callbacks=[seen])
    found: dict[str, set[int]] = {}
    for inp, result in zip(seen.inputs, seen.results, strict=True):
        found.setdefault(inp.config["way"].val, set()).add(result.error_no)
        assert result.error_no == 0 or isinstance(result.costs[0], str)
    assert found == {
        "right": {MeasureErrorNo.NO_ERROR},
        "wrong": {MeasureErrorNo.WRONG_ANSWER},
        "thread": {MeasureErrorNo.COMPILE_HOST},
    }  # "invalid" is no configuration
    assert tuner.best_config is not None
    assert tuner.best_config["way"].val == "right"  # type: ignore[union-attr]


def test_a_build_and_a_run_that_take_too_long_cost_a_trial_each() -> None:
    seen = Seen()
    slow = option(timeout=0.3, build_func=slow_link)
    GridSearchTuner(ways_task()).tune(n_trial=1, measure_option=slow, callbacks=[seen])
    endless = autotvm.LocalRunner(number=1_000_000_000, repeat=1, timeout=0.5)
    GridSearchTuner(ways_task()).tune(n_trial=1, measure_option=option(endless), callbacks=[seen])
    numbers = [r.error_no for r in seen.results]
    assert numbers == [MeasureErrorNo.BUILD_TIMEOUT, MeasureErrorNo.RUN_TIMEOUT]


def test_a_function_of_the_user_links_what_is_measured(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def link(library: str, objects: list[str]) -> None:
        calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
        link_shared([Path(o) for o in objects], library)

    link.output_format = "so"  # type: ignore[attr-defined]
    seen = Seen()
    RandomTuner(matmul_task()).tune(
        n_trial=3, measure_option=option(build_func=link), callbacks=[seen]
    )
    assert [r.error_no for r in seen.results] == [0, 0, 0]
    assert calls.read_text() == "xxx"


def test_a_link_that_fails_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def nothing(library: str, objects: list[str]) -> None:
        """Write no library."""

    seen = Seen()
    with caplog.at_level(logging.WARNING, "autotvm"):
        RandomTuner(matmul_task()).tune(
            n_trial=2, measure_option=option(build_func=nothing), callbacks=[seen]
        )
    assert {r.error_no for r in seen.results} == {MeasureErrorNo.COMPILE_HOST}
    assert "no candidate has run; 2 x the function that links" in caplog.text


def test_the_end_of_the_space_and_patience_end_a_tuning() -> None:
    seen, tuner = Seen(), RandomTuner(ways_task())
    tuner.tune(n_trial=100, measure_option=option(), callbacks=[seen])
    assert len(set(seen.configs)) == len(seen.configs) == 6  # 3 ways are some, unrolled or not
    seen = Seen()
    GridSearchTuner(matmul_task()).tune(
        n_trial=60, measure_option=option(), early_stopping=1, callbacks=[seen]
    )
    assert len(seen.results) < 60


def test_a_tuner_goes_on_and_a_history_is_not_measured_again(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    seen, tuner = Seen(), RandomTuner(matmul_task())
    for _ in range(2):
        tuner.tune(
            n_trial=4,
            measure_option=option(),
            callbacks=[seen, autotvm.callback.log_to_file(log)],
        )
    assert len(set(seen.configs)) == len(seen.configs) == 8
    later, more = GATuner(matmul_task()), Seen()
    later.load_history(autotvm.record.load_from_file(log))
    assert later.best_config == tuner.best_config
    later.tune(n_trial=4, measure_option=option(), callbacks=[more])
    assert len({*seen.configs, *more.configs}) == 12


def test_the_best_of_other_arguments_is_tried_early(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    small = matmul_task(8)
    entity = small.config_space.get(len(small.config_space) - 1)
    record = autotvm.MeasureInput(small.target, small, entity)
    log.write_text(autotvm.record.encode(record, autotvm.MeasureResult((1e-6,), 0, 1.0, 1.0)))
    seen, tuner = Seen(), RandomTuner(matmul_task())
    tuner.load_history(autotvm.record.load_from_file(log))
    assert tuner.best_config is None
    tuner.tune(n_trial=2, measure_option=option(), callbacks=[seen])
    chosen = [{name: str(e) for name, e in i.config.entities} for i in seen.inputs]
    assert {name: str(e) for name, e in entity.entities}["order"] == chosen[1]["order"]


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("loss_type|objective", lambda: XGBTuner(matmul_task(), loss_type="rank-all")),
    ("feature_type 'loops'", lambda: XGBTuner(matmul_task(), feature_type="loops")),
    ("optimizer 'grid'", lambda: XGBTuner(matmul_task(), optimizer="grid")),
    ("at least 1", lambda: XGBTuner(matmul_task(), plan_size=0)),
    ("at least 1", lambda: XGBTuner(matmul_task(), diversity_filter_ratio=0.5)),
    ("GATuner takes", lambda: GATuner(matmul_task(), pop_size=2, elite_num=3)),
    ("range_idx", lambda: RandomTuner(matmul_task(), range_idx=(0, 4))),
    ("n_trial is 0", lambda: RandomTuner(matmul_task()).tune(0, option())),
    ("measure_option of tune", lambda: RandomTuner(matmul_task()).tune(1, {})),  # type: ignore[arg-type]
    ("prefix 'X'", lambda: RandomTuner(matmul_task()).tune(1, option(), si_prefix="X")),
    ("module_loader", lambda: autotvm.LocalRunner(module_loader=print)),
    ("at least 1", lambda: autotvm.LocalRunner(number=0)),
    ("more than 0", lambda: autotvm.LocalRunner(timeout=0)),
    ("more than 0", lambda: autotvm.LocalBuilder(timeout=0)),
    ("more than 0", lambda: autotvm.LocalBuilder(n_parallel=-1)),
    ("builds for Android", lambda: autotvm.LocalBuilder(build_func="ndk")),
    ("no build_func 'gcc'", lambda: autotvm.LocalBuilder(build_func="gcc")),
    ("build_kwargs", lambda: autotvm.LocalBuilder(build_kwargs={"x": 1})),
    ("takes a LocalBuilder", lambda: autotvm.measure_option("local", "rpc")),
]


@pytest.mark.parametrize(("text", "mistake"), REFUSED)
def test_options_without_a_meaning_are_refused(text: str, mistake: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=text):
        mistake()


def test_a_task_for_another_machine_is_not_tuned() -> None:
    target = "llvm -mtriple=aarch64-linux-gnu"
    task = autotvm.task.create("tests/ways", args=(16,), target=target)
    with pytest.raises(UsageError, match="cannot be measured on this machine"):
        RandomTuner(task).tune(1, option())


def test_a_function_that_makes_an_archive_cannot_be_measured() -> None:
    def tar(library: str, objects: list[str]) -> None: ...

    tar.output_format = "tar"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="files of format 'tar'"):
        autotvm.LocalBuilder(build_func=tar)


def test_local_is_short_for_the_defaults() -> None:
    made = autotvm.measure_option("local", QUICK)
    assert (made.builder, made.runner) == (autotvm.LocalBuilder(), QUICK)


def test_without_xgboost_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert has_xgboost()
    monkeypatch.setattr("treadle.tune.cost_model.has_xgboost", lambda: False)
    seen: Any = Seen()
    with caplog.at_level(logging.WARNING, "autotvm"):
        XGBTuner(ways_task()).tune(n_trial=2, measure_option=option(), callbacks=[seen])
    assert "xgboost is not installed" in caplog.text
    assert len(seen.results) == 2


def test_a_template_called_by_hand_is_the_default() -> None:
    schedule, args = product(16, 16, 16, "float32")
    default, _ = matmul_task().instantiate()
    assert schedule.as_python() == default.as_python()
    assert [t.name for t in args] == ["A", "B", "C"]
