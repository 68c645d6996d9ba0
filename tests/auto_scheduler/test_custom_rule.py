# SPDX-License-Identifier: Apache-2.0
"""Sketch rules of users, as v0.8's tutorial on sparse products writes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.auto_scheduler.workloads import matmul_add, options, task_of
from treadle import auto_scheduler
from treadle.auto_scheduler.screen import Screen
from treadle.build.records import Record, Records
from treadle.errors import UsageError
from treadle.te.choice import Script

Rule = auto_scheduler.PreloadCustomSketchRule


def meets(policy: Any, state: auto_scheduler.LoopState, stage_id: int) -> int:
    assert policy.search_task.compute_dag.ops
    return Rule.APPLY_AND_SKIP_REST if state.stages[stage_id].op.name == "out" else Rule.PASS


def applies(policy: Any, state: auto_scheduler.LoopState, stage_id: int) -> list[list[Any]]:
    s0 = state.copy()
    out, product = s0.stage_ops[stage_id], s0.stage_ops[2]
    i, j = s0[out].iters
    io, ii = s0.split(out, i, [4])
    jo, ji = s0.split(out, j, [8])
    s0.reorder(out, [io, jo, ii, ji])
    s0.vectorize(out, ji)
    s0.parallel(out, io)
    s0.compute_at(product, out, jo)
    return [[s0.state_object, 1]]


def test_a_rule_schedules_its_stages_in_all_candidates(tmp_path: Any) -> None:
    task, log = task_of(matmul_add, 32, 24, 16), tmp_path / "log.json"
    rule = Rule(meets, applies, "rows in parallel")
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])
    task.tune(options(log, 3), policy)
    found = [r for r in Records.read(log) if isinstance(r, Record)]
    assert found
    for record in found:
        assert not record.error
        assert isinstance(record.choice, Script)
        assert [s.primitive for s in record.choice.steps[:6]] == [
            "split", "split", "reorder", "vectorize", "parallel", "compute_at",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "made", "problem"),
    [
        (Rule.APPLY, None, "answers APPLY"),
        (Rule.APPLY_AND_SKIP_REST, [], "returns"),
        (Rule.APPLY_AND_SKIP_REST, [["state", 1]], "returns"),
        (Rule.APPLY_AND_SKIP_REST, 5, "returns 5"),
        (Rule.APPLY_AND_SKIP_REST, [5], "returns"),
    ],
)
def test_what_is_no_rule_is_refused(answer: int, made: Any, problem: str) -> None:
    rule = Rule(lambda *_: answer, lambda *_: made)
    policy = auto_scheduler.SketchPolicy(task_of(matmul_add, 32, 24, 16), schedule_rules=[rule])
    with pytest.raises(UsageError, match=problem):
        policy.space(Screen(0))
