# SPDX-License-Identifier: Apache-2.0
"""Schedules that are written down and made again: the same loops come of it."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.expr.nodes import Var
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import func_text
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule
from treadle.te.steps import steps_from_json

Arg = Tensor | Var


def again(schedule: Schedule) -> tuple[Schedule, Schedule]:
    """Return two schedules of the same tensors: by the steps from JSON, and by the Python text."""
    foreign = [v for v, name in schedule.sizes.names.items() if name not in schedule.sizes.own]
    steps = steps_from_json(schedule.to_json())
    assert steps == tuple(schedule.steps)
    replayed = schedule.fresh().replay(steps, foreign)
    pasted = schedule.fresh()
    names = {schedule.sizes.names[v]: v for v in foreign}
    exec(schedule.as_python(), {"s": pasted, **names})
    return replayed, pasted


def check_again(schedule: Schedule, args: Sequence[Arg], loops: str = "") -> None:
    """Fail unless a schedule that is written down makes the same loops in both ways.

    `loops` is what it makes, where that is known.
    """
    loops = loops or func_text(schedule_to_func(schedule, args))
    for made in again(schedule):
        assert made.steps == schedule.steps
        assert func_text(schedule_to_func(made, args)) == loops
