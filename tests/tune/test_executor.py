# SPDX-License-Identifier: Apache-2.0
"""Workers of this machine: what candidates are timed next to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import pytest

from tests.tune.tasks import product_task
from treadle.build.kernel import ObjectCode
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune import executor
from treadle.tune.executor import LocalWorkers, WorkOptions
from treadle.tune.runner import Baseline, Measured, MeasureOptions
from treadle.tune.task import Task

QUICK = MeasureOptions()


@dataclass
class Said:
    """A runner in whose place a test says what candidates take; it keeps what they ran next to."""

    seconds: list[float]
    control: list[Baseline | None] = field(default_factory=list)

    def measure(
        self, task: int, made: ObjectCode, best: float, baseline: Baseline | None = None
    ) -> Measured:
        self.control.append(baseline)
        taken = self.seconds.pop(0)
        return Measured((taken,) * 3) if taken else Measured(error="it is wrong")

    def race(self, task: int, made: Sequence[ObjectCode], rounds: int) -> list[Measured]:
        raise AssertionError("nothing races here")

    def close(self) -> None:
        pass


def measured(
    task: Task, runner: Said, choices: Sequence[Choice], known: dict[int, tuple[Choice, float]]
) -> list[float | None]:
    """Measure choices one after the other; return what each ran next to: seconds, or None."""
    options = WorkOptions(QUICK, builders=1, measured=known)
    times = [inf]

    def best(_: int) -> float:
        return min(times)

    with LocalWorkers([task], options, lambda *_: runner) as workers:
        for ticket, choice in enumerate(choices):
            workers.add(ticket, 0, choice)
            while workers.pending:
                for outcome in workers.results(0.5, best):
                    times += outcome.measured.seconds
    return [None if b is None else b.seconds for b in runner.control]


ROWS = [DEFAULTS, *(Config.of({"rows": n}) for n in (1, 2, 8))]


@pytest.fixture(scope="module")
def task() -> Task:
    return product_task()


def test_candidates_are_timed_next_to_the_first_that_runs(task: Task) -> None:
    runner = Said([0.0, 3e-3, 2e-3, 4e-3])
    assert measured(task, runner, ROWS, {}) == [None, None, 3e-3, 3e-3]


def test_a_candidate_that_takes_less_than_half_is_the_next_baseline(task: Task) -> None:
    runner = Said([3e-3, 1e-3, 2e-3, 2e-3])
    assert measured(task, runner, ROWS, {}) == [None, 3e-3, 1e-3, 1e-3]


def test_a_candidate_that_holds_many_weights_is_no_baseline(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_MOST_BYTES", 1)
    assert measured(task, Said([3e-3, 2e-3]), ROWS[:2], {}) == [None, None]


def test_a_candidate_that_was_cut_short_is_no_baseline(task: Task) -> None:
    runner = Said([1e-3, 9e-3, 1e-3])
    assert measured(task, runner, ROWS[:3], {}) == [None, 1e-3, 1e-3]


def test_a_run_goes_on_next_to_what_the_records_hold_a_time_of(task: Task) -> None:
    runner = Said([2e-3, 2e-3])
    known: dict[int, tuple[Choice, float]] = {0: (DEFAULTS, 3e-3)}
    assert measured(task, runner, ROWS[1:3], known) == [3e-3, 3e-3]
    default = task.built(DEFAULTS)
    assert all(b is not None and b.code.code == default.code for b in runner.control)


def test_where_that_cannot_be_built_the_first_that_runs_is_the_baseline(task: Task) -> None:
    runner = Said([2e-3, 3e-3])
    known: dict[int, tuple[Choice, float]] = {0: (Config.of({"broken": True}), 7e-3)}
    assert measured(task, runner, ROWS[1:3], known) == [None, 2e-3]
