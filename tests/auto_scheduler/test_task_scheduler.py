# SPDX-License-Identifier: Apache-2.0
"""Tuning a model's tasks together: what is printed, written, resumed and applied."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from tests.auto_scheduler.workloads import matmul_add, options, row_softmax, task_of
from tests.optimize.cases import function, var
from treadle import auto_scheduler
from treadle.auto_scheduler.screen import Screen, table_text
from treadle.build.records import Record, Records
from treadle.errors import UsageError
from treadle.graph.nodes import Module
from treadle.ops.matmul import matmul
from treadle.te.knobs import DEFAULTS
from treadle.tune.failures import MeasureErrorNo
from treadle.tune.guided import Generation

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (1, 1, 8, 8)}


def model_tasks(**more: Any) -> tuple[list[auto_scheduler.SearchTask], list[int]]:
    return auto_scheduler.extract_tasks(MODEL, params=None, target="llvm", shapes=SHAPES, **more)


def trials(log: Path) -> list[Record]:
    return [r for r in Records.read(log) if isinstance(r, Record)]


def test_the_tasks_of_a_model(tmp_path: Path) -> None:
    dump = tmp_path / "dags.json"
    tasks, weights = model_tasks(dump_workload_to_dag_log=str(dump))
    every, _ = model_tasks(include_simple_tasks=True)
    assert len(tasks) == len(weights) == len({t.workload_key for t in tasks})
    assert len(every) >= len(tasks)
    kernels = {k.name for k in treadle.compile(MODEL, shapes=SHAPES).kernels}
    assert {json.loads(t.workload_key)[0] for t in every} <= kernels
    assert json.loads(dump.read_text()) == {t.workload_key: str(t.compute_dag) for t in tasks}
    first = tasks[0]
    assert "conv" in first.desc
    assert "PLACEHOLDER" in str(first.compute_dag)
    assert first.compute_dag.flop_ct == first.task.flops


def test_params_of_a_graph_are_its_weights() -> None:
    x, y = var("x", 4, 8), var("y", 8, 8)
    main = function(matmul(x, y), params=[x, y])
    weights = np.random.default_rng(0).random((8, 8), np.float32)
    (bound,), _ = auto_scheduler.extract_tasks(main, target="llvm", params={"y": weights})
    (free,), _ = auto_scheduler.extract_tasks(Module(main), target="llvm")
    assert bound.task.constants
    assert not free.task.constants
    with pytest.raises(UsageError, match="'z', which is no input"):
        auto_scheduler.extract_tasks(main, {"z": weights}, "llvm")
    with pytest.raises(UsageError, match="holds its own"):
        auto_scheduler.extract_tasks(MODEL, {"y": weights}, "llvm")


BOX = re.escape(f"{'-' * 70}\n{'-' * 30}  [ ") + "{}" + re.escape(f" ]\n{'-' * 70}\n")
ROUND = (
    BOX.format("Task Scheduler")
    + r"\|  ID  \| Latency \(ms\) \| Speed \(GFLOPS\) \| Trials \|\n-{49}\n"
    + r"(\|    [01] \| [ \d.-]{12} \| [ \d.-]{14} \| [ \d]{6} \|\n){2}-{49}\n"
    + r"Estimated total latency: [\d.-]+ ms\tTrials: \d+\tUsed time : \d+ s\tNext ID: [01]\t\n"
    + BOX.format("Search")
    + r"(Generate Sketches\t\t#s: \d+\n)?"
    + r"Sample Initial Population\t#s: \d+\tfail_ct: \d+\tTime elapsed: \d+\.\d\d\n"
    + r"(GA Iter: \d\tMax score: -?\d+\.\d{4}\tMin score: -?\d+\.\d{4}\t#Pop: \d+\t#M\+: \d+"
    + r"\t#M-: \d+\n)*(EvolutionarySearch\t\t#s: \d+\tTime elapsed: \d+\.\d\d\n)?"
    + BOX.format("Measure")
    + r"Get \d+ programs to measure:\n(\.+\n\*+)+\nTime elapsed for measurement: \d+\.\d\d s\n"
    + BOX.format("Train cost model")
    + r"Time elapsed for training: \d+\.\d\d s\n"
)


def test_it_prints_the_forms_of_v08_and_writes_each_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.json"
    tasks, weights = model_tasks()
    chosen = [k for k, t in enumerate(tasks) if "dense" in t.name][:2]
    tuner = auto_scheduler.TaskScheduler([tasks[k] for k in chosen], [weights[k] for k in chosen])
    tuner.tune(options(log, 10, num_measures_per_round=4, verbose=1))
    out = capsys.readouterr().out
    assert re.fullmatch(f"({ROUND})+", out), out
    found = trials(log)
    assert len(found) == 10
    assert sum(r.choice == DEFAULTS for r in found) == 2  # each begins with its default
    best = {t.name: min(r.time for r in found if r.kernel == t.name) for t in tuner.tasks}
    assert tuner.best_costs == [best[t.name] for t in tuner.tasks]
    rows = (tmp_path / "total_latency.tsv").read_text().splitlines()
    assert all(
        re.fullmatch(r"ElapsedTime\(s\)\t\d+\tEstimatedLatency\(ms\)\t\S+\tTrials\t\d+", row)
        for row in rows
    )
    assert rows[-1].endswith("\t10")
    again = auto_scheduler.TaskScheduler(tuner.tasks, load_log_file=str(log), callbacks=[])
    again.tune(options(log, 4))
    choices = [(r.kernel, r.choice) for r in trials(log)]
    assert len(choices) == len(set(choices)) == 14
    assert again.ct == 4
    assert sum(again.task_trials) == 14
    _compiles_by(log, {t.name for t in tuner.tasks})


def _compiles_by(log: Path, names: set[str]) -> None:
    """The best of the log is what a compilation in the block takes, and it computes the same."""
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    with auto_scheduler.ApplyHistoryBest(log) as best:
        tuned = treadle.compile(MODEL, shapes=SHAPES)
    pairs = auto_scheduler.ApplyHistoryBest(auto_scheduler.load_records(log))
    for kernel in tuned.kernels:
        known = pairs.records.get(kernel.name, kernel.target)
        assert known == best.records.get(kernel.name, kernel.target)
    plain = treadle.compile(MODEL, shapes=SHAPES)
    assert tuned.coverage is not None
    assert tuned.coverage.tuned == len(names)
    assert plain.coverage is None
    for kernel in tuned.kernels:
        if kernel.name in names:
            assert best.records.get(kernel.name, kernel.target) == kernel.choice
    for got, wanted in zip(tuned(image), plain(image), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4, atol=1e-5)


def test_rounds_go_by_strategy_and_objective(tmp_path: Path) -> None:
    class Order(auto_scheduler.TaskSchedulerCallback):
        def __init__(self) -> None:
            self.ids: list[int] = []

        def pre_tune(self, task_scheduler: auto_scheduler.TaskScheduler, task_id: int) -> None:
            self.ids.append(task_id)

    tasks = [task_of(matmul_add, 16, 16, 8), task_of(row_softmax, 16, 16)]
    for strategy, objective in (("round-robin", None), ("gradient", lambda costs: costs[1])):
        order = Order()
        tuner = auto_scheduler.TaskScheduler(
            tasks, objective_func=objective, strategy=strategy, callbacks=[order]
        )
        tuner.tune(
            options(tmp_path / f"{strategy}.json", 4, num_measures_per_round=1), "sketch.random"
        )
        assert order.ids == ([0, 1, 0, 1] if objective is None else [0, 1, 1, 1])


def test_tuning_stops_where_nothing_becomes_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.json"
    tuner = auto_scheduler.TaskScheduler(
        [task_of(row_softmax, 16, 16)], objective_func=lambda _: 1.0, callbacks=[]
    )
    tuner.tune(options(log, 40, num_measures_per_round=2, early_stopping=4, verbose=1))
    assert len(trials(log)) == 6
    assert "Stop early since no performance improvement in the last 4 measurement trials." in (
        capsys.readouterr().out
    )


def test_a_task_of_which_nothing_runs_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = options(tmp_path / "log.json", 30, num_measures_per_round=10, verbose=1)
    how.builder = auto_scheduler.LocalBuilder(timeout=1e-9, n_parallel=2)
    tuner = auto_scheduler.TaskScheduler([task_of(matmul_add, 16, 24, 8)], callbacks=[])
    tuner.tune(how)
    out = capsys.readouterr().out
    assert ".T.T.T.T\n" in out
    assert "Task 0 is given up, as its first candidates fail alike: the build takes longer" in out
    assert tuner.ct == 10


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("there are no tasks", {"tasks": []}),
        ("strategy is 'x'", {"strategy": "x"}),
        ("there are 2 weights for 1 tasks", {"task_weights": [1, 2]}),
        ("alpha is 3", {"alpha": 3}),
    ],
)
def test_mistakes_say_what_to_do(problem: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=problem):
        auto_scheduler.TaskScheduler(
            **{"tasks": [task_of(matmul_add, 16, 16, 8)], "callbacks": [], **arguments}
        )


def test_fewer_trials_than_tasks_are_refused(tmp_path: Path) -> None:
    tasks = [task_of(matmul_add, 16, 16, 8), task_of(row_softmax, 16, 16)]
    tuner = auto_scheduler.TaskScheduler(tasks, callbacks=[])
    with pytest.raises(UsageError, match="too small for 2 tasks"):
        tuner.tune(options(tmp_path / "log.json", 1))
    with pytest.raises(UsageError, match="no search policy"):
        tuner.tune(options(tmp_path / "log.json", 4), "sketch.x")


# -- forms


def test_marks_of_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    screen, kind = Screen(1), MeasureErrorNo
    screen.measuring(6, 4)
    outcomes = [kind.NO_ERROR, kind.COMPILE_HOST, kind.WRONG_ANSWER, kind.BUILD_TIMEOUT,
                kind.RUN_TIMEOUT, kind.NO_ERROR]  # fmt: skip
    for number, outcome in enumerate(outcomes, start=1):
        screen.measured(outcome, is_last=number == len(outcomes))
    assert capsys.readouterr().out.endswith("measure:\n..E..T\n**E..\n*T*")


def test_the_table() -> None:
    text = table_text([9.488e-3, float("inf")], [2e9, 0.0], [64, 0], ("-", 64, 10782.4, 1))
    assert text.splitlines() == [
        "|  ID  | Latency (ms) | Speed (GFLOPS) | Trials |",
        "-------------------------------------------------",
        "|    0 |        9.488 |           2.00 |     64 |",
        "|    1 |            - |              - |      0 |",
        "-------------------------------------------------",
        "Estimated total latency: - ms\tTrials: 64\tUsed time : 10782 s\tNext ID: 1\t",
    ]


def test_generations(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(1)
    screen.generation(Generation(3, False, 116, (1.0,), 1, 2, 3.0))
    screen.generation(Generation(4, True, 116, (0.9487, 0.773), 1381, 37, 83.24))
    assert capsys.readouterr().out == (
        "GA Iter: 4\tMax score: 0.9487\tMin score: 0.7730\t#Pop: 2\t#M+: 1381\t#M-: 37\n"
        "EvolutionarySearch\t\t#s: 2\tTime elapsed: 83.24\n"
    )
