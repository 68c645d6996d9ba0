# SPDX-License-Identifier: Apache-2.0
"""The state that rules of users extend: v0.8's names for its stages, loops and steps."""

from __future__ import annotations

import pytest

from tests.auto_scheduler.workloads import matmul_add, task_of
from treadle import auto_scheduler
from treadle.auto_scheduler.loop_state import LoopState, State
from treadle.errors import UsageError

pytestmark = pytest.mark.tiny


def state_of() -> tuple[auto_scheduler.SearchTask, LoopState]:
    task = task_of(matmul_add, 32, 24, 16)
    return task, LoopState(task.compute_dag.schedule.fresh())


def test_a_state_is_a_copy_as_rules_of_v08_make_it() -> None:
    task, given = state_of()
    made = auto_scheduler.loop_state.State(given, task.compute_dag)
    out = made.stages[-1].op
    i, j = made[out].iters
    io, ii = made.split(out, i, [4])
    made.reorder(out, [io, j, ii])
    assert [s.primitive for s in made.transform_steps] == ["split", "reorder"]
    assert [it.name for it in made[out].iters] == [io.name, j.name, ii.name]
    assert given.transform_steps == ()
    assert isinstance(made.state_object, LoopState)
    assert State(made, task.compute_dag).transform_steps == made.transform_steps


def test_lengths_are_those_of_the_inner_or_of_the_outer_loops() -> None:
    _, state = state_of()
    i, j = state[4].iters
    assert len(state.split(4, i, [2, 4])) == 3
    outer = state.split(4, j, [2, 3], inner_to_outer=False)
    assert len(outer) == 3
    assert [s.args[1:] for s in state.transform_steps] == [(4,), (2,), (None, 2), (None, 3)]


@pytest.mark.parametrize("key", [-1, 99])
def test_a_stage_that_is_not_there_is_told_of(key: int) -> None:
    _, state = state_of()
    with pytest.raises(UsageError, match="the last is 4"):
        _ = state[key]
