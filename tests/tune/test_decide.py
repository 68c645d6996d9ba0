# SPDX-License-Identifier: Apache-2.0
"""What only looked faster does not become a decision; what is a little faster for certain does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from treadle.build.records import Record
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.allocate import Progress
from treadle.tune.decide import decided
from treadle.tune.executor import Workers
from treadle.tune.runner import Measured
from treadle.tune.state import TaskState
from treadle.tune.task import Task

OTHER = Config((("tile", 4),))


class Race:
    """Workers whose races have a known end."""

    def __init__(self, default: Sequence[float], other: Sequence[float]) -> None:
        self.times = {DEFAULTS: tuple(default), OTHER: tuple(other)}

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        return [Measured(self.times[c]) for c in choices]


def winner(default: Sequence[float], other: Sequence[float]) -> Choice:
    state = TaskState(0, cast(Task, None), Progress(1), default=2.0)
    state.trials.append(Record("kernel", "c", OTHER, seconds=(1.0,)))
    return decided(state, cast(Workers, Race(default, other)))[0]


@pytest.mark.parametrize(
    ("slower_rounds", "gain", "expected"),
    [(0, 0.004, OTHER), (3, 0.004, OTHER), (4, 0.004, DEFAULTS), (7, 0.02, OTHER)],
)
def test_a_small_gain_counts_where_most_rounds_have_it(
    slower_rounds: int, gain: float, expected: Choice
) -> None:
    other = [1.01] * slower_rounds + [1.0 - gain] * (15 - slower_rounds)
    assert winner([1.0] * 15, other) == expected


def test_what_is_slower_in_the_race_is_no_decision() -> None:
    assert winner([1.0] * 15, [1.001] * 15) == DEFAULTS
    assert winner([], [1.0] * 15) == OTHER
