# SPDX-License-Identifier: Apache-2.0
"""Tasks of users' functions: tuned, resumed, applied, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from tests.auto_scheduler.workloads import QUICK, TARGET, matmul_add, options, task_of
from treadle import auto_scheduler
from treadle.build.records import Record, Records
from treadle.errors import UsageError
from treadle.te.choice import Script


def small() -> auto_scheduler.SearchTask:
    return task_of(matmul_add, 32, 24, 16)


def trials(log: Path | str) -> list[Record]:
    return [r for r in Records.read(log) if isinstance(r, Record) and r.is_trial]


def test_a_task_says_what_it_computes() -> None:
    task = small()
    assert task.workload_key == '["matmul_add", 32, 24, 16]'
    assert task.desc.startswith("matmul_add_")
    assert str(task.compute_dag) == (
        "A = PLACEHOLDER [32, 16]\n"
        "B = PLACEHOLDER [16, 24]\n"
        "matmul(i, j) += (A[i, k] * B[k, j])\n"
        "C = PLACEHOLDER [32, 24]\n"
        "out(i, j) = (matmul[i, j] + C[i, j])\n"
    )
    assert task.compute_dag.flop_ct == 2 * 32 * 24 * 16 + 32 * 24
    again = auto_scheduler.SearchTask(workload_key=task.workload_key, target=TARGET)
    assert again.name == task.name


def test_the_best_is_applied_and_printed(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", small()
    task.tune(options(log, 6))
    found = trials(log)
    assert len(found) == 6
    assert all(isinstance(r.choice, Script) and r.kernel == task.name for r in found)
    schedule, args = task.apply_best(log)
    built = treadle.build(schedule, args, task.target)
    random = np.random.default_rng(0)
    a, b, c = (random.random(s, np.float32) for s in ((32, 16), (16, 24), (32, 24)))
    out = treadle.empty((32, 24), "float32")
    built(a, b, c, out)
    np.testing.assert_allclose(np.asarray(out), a @ b + c, rtol=1e-5)
    best = min(found, key=lambda r: r.time)
    text = task.print_best(log, print_mode="schedule")
    assert text == schedule.as_python()
    assert "s[" in text
    assert "for " in task.print_best(log, "loops")
    assert "define" in task.print_best(log, "source")
    inputs, result = auto_scheduler.load_best_record(log, task.workload_key, TARGET)
    assert inputs is not None
    assert result is not None
    assert (inputs.task.workload_key, list(result.costs)) == (task.workload_key, [*best.seconds])


def resume_search(task: auto_scheduler.SearchTask, log_file: Path, count: int) -> None:
    """The recipe of v0.8's tutorial."""
    cost_model = auto_scheduler.XGBModel()
    cost_model.update_from_file(log_file)
    search_policy = auto_scheduler.SketchPolicy(
        task, cost_model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)]
    )
    measure_ctx = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=0.2)
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=count,
        runner=measure_ctx.runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
    )
    task.tune(tune_option, search_policy=search_policy)
    del measure_ctx


def test_the_recipe_of_resuming_measures_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, task = tmp_path / "log.json", small()
    for count in (3, 3, 13):
        resume_search(task, log, count)
    choices = [r.choice for r in trials(log)]
    assert len(choices) == len(set(choices)) == 19
    out = capsys.readouterr().out
    assert f"SearchPolicy: No measurement records found in {log} for {task.workload_key}" in out
    assert f"SearchPolicy: Loaded 6 measurement records from {log} for {task.workload_key}" in out
    assert "------------------------------  [ Call init-search callbacks ]\n" in out
    assert "GA Iter: 0\tMax score: " in out
    assert out.endswith(f"{'-' * 30}  [ Done ]\n{'-' * 70}\n")


def test_a_log_of_another_name_is_gone_on_from(tmp_path: Path) -> None:
    old, new, task = tmp_path / "old.json", tmp_path / "new.json", small()
    task.tune(options(old, 4))
    policy = auto_scheduler.SketchPolicy(
        task, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(old)]
    )
    task.tune(options(new, 4), policy)
    assert not {r.choice for r in trials(old)} & {r.choice for r in trials(new)}
    assert len(trials(new)) == 4


def test_a_log_may_be_in_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)  # where the file of latencies is written
    log, task = f"sqlite:///{tmp_path / 'log.db'}", small()
    scheduler = auto_scheduler.TaskScheduler([task], load_log_file=log)
    scheduler.tune(options(log, 4))
    assert len(trials(log)) == 4
    again = auto_scheduler.TaskScheduler([task], load_log_file=log)
    again.tune(options(log, 4))
    found = trials(log)
    assert len(found) == len({r.choice for r in found}) == 8
    assert task.print_best(log)


def test_callbacks_of_users_are_told(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Count(auto_scheduler.PythonBasedMeasureCallback):
        def callback(self, policy: object, inputs: Any, results: Any) -> None:
            assert isinstance(policy, auto_scheduler.SketchPolicy)
            assert all(i.state.transform_steps for i in inputs)
            assert all(r.error_no == 0 and r.timestamp > 0 for r in results)
            seen.append((len(inputs), len(results)))

    how = options(tmp_path / "log.json", 5, num_measures_per_round=3)
    how.measure_callbacks.append(Count())
    small().tune(how)
    assert seen == [(3, 3), (2, 2)]


def test_an_interrupt_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.tune.tuner.Tuner.round", interrupted)
    log = tmp_path / "log.json"
    with pytest.raises(KeyboardInterrupt):
        small().tune(options(log, 4, verbose=1))
    assert f"Stopped after 0 trials. The same script goes on from {log}." in capsys.readouterr().out


def test_one_call_tunes_and_gives_the_schedule() -> None:
    how = auto_scheduler.TuningOptions(num_measure_trials=2, verbose=0, runner=QUICK)
    schedule, args = auto_scheduler.auto_schedule(small(), tuning_options=how)
    assert schedule.steps
    assert len(args) == 4
    assert not how.measure_callbacks


def test_empty_policies_draw_at_random(tmp_path: Path) -> None:
    task = small()
    task.tune(options(tmp_path / "log.json", 3), auto_scheduler.EmptyPolicy(task))
    assert len(trials(tmp_path / "log.json")) == 3


def test_hardware_params_shape_the_candidates() -> None:
    params = auto_scheduler.HardwareParams(vector_unit_bytes=16, num_cores=7)
    task = auto_scheduler.SearchTask(
        func=matmul_add, args=(32, 24, 16), target=TARGET, hardware_params=params
    )
    space = auto_scheduler.SketchPolicy(task).space(_silent())
    assert space is not None
    assert (space.target.vector_bits, space.target.cores) == (128, 7)
    assert task.target == treadle.parse_target(TARGET)


def _silent() -> Any:
    from treadle.auto_scheduler.screen import Screen

    return Screen(0)


MISTAKES: list[tuple[str, Any]] = [
    ("no workload is registered as nothing", lambda _: task_of("nothing")),  # type: ignore[arg-type]
    ("no workload is known", lambda _: auto_scheduler.SearchTask(
        workload_key='["a"]', target="llvm")),
    ("no key of a workload", lambda _: auto_scheduler.SearchTask(workload_key="a", target="llvm")),
    ("has no target", lambda _: auto_scheduler.SearchTask(func=matmul_add, args=(1, 1, 1))),
    ("no computation", lambda _: auto_scheduler.SearchTask(target="llvm")),
    ("has no schedule of", lambda p: small().apply_best(_empty(p))),
    ("no CUDA source", lambda p: small().print_best(_empty(p), "cuda")),
    ("print_mode is 'x'", lambda p: small().print_best(_empty(p), "x")),
    ("num_measure_trials is 0", lambda p: small().tune(options(p / "l.json", 0))),
    ("cannot be measured on this machine", lambda p: auto_scheduler.SearchTask(
        func=matmul_add, args=(8, 8, 8), target="llvm -mtriple=aarch64-linux-gnu"
    ).tune(options(p / "l.json", 1))),
    ("n_parallel is 0", lambda _: auto_scheduler.RPCRunner("a", "127.0.0.1", 9190, 1, 0)),
    ("build_func", lambda _: auto_scheduler.LocalBuilder(build_func="ndk")),
    ("repeat is 0", lambda _: auto_scheduler.LocalRunner(repeat=0)),
    ("the runner is", lambda _: auto_scheduler.TuningOptions(1, runner="rpc")),
    ("no parameter of a search", lambda _: auto_scheduler.SketchPolicy(small(), params={"x": 1})),
    ("eps_greedy is 7", lambda _: auto_scheduler.SketchPolicy(small(), params={"eps_greedy": 7})),
    ("registered already", lambda _: auto_scheduler.register_workload("matmul_add", _empty)),
    ("task_inputs", lambda _: auto_scheduler.SearchTask(
        func=matmul_add, args=(8, 8, 8), target="llvm", task_inputs={"A": 1})),
    ("num_cores is 0", lambda _: auto_scheduler.HardwareParams(num_cores=0)),
]  # fmt: skip


def _empty(folder: Path) -> Path:
    path = folder / "empty.json"
    path.touch()
    return path


@pytest.mark.parametrize(("problem", "do"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistakes_say_what_to_do(problem: str, do: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as found:
        do(tmp_path)
    assert problem in found.value.problem
    assert found.value.hint
