# SPDX-License-Identifier: Apache-2.0
"""What a tuning run shows of each task."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tune.tasks import product_task
from treadle.build.records import Record
from treadle.cli.roofline import Limits
from treadle.cli.tune_view import _table, of_roofline, share_of
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.allocate import Progress
from treadle.tune.state import TaskState

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
    from rich.console import Console

    state = state_of(8.192e-6, 4.096e-6)
    tuner: Any = SimpleNamespace(states=[state], now=2 * 4.096e-6)
    out = io.StringIO()
    Console(file=out, width=140).print(_table(tuner, LIMITS))
    headings, row = out.getvalue().splitlines()
    for heading in ("share", "before", "best", "roofline %", "trials", "state"):
        assert heading in headings
    assert row.split()[1:] == [
        *("1", "50.0%", "8.2", "us", "4.1", "us", "2.00x", "50.0%", "2", "tuning"),
    ]  # fmt: skip
