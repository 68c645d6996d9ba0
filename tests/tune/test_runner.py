# SPDX-License-Identifier: Apache-2.0
"""The runner: right results count, and what is wrong, endless or crashes is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from tests.processes import PATIENCE
from tests.tune.tasks import product_task
from treadle.build.kernel import Kernel, ObjectCode
from treadle.target.backend import backend_of
from treadle.te.knobs import Config
from treadle.tune import runner as runner_module
from treadle.tune.runner import Baseline, Control, MeasureOptions, Runner, figures_of, raced
from treadle.tune.task import Task

NOTHING = ("entry:\n", "entry:\n  ret i32 0\nrest:\n")
"""Makes a kernel that writes nothing."""
QUICK = MeasureOptions(repeat=4, min_repeat_ms=0.2, timeout=PATIENCE)


@pytest.fixture(scope="module")
def task() -> Task:
    return product_task()


@pytest.fixture(scope="module")
def runner(task: Task) -> Iterator[Runner]:
    with Runner([task], QUICK) as made:
        yield made


def code_of(task: Task, edit: tuple[str, str] = ("", ""), **config: object) -> ObjectCode:
    """The code of a candidate, of which a piece of the LLVM IR is edited."""
    kernel = Kernel(task.function, task.target, Config.of(config))
    text = kernel.source()
    assert edit[0] in text
    text = text.replace(*edit) if edit[0] else text
    code = backend_of(task.target).compile([(kernel.name, text)], task.target, None)
    return ObjectCode(code[kernel.name], kernel.workspace())


def test_a_right_candidate_has_times(runner: Runner, task: Task) -> None:
    measured = runner.measure(0, code_of(task, rows=2), float("inf"))
    assert measured.error == ""
    assert 3 <= len(measured.seconds) <= QUICK.repeat
    assert all(0 < s < 1 for s in measured.seconds)


def test_a_hopeless_candidate_has_one_figure(runner: Runner, task: Task) -> None:
    measured = runner.measure(0, code_of(task), 1e-12)
    assert (measured.error, len(measured.seconds)) == ("", 1)


@pytest.mark.parametrize(("spinning", "looks"), [(0.12, 25), (0.0, 1), (9.0, 200)])
def test_threads_that_spin_after_the_reference_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, spinning: float, looks: int
) -> None:
    """Another thread uses a core for so many seconds; a second is waited at most."""
    clock = Spinning(spinning)
    monkeypatch.setattr(runner_module, "time", clock)
    runner_module.wait_for_idle_threads()
    assert clock.looks == pytest.approx(looks, abs=1)


def test_a_task_is_timed_when_the_threads_of_its_reference_are_idle(
    monkeypatch: pytest.MonkeyPatch, task: Task, tmp_path: Path
) -> None:
    waited = tmp_path / "waited"
    monkeypatch.setattr(runner_module, "wait_for_idle_threads", waited.touch)
    with Runner([task], QUICK) as made:
        assert made.prepare(0) == ""
    assert waited.exists()


class Spinning:
    """A clock of a process of which a thread spins for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds, self.looks = 0.0, seconds, 0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return min(self.now, self.seconds)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.looks += 1


def test_what_interrupts_a_part_of_the_slices_does_not_count() -> None:
    """A call takes 100 us; every third use of the timer something else runs for 10 ms."""
    timer = Interrupted(1e-4, every=3)
    figures = figures_of(timer, MeasureOptions(), 1e-4)
    assert all(f == pytest.approx(1e-4) for f in figures)
    whole = figures_of(Interrupted(1e-4, every=3), MeasureOptions(), 1e-4, sliced=False)
    assert max(whole) > 2e-4


def test_an_interrupted_first_call_is_no_hopeless_candidate() -> None:
    assert len(figures_of(Interrupted(1e-4, every=7), MeasureOptions(), 1e-4)) > 1


def test_how_fast_the_machine_is_at_the_time_drops_out() -> None:
    """It becomes slower, by half in the end; next to a kernel that took 1 ms before."""
    pace, options = Pace(), MeasureOptions(precision=0.001)
    timer, other = pace.timer(2e-3), pace.timer(1e-3)
    assert np.median(figures_of(timer, options, inf)) > 2.3e-3
    pace.seconds = 0.0
    figures = figures_of(timer, options, inf, control=Control(other, 1e-3))
    assert np.median(figures) == pytest.approx(2e-3, rel=0.02)


def test_figures_that_something_ran_in_do_not_ask_for_more() -> None:
    """Two of five take twice as long; their standard deviation would ask for all twelve."""
    uses: list[int] = []

    def timer(calls: int) -> float:
        uses.append(calls)
        return 2e-3 if len(uses) in (4, 5) else 1e-3 + 1e-6 * (len(uses) % 3)

    options = MeasureOptions(min_repeat_ms=1e-3)
    assert len(figures_of(timer, options, inf)) == 5


@dataclass
class Pace:
    """A clock of a machine that becomes slower, from 1.2 to 1.5 times the seconds of a call."""

    seconds: float = 0.0

    def timer(self, seconds: float) -> Callable[[int], float]:
        def timer(calls: int) -> float:
            taken = seconds * min(1.5, 1.2 + self.seconds)
            self.seconds += calls * taken
            return taken

        return timer


def test_every_round_of_a_race_begins_with_another() -> None:
    order: list[int] = []

    def timer(place: int) -> Callable[[int], float]:
        def seconds(calls: int) -> float:
            order.append(place)
            return 1e-2

        return seconds

    found = raced([timer(0), timer(1), timer(2)], ["", "wrong", ""], 2, MeasureOptions())
    assert [len(m.seconds) for m in found] == [2, 0, 2]
    assert order[-4:] == [0, 2, 2, 0]


@dataclass
class Interrupted:
    """A timer of calls of so many seconds, of which every so many uses hold 10 ms of other work."""

    seconds: float
    every: int
    uses: int = 0

    def __call__(self, calls: int) -> float:
        self.uses += 1
        return self.seconds + (self.uses % self.every == 1) * 1e-2 / calls


def test_a_wrong_result_never_has_a_time(runner: Runner, task: Task) -> None:
    measured = runner.measure(0, code_of(task, NOTHING), float("inf"))
    assert measured.seconds == ()
    assert measured.error.startswith("the result is wrong: max|")


CRASH = "entry:\n  call void @llvm.trap()\n"
ENDLESS = "entry:\n  br label %again\nagain:\n  br label %again\nunused:\n"


@pytest.mark.parametrize(
    ("code", "said"), [(CRASH, "the process crashed"), (ENDLESS, "it takes longer than 1 s")]
)
def test_what_crashes_or_never_ends_costs_one_trial(task: Task, code: str, said: str) -> None:
    limit = 1.0 if code is ENDLESS else PATIENCE
    with Runner([task], replace(QUICK, timeout=limit)) as runner:
        measured = runner.measure(0, code_of(task, ("entry:\n", code)), float("inf"))
        assert measured.seconds == ()
        assert measured.error.startswith(said)
        runner.options = QUICK  # a slow machine may take longer than the limit
        assert runner.measure(0, code_of(task), float("inf")).error == ""


def test_times_next_to_a_baseline_are_those_of_its_records(runner: Runner, task: Task) -> None:
    """The baseline is the candidate itself, which the records say takes a thousand seconds."""
    code = code_of(task, rows=2)
    found = runner.measure(0, code, float("inf"), Baseline(code, 1e3))
    assert found.error == ""
    assert 1e2 < np.median(found.seconds) < 1e4
    wrong = runner.measure(0, code_of(task, NOTHING), float("inf"), Baseline(code, 1e3))
    assert wrong.error.startswith("the result is wrong")


def test_candidates_run_in_turns(runner: Runner, task: Task) -> None:
    codes = [code_of(task), code_of(task, NOTHING), code_of(task, rows=8)]
    found = runner.race(0, codes, 5)
    assert [len(m.seconds) for m in found] == [5, 0, 5]
    assert found[1].error.startswith("the result is wrong")


def test_weights_are_those_of_the_model() -> None:
    task = product_task()
    weights = np.full((8, 8), 2.0, np.float32)
    with Runner([Task(task.kernel, 1, 0, 0, 0.0, False, {1: weights})], QUICK) as runner:
        # all weights alike: a kernel that reads the first row in place of each is right
        assert runner.measure(0, code_of(task), float("inf")).error == ""


def test_a_reference_that_cannot_be_computed_is_asked_for_once(task: Task) -> None:
    odd = replace(task, constants={1: np.ones((3, 3), np.float32)})
    with Runner([odd], QUICK) as runner:
        for _ in range(2):
            measured = runner.measure(0, code_of(task), float("inf"))
            assert measured.error.startswith("the reference cannot be computed: ValueError")
        assert runner.race(0, [code_of(task)], 3)[0].error == measured.error


@pytest.mark.tiny
def test_times_compare_that_were_measured_alike() -> None:
    assert MeasureOptions(threads=2).text() == "threads=2"
    assert MeasureOptions(flush=True).text() == "threads=1 flush"
    assert MeasureOptions(cold_weights=True).text() == "threads=1 cold-weights"


def test_weights_come_from_memory_where_a_model_has_many(task: Task) -> None:
    weights = np.ones((8, 8), np.float32)
    options = replace(QUICK, cold_weights=True)
    with Runner([replace(task, constants={1: weights}), task], options) as runner:
        for number in range(2):  # with weights, and a kernel that has none
            measured = runner.measure(number, code_of(task), float("inf"))
            assert measured.error == ""
            assert all(0 < s < 1 for s in measured.seconds)
        assert len(runner.race(0, [code_of(task)] * 2, 3)[1].seconds) == 3
