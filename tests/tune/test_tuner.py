# SPDX-License-Identifier: Apache-2.0
"""The tuner as a whole: what it tries, writes, goes on from and decides."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.tune.tasks import product_task
from treadle.build.records import Record, Records
from treadle.te.knobs import DEFAULTS
from treadle.tune.allocate import Progress
from treadle.tune.options import TuneOptions
from treadle.tune.proposals import Proposals
from treadle.tune.record_file import RecordFile
from treadle.tune.runner import MeasureOptions
from treadle.tune.state import TaskState
from treadle.tune.tuner import Tuner

QUICK = TuneOptions(
    search="grid", builders=1, measure=MeasureOptions(repeat=3, min_repeat_ms=0.2, threads=1)
)


def tuned(path: Path, options: TuneOptions = QUICK) -> Tuner:
    file = RecordFile(path)
    try:
        tuner = Tuner([product_task()], file, options)
        tuner.run()
        return tuner
    finally:
        file.close()


def test_a_whole_space_is_tried_once(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    tuner = tuned(path)
    (state,) = tuner.states
    assert len(state.trials) == 16  # 4 kinds of rows, with lanes or not, broken or not
    assert state.trials[0].choice == DEFAULTS
    assert state.default == state.trials[0].time
    assert state.best is not None
    assert state.best.time == min(t.time for t in state.trials)
    assert sum(state.failures.values()) == 8
    assert len(state.first_failures) == 1
    assert state.status == "done"
    assert [r.choice for r in Records.read(path)] == [t.choice for t in state.trials]


def test_the_same_command_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first = tuned(path, replace(QUICK, trials=5))
    assert first.trials == 5
    second = tuned(path, replace(QUICK, trials=9))
    assert (second.states[0].resumed, second.new_trials) == (5, 4)
    third = tuned(path)
    assert (third.states[0].resumed, third.new_trials) == (9, 7)
    choices = [str(r.choice.to_json()) for r in Records.read(path)]
    assert len(choices) == len(set(choices)) == 16
    assert tuned(path).new_trials == 0


def test_rounds_are_driven_from_outside(tmp_path: Path) -> None:
    class Watch:
        def __init__(self) -> None:
            self.told: list[object] = []

        def measuring(self, count: int) -> None:
            self.told.append(count)

        def measured(self, record: Record) -> None:
            self.told.append(record.choice)

        def learning(self) -> None:
            self.told.append("learning")

    file = RecordFile(tmp_path / "records.jsonl")
    try:
        tuner, watch = Tuner([product_task()], file, QUICK), Watch()
        with tuner.workers() as workers:
            first = tuner.round(0, 3, workers, watch)
            assert watch.told == [3, *(r.choice for r in first), "learning"]
            assert first[0].choice == DEFAULTS
            rest = tuner.round(0, 20, workers, watch)
            assert len(rest) == 13  # of 16 there are
            assert not tuner.round(0, 3, workers, watch)
    finally:
        file.close()
    assert [r.choice for r in Records.read(file.path)] == [r.choice for r in (*first, *rest)]


def test_times_of_other_circumstances_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    tuned(path, replace(QUICK, trials=3))
    options = replace(QUICK, search="random", trials=3)
    other = tuned(path, replace(options, measure=replace(QUICK.measure, flush=True)))
    (state,) = other.states
    assert state.resumed == 0
    assert state.elsewhere  # but tried early
    known = min((r for r in state.elsewhere if r.space), key=lambda r: r.time)
    assert state.trials[1].choice == known.choice


def test_a_task_of_which_nothing_runs_ends_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    options = replace(QUICK, build_timeout=0.0)
    tuner = tuned(path, options)
    (state,) = tuner.states
    assert state.status == "failed"
    assert state.failed == "the build takes longer than 0 s"
    assert len(state.trials) < 16


PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.tune.test_tuner import QUICK, tuned
tuned(Path(sys.argv[1]), replace(QUICK, builders=2))
"""


@pytest.mark.parametrize("lines", [1, 4, 7])
def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "records.jsonl"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines, "the trials")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = len(Records.read(path))
    assert kept >= lines
    tuner = tuned(path)
    assert (tuner.states[0].resumed, tuner.trials) == (kept, 16)
    choices = [str(r.choice.to_json()) for r in Records.read(path)]
    assert len(choices) == len(set(choices))


@pytest.mark.tiny
def test_first_trials_are_promised_by_the_limits_and_by_what_others_took() -> None:
    task = product_task()
    known, untried = (TaskState(k, task, Progress(1)) for k in range(2))
    known.add(Record(task.name, str(task.target), DEFAULTS, (4e-6,)))
    proposals = Proposals([known, untried], QUICK, [], None, None)
    proposals.propose([])
    assert untried.progress.expected == pytest.approx(4e-6)  # the same kernel
    assert [trial.state for trial in proposals.waiting] == [untried]


@pytest.mark.tiny
def test_a_kernel_that_hardly_counts_is_not_tried_before_what_takes_long() -> None:
    task = product_task()
    long, short = TaskState(0, task, Progress(1000)), TaskState(1, task, Progress(1))
    long.add(Record(task.name, str(task.target), DEFAULTS, (4e-6,)))
    proposals = Proposals([long, short], QUICK, [], None, None)
    proposals.propose([])
    assert {trial.state.number for trial in proposals.waiting} == {0}
