# SPDX-License-Identifier: Apache-2.0
"""Ansor's steps and Treadle's: each as the other, and what has no meaning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle
from tests.auto_scheduler.workloads import TARGET, matmul_add, row_softmax, task_of, window
from treadle.auto_scheduler.record_format import outputs_of
from treadle.auto_scheduler.step_reader import script_steps
from treadle.auto_scheduler.steps import CODES, ansor_order, ansor_steps
from treadle.build.kernel import Kernel, Scheduled
from treadle.errors import ConfigError
from treadle.te.choice import Script
from treadle.te.steps import Step
from treadle.tune.foreign_records import NoMeaning
from treadle.tune.sketch import SketchSpace

MACHINE = treadle.parse_target(TARGET)

TUTORIAL = [
    ["SP", 2, 0, 64, [2, 1, 8], 1], ["SP", 2, 4, 64, [1, 2, 16], 1], ["SP", 2, 8, 64, [16], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 4, 0, 0, 2], ["FSP", 4, 3, 1, 2],
    ["RE", 4, [0, 3, 1, 4, 2, 5]], ["CA", 2, 4, 3], ["FU", 4, [0, 1, 2, 3]], ["AN", 4, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$64"], ["AN", 2, 9, 2], ["AN", 4, 2, 2],
]  # fmt: skip
"""A record of v0.8 for its tutorial's product: the structure SSRSRS, fused loops in parallel."""


def scheduled(function: Callable[..., Any] = matmul_add, *args: int) -> Scheduled:
    return task_of(function, *(args or (64, 64, 64))).workload.scheduled(MACHINE)


def imported(made: Scheduled, rows: Sequence[object]) -> tuple[Step, ...]:
    return script_steps(made.schedule, outputs_of(made), rows)


def plain(steps: Sequence[Step]) -> list[object]:
    """Steps without what Ansor has no place for: names of fused loops, loops that stay in place.

    A reorder that names a loop which keeps its place says the same without it.
    """
    return [(s.stage, s.primitive, s.args[:1] if s.primitive == "fuse" else s.args)
            for s in steps if s.primitive != "reorder"]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "args"), [(matmul_add, (48, 40, 32)), (window, (8, 16)), (row_softmax, (24, 50))]
)
def test_sketches_become_lines_and_the_same_schedules_again(
    function: Callable[..., Any], args: tuple[int, ...]
) -> None:
    made = scheduled(function, *args)
    space = SketchSpace(made.schedule, MACHINE)
    for point in space.sample(60, np.random.default_rng(0)):
        script = space.choice(point)
        assert script is not None
        rows = ansor_steps(made.schedule, outputs_of(made), script.steps)
        assert {row[0] for row in rows} <= set(CODES)
        back = imported(made, json.loads(json.dumps(rows)))
        assert plain(back) == plain(script.steps)
        assert ansor_steps(made.schedule, outputs_of(made), back) == rows
        first, second = (
            [[a.name for a in s.leaf_iter_vars] for s in made.schedule.fresh().replay(x).stages]
            for x in (script.steps, [s for s in back])
        )
        assert [len(a) for a in first] == [len(a) for a in second]


def test_a_script_that_went_through_lines_gives_the_same_kernel() -> None:
    task = task_of(matmul_add, 48, 40, 32)
    made = task.workload.scheduled(MACHINE)
    space = SketchSpace(made.schedule, MACHINE)
    for point in space.start()[:3]:
        script = space.choice(point)
        assert script is not None
        rows = ansor_steps(made.schedule, outputs_of(made), script.steps)
        back = Script(imported(made, rows))
        codes = [Kernel(task.workload.work, MACHINE, c).object_code().code for c in (script, back)]
        assert codes[0] == codes[1]


def test_a_record_of_the_tutorial_runs() -> None:
    made = scheduled()
    schedule = made.schedule.fresh().replay(imported(made, TUTORIAL))
    built = treadle.build(schedule, list(made.args), TARGET)  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    a, b, c = (random.random((64, 64), np.float32) for _ in range(3))
    out = treadle.empty((64, 64), "float32")
    built(a, b, c, out)
    np.testing.assert_allclose(np.asarray(out), a @ b + c, rtol=1e-5)
    text = treadle.lower(schedule, list(made.args)).__str__()  # type: ignore[arg-type]
    assert "parallel" in text


def test_stages_are_numbered_as_in_v08() -> None:
    made = scheduled()
    operations = [s.op for s in made.schedule.stages]
    order = ansor_order(operations, outputs_of(made))
    assert [operations[k].name for k in order] == ["A", "B", "matmul", "C", "out"]


def test_every_code_has_its_meaning() -> None:
    made = scheduled()
    rows: list[object] = [
        ["CHW", 2, "local"], ["SP", 3, 0, 64, [4], 0], ["SP", 3, 2, 64, [8, 2], 1],
        ["FFSP", 5, 0, [1, 2], 0, 1], ["CI", 3], ["CR", 3], ["CHR", 1, "global", [2]],
        ["RF", 3, 2, 1], ["AN", 7, 1, 1], ["SA", 2, 0, 32, 8],
    ]  # fmt: skip
    steps = imported(made, rows)
    assert [(s.primitive, s.args) for s in steps] == [
        ("cache_write", (0, "local")),
        ("split", (0, None, 4)),
        ("split", (1, 2)),
        ("split", (4, 8)),
        ("split", (0, 32)),
        ("compute_inline", ()),
        ("compute_root", ()),
        ("cache_read", (0, "global", (5,))),
        ("rfactor", (0, 2, 1)),
        ("unroll", (3,)),
        ("storage_align", (0, 32, 8)),
    ]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (["SA", 4, 0, 32, 8], "storage_align"),
        (["SA", 2, 0, 32, 32], "below the factor"),
        (["AN", 2, 0, 5], "GPU"),
        (["PR", 2, 0, "tensor_core$1"], "not known"),
        (["SP", 2, 0, 64, [None], 1], "not decided"),
        (["SP", 2, 0, 64, [1 << 30], 1], "larger than the loop"),
        (["CHW", 2, "wmma.accumulator"], "no memory"),
        (["CI", 4], "inlined"),
    ],
)
def test_what_has_no_meaning_here_says_why(row: list[object], why: str) -> None:
    with pytest.raises(NoMeaning, match="step 0") as found:
        imported(scheduled(), [row])
    assert why in str(found.value)


@pytest.mark.parametrize(
    "row",
    [
        "__import__('os').getcwd()", [], ["SP"], ["XX", 0], ["SP", "2", 0, 64, [4], 1],
        ["SP", True, 0, 64, [4], 1], ["SP", 99, 0, 64, [4], 1], ["SP", 2, -1, 64, [4], 1],
        ["SP", 2, 0, 64, [10**30], 1], ["SP", 2, 0, 64, [0], 1], ["SP", 2, 0, 64, [4.0], 1],
        ["SP", 2, 0, 64, [4] * 1000, 1], ["SP", 2, 0, 64, [4]], ["RE", 2, [0, 0, 1]],
        ["AN", 2, 0, 99], ["FSP", 2, 0, 7, 1], ["FU", 2, {"a": 1}], ["PR", 2, 0, 7],
        ["PR", 2, 0, "auto_unroll_max_step$9" + "9" * 20], [["SP"], 2, 0],
    ],
)  # fmt: skip
def test_what_is_no_step_is_refused(row: object) -> None:
    with pytest.raises(ConfigError, match="step 0"):
        imported(scheduled(), [row])


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="20001 steps"):
        imported(scheduled(), [["CR", 2]] * 20_001)


def test_a_prefetch_that_is_spread_has_no_step_in_ansor() -> None:
    made = scheduled()
    with pytest.raises(NoMeaning, match="spreads"):
        ansor_steps(made.schedule, outputs_of(made), [Step(2, "prefetch", ((0, 0), 0, 1, 2))])


def test_a_primitive_that_ansor_does_not_have_is_told_of() -> None:
    made = scheduled()
    with pytest.raises(NoMeaning, match="set_scope"):
        ansor_steps(made.schedule, outputs_of(made), [Step(2, "set_scope", ("local",))])
