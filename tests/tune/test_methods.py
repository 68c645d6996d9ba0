# SPDX-License-Identifier: Apache-2.0
"""Tuning methods: what is tried, decided, kept by the model, written down and gone on from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.build.test_method_records import network
from tests.optimize.cases import inputs_of
from tests.tune.executors import Instantly
from tests.tune.test_method_task import chain, tasks_of
from tests.tune.test_tuner import QUICK
from treadle.build.method_records import MethodRecord
from treadle.build.records import Records
from treadle.optimize.methods import growth
from treadle.passes import recorded_decisions
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS
from treadle.tune import model
from treadle.tune.executor import Outcome
from treadle.tune.method_task import MethodTask
from treadle.tune.methods import Raced, left_of, method_tuner, standing, try_methods, winners
from treadle.tune.model import TuneResult, tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.record_file import RecordFile
from treadle.tune.settle import Comparison
from treadle.tune.tuner import OnChange, Tuner


class ByName(Instantly):
    """A method takes as long as its name has letters; schedules of kernels twice their defaults."""

    count = 1

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[tuple[int, str]] = []

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        _, task, choice = self._waiting[0]
        self.tried.append((task, self._method(task, choice)))
        return super().results(wait, best)

    def seconds(self, task: int, choice: Choice) -> float:
        return len(self._method(task, choice)) * 1e-4

    def _method(self, number: int, choice: Choice) -> str:
        task = self._tasks[number]
        if isinstance(task, MethodTask):
            return task.method_of(choice)
        return "k" if choice == DEFAULTS else "kk"


def tried(
    path: Path, options: TuneOptions = QUICK, on_change: OnChange | None = None
) -> tuple[Tuner, list[tuple[int, str]]]:
    """Try the methods of a model into a file, without measuring; return what was tried."""
    known = Records.read(path) if path.exists() else Records()
    decided, place = standing(known, options), ByName()
    file = RecordFile(path)
    try:
        tuner = method_tuner(tasks_of(chain()[0]), file, known, decided, options, place)
        try_methods(tuner, on_change)
    finally:
        file.close()
    return tuner, place.tried


def test_all_methods_of_a_call_are_tried_the_largest_call_first(tmp_path: Path) -> None:
    tuner, found = tried(tmp_path / "a.jsonl")
    tasks = [s.task for s in tuner.states]
    assert all(isinstance(t, MethodTask) for t in tasks)
    assert found == [(k, m) for k, t in enumerate(tasks) for m in t.methods]  # type: ignore[attr-defined]
    lines = [r for r in Records.read(tmp_path / "a.jsonl") if isinstance(r, MethodRecord)]
    assert [(r.call, r.method) for r in lines] == [(tasks[k].name, m) for k, m in found]
    assert all(r.is_trial and r.compiler and r.layouts for r in lines)


def test_an_interrupted_run_tries_the_rest_alone(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    tuner, found = tried(whole)
    assert tried(whole)[1] == []
    for kept in (1, len(found) - 1):
        lines = whole.read_bytes().splitlines(keepends=True)
        parts.write_bytes(b"".join(lines[:kept]) + lines[kept][:40])  # the last line is torn
        again, rest = tried(parts)
        assert [*found[:kept], *rest] == found
        assert [s.resumed for s in again.states] != [0, 0]
        assert again.trials == tuner.trials


def test_what_stands_in_the_records_is_told_of(tmp_path: Path) -> None:
    tuner, _ = tried(tmp_path / "a.jsonl")
    told: list[int] = []
    again, rest = tried(tmp_path / "a.jsonl", on_change=lambda t: told.append(t.trials))
    assert (rest, told) == ([], [tuner.trials])
    assert again.trials == tuner.trials


def test_methods_take_half_of_the_trials_and_no_call_is_tried_in_part(tmp_path: Path) -> None:
    tuner, found = tried(tmp_path / "a.jsonl")
    tasks = [s.task for s in tuner.states]
    first = len(tasks[0].methods)  # type: ignore[attr-defined]
    for trials in (2 * first, 2 * first + 1):
        path = tmp_path / f"{trials}.jsonl"
        options = replace(QUICK, trials=trials)
        assert tried(path, options)[1] == found[:first]
        assert tried(path, options)[1] == []
    assert tried(tmp_path / "few.jsonl", replace(QUICK, trials=first))[1] in (
        [],
        found[first:],  # a smaller call that has fewer methods
    )


def test_what_was_measured_otherwise_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    _, found = tried(path)
    lines = path.read_text()
    for old, new in (("threads=1", "threads=7"), ("to blocks of", "to bands of")):
        path.write_text(lines.replace(old, new))
        assert len(tried(path)[1]) >= len(found) - 1


def of_times(task: MethodTask, **seconds: float) -> Raced:
    return Raced(task, {name.replace("_", "-"): (s,) * 3 for name, s in seconds.items()})


@pytest.fixture(scope="module")
def task() -> MethodTask:
    """Two calls of one text; Winograd's algorithm enlarges their weights."""
    made = tasks_of(chain()[0], "llvm -mcpu=znver4 -num-cores=1")[0]
    assert made.growth["winograd-2"] > 0 >= made.growth["direct"]
    return replace(made, default="direct")


def test_the_fastest_method_wins_by_a_margin(task: MethodTask) -> None:
    def winner(**seconds: float) -> str:
        return winners([of_times(task, **seconds)], 1 << 30, 1.0)[task.call]

    assert winner(direct=1.0, winograd_2=0.7, plain=0.8) == "winograd-2"
    assert winner(direct=1.0, winograd_2=0.98, plain=0.99) == "direct"
    assert winner(direct=1.0) == "direct"


def test_weights_grow_only_as_far_as_they_may(
    task: MethodTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = of_times(task, direct=1.0, winograd_2=0.7, plain=0.8)
    assert winners([times], 1 << 30, 0.0)[task.call] == "plain"
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", 2 * task.growth["winograd-2"] - 1)
    assert winners([times], 1, 0.1)[task.call] == "plain"
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", 2 * task.growth["winograd-2"])
    assert winners([times], 1, 0.1)[task.call] == "winograd-2"


def test_decisions_stand_where_they_were_measured_alike() -> None:
    mine = MethodRecord("conv(a)", "llvm", "direct")
    other = MethodRecord(
        "conv(b)", "llvm", "plain", seconds=(1.0,), is_chosen=True, compiler="another",
        options=QUICK.measure.text(), layouts="plain to plain",
    )  # fmt: skip
    records = Records()
    for record in (mine, other):
        records.add(record)
    assert standing(records, QUICK) == [mine]


# ---- a whole run ---------------------------------------------------------------------------------


def tuned(path: Path, share: float, options: TuneOptions = QUICK) -> TuneResult:
    """Tune the chain; the model takes `share` of its time with each other method, and in the end.

    Nothing is compiled or measured.
    """

    def compared(*_: object, **__: object) -> Comparison:
        return Comparison(1.0, share, share, {}, whole=-1 if share < 1 else 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "compared", compared)
        patch.setattr(model._Run, "inputs", lambda *_: {})
        patch.setattr(model._Run, "compiled", lambda *_: None)
        options = replace(options, trials=28)
        return tune_model(chain()[0], path, options=options, executor=ByName())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuneResult]:
    path = tmp_path_factory.mktemp("methods") / "records.jsonl"
    return path, tuned(path, 0.5)


def test_decisions_are_written_and_compilation_takes_them(
    run: tuple[Path, TuneResult],
) -> None:
    path, result = run
    assert result.methods is not None
    states = result.methods.tuner.states
    decided = {r.call: r.method for r in Records.read(path).method_records()}
    whole = [s for s in states if s.progress.is_done and s.default is not None]
    assert whole
    assert {*decided} == {s.task.name for s in whole}
    assert result.trials <= 28
    with recorded_decisions() as decisions:
        made = treadle.compile(chain()[0], records=path)
    chosen = {d.call: d for d in decisions if d.topic == "method"}
    for call, method in decided.items():
        assert chosen[call].choice == method
        assert chosen[call].reason.startswith("from a record, measured: ")
    assert made.coverage is not None
    assert [made.coverage.methods[c] for c in decided] == ["record"] * len(decided)
    assert f"{len(decided)} by the records" in made.coverage.methods_text
    inputs = inputs_of(chain()[0].main)
    (got,), (want,) = made.run(inputs), treadle.compile(chain()[0], methods=dict.fromkeys(
        made.coverage.methods, "plain")).run(inputs)  # fmt: skip
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-3, atol=1e-4)


def test_kernels_are_tuned_as_the_methods_make_them(run: tuple[Path, TuneResult]) -> None:
    path, result = run
    made = treadle.compile(chain()[0], records=path)
    assert {s.task.name for s in result.tuner.states} == {k.name for k in made.kernels}


def test_the_same_run_again_measures_nothing(run: tuple[Path, TuneResult]) -> None:
    path, _ = run
    before = [r for r in Records.read(path) if r.is_trial]
    again = tuned(path, 0.5)
    assert again.methods is not None
    assert again.methods.tuner.new_trials == 0
    assert [r for r in Records.read(path) if r.is_trial] == before
    assert again.trials == len(before)


def test_a_method_that_does_not_pay_in_the_model_goes_back(
    run: tuple[Path, TuneResult], tmp_path: Path
) -> None:
    path, first = run
    trials = [r for r in Records.read(path) if r.is_trial]
    (tmp_path / "a.jsonl").write_bytes(b"".join(r.line() for r in trials))
    result = tuned(tmp_path / "a.jsonl", 1.5)
    assert result.methods is not None
    assert result.methods.changed == []
    assert first.methods is not None
    found = {r.call: r.method for r in Records.read(tmp_path / "a.jsonl").method_records()}
    defaults = {s.task.name: s.task.default for s in result.methods.tuner.states}  # type: ignore[attr-defined]
    assert found == {call: defaults[call] for call in found}


def test_methods_can_be_left_alone(tmp_path: Path) -> None:
    for options in (replace(QUICK, methods=False), replace(QUICK, space="sketch")):
        assert tuned(tmp_path / "a.jsonl", 0.5, options).methods is None


@pytest.mark.slow
def test_methods_and_kernels_are_tuned_in_earnest(tmp_path: Path) -> None:
    module, call = network()
    result = tune_model(module, tmp_path / "a.jsonl", options=replace(QUICK, trials=24))
    assert result.methods is not None
    (state,) = result.methods.tuner.states
    assert not state.failures
    assert len(state.trials) == len(state.task.methods)  # type: ignore[attr-defined]
    compiled = treadle.compile(module, records=tmp_path / "a.jsonl")
    assert compiled.coverage is not None
    assert compiled.coverage.methods == {call: "record"}


def test_what_is_left_of_the_budget_goes_to_kernels(run: tuple[Path, TuneResult]) -> None:
    _, result = run
    assert result.methods is not None
    spent = result.methods.tuner.trials
    options = left_of(TuneOptions(trials=100, minutes=10.0), result.methods)
    assert options.trials == 100 - spent
    assert options.minutes == pytest.approx(10.0 - result.methods.search_seconds / 60)
