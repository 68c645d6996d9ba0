# SPDX-License-Identifier: Apache-2.0
"""What a tuning run shows of each task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.tune.tasks import product_task
from treadle.build.records import Record
from treadle.cli.roofline import Limits
from treadle.cli.tune_view import View, _table_lines, best_text, of_roofline, share_of
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.allocate import Progress
from treadle.tune.state import TaskState, total_seconds

LIMITS = Limits(gflops=1.0, gigabytes=1e6)


def state_of(*times: float) -> TaskState:
    """A product of 16 x 8 by 8 x 8 (2048 operations), its default measured first."""
    task = product_task()
    state = TaskState(0, task, Progress(1))
    for number, time in enumerate(times):
        choice = DEFAULTS if not number else Config.of({"rows": number})
        state.add(Record(task.name, str(task.target), choice, seconds=(time,)))
    return state


@pytest.mark.tiny
def test_a_best_time_is_held_against_the_roofline() -> None:
    assert of_roofline(state_of(8.192e-6, 4.096e-6), LIMITS) == pytest.approx(0.5)
    assert of_roofline(state_of(8.192e-6), None) is None
    assert of_roofline(state_of(), LIMITS) is None  # nothing was measured


@pytest.mark.tiny
def test_shares_are_of_the_best_times() -> None:
    assert share_of(state_of(4e-6, 1e-6), 4e-6) == pytest.approx(0.25)
    assert share_of(state_of(4e-6), float("inf")) is None


@pytest.mark.tiny
def test_the_table_has_a_row_for_each_task() -> None:
    state = state_of(8.192e-6, 4.096e-6)
    tuner: Any = SimpleNamespace(states=[state], now=2 * 4.096e-6)
    headings, row = _table_lines(tuner, LIMITS, 140)
    for heading in ("share", "before", "best", "roofline %", "trials", "state"):
        assert heading in headings
    assert row.split()[1:] == [
        *("1", "50.0%", "8.2", "us", "4.1", "us", "2.00x", "50.0%", "2", "tuning"),
    ]  # fmt: skip


@pytest.mark.tiny
def test_what_was_measured_stands_before_what_waits() -> None:
    waiting, slow, fast = state_of(), state_of(8e-6), state_of(4e-6)
    tuner: Any = SimpleNamespace(states=[waiting, fast, slow], now=12e-6)
    lines = _table_lines(tuner, None, 140)
    assert [line.split()[-1] for line in lines[1:]] == ["tuning", "tuning", "waiting"]
    assert "66.7%" in lines[1]


@pytest.mark.tiny
@pytest.mark.parametrize("width", [80, 100])
def test_no_figure_is_cut_on_a_narrow_terminal(width: int) -> None:
    state = state_of(8.192e-3, 4.096e-3)
    state.refuse("it has no candidate")
    tuner: Any = SimpleNamespace(states=[state] * 20, now=2 * 4.096e-3)
    heading, *rows, more = _table_lines(tuner, LIMITS, width)
    assert max(map(len, (heading, *rows))) <= width
    for shown in ("best", "gain", "roofline %", "trials", "state"):
        assert shown in heading
    assert "…" not in "".join(rows).replace(rows[0].split()[0], "")
    assert all("4.10 ms" in row and "2.00x" in row and "tuning" in row for row in rows)
    assert more == "  … 4 more"


@pytest.mark.tiny
def test_trials_are_those_of_methods_and_kernels_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = View()
    view.stage("methods")
    view.show(tuner_of(trials=30, most=50))
    view.stage("tune")
    view.show(tuner_of(trials=12, most=70))
    view.stage("decide")
    lines = capsys.readouterr().err.splitlines()
    assert "methods of 0 of 1 call, 30 trials" in lines[0]
    assert "42 of 100 trials · all kernels -" in lines[1]
    assert "deciding 0 of 1" in lines[2]


@pytest.mark.tiny
def test_only_kernels_that_were_measured_are_summed() -> None:
    states = [state_of(8e-6, 4e-6), state_of()]
    before, now = total_seconds(states, default=True), total_seconds(states)
    tuner: Any = SimpleNamespace(states=states, before=before, now=now)
    assert best_text(tuner) == "1 of 2 kernels 8.0 us -> 4.0 us (2.00x)"


def tuner_of(*, trials: int, most: int) -> Any:
    """A tuner that has made some trials of the most that it may."""
    return SimpleNamespace(
        states=[state_of()], trials=trials, new_trials=trials, elapsed=2.0,
        options=SimpleNamespace(trials=most, minutes=None),
    )  # fmt: skip
