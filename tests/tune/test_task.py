# SPDX-License-Identifier: Apache-2.0
"""Tasks that are templates of te: their kernels, what is right, what cannot be one."""

from __future__ import annotations

import numpy as np
import pytest

from treadle import te
from treadle.build.kernel import Scheduled, Template
from treadle.errors import ConfigError, UsageError
from treadle.expr.nodes import Var
from treadle.runtime.array import array
from treadle.target.parse import parse_target
from treadle.te.choice import Script
from treadle.te.knobs import Config, Knobs
from treadle.tune.spaces import spaces_of
from treadle.tune.task import Task, template_task

TARGET = parse_target("llvm")


def doubled(rows: int | Var) -> Template:
    def make(knobs: Knobs) -> Scheduled:
        x = te.placeholder((rows, 8), name="x")
        y = te.compute_one((rows, 8), lambda i, j: x[i, j] * 2.0, name="y")
        s = te.create_schedule(y.op)
        s[y].split(s[y].op.axis[0], factor=knobs.option("rows", 1, (2, 3)))  # type: ignore[union-attr]
        return Scheduled(s, [x, y], "doubled")

    return Template("doubled", make)


def task() -> Task:
    return template_task(doubled(5), TARGET, flops=40)


def test_every_choice_computes_what_the_plain_computation_does() -> None:
    made = task()
    assert (made.name, made.flops, made.bytes) == ("doubled", 40, 2 * 5 * 8 * 4)
    (space,) = spaces_of(made, "template")
    assert space.size == 3
    x, y = np.arange(40, dtype="float32").reshape(5, 8), np.zeros((5, 8), "float32")
    (right,) = made.reference([array(x), array(y)])
    np.testing.assert_array_equal(right, 2 * x)
    texts = set()
    for rows in (1, 2, 3):
        kernel = made.candidate(Config.of({"rows": rows}))
        texts.add(kernel.loop_text())
        kernel(x, y)
        np.testing.assert_array_equal(y, right)
        assert made.signature(kernel.workspace()) == kernel.signature
    assert len(texts) == 3


def test_steps_take_the_place_of_a_template() -> None:
    made = task()
    steps = made.candidate(Config.of({"rows": 3})).scheduled[0].schedule.steps
    scripted = made.candidate(Script(tuple(steps)))
    assert scripted.loop_text() == made.candidate(Config.of({"rows": 3})).loop_text()
    assert "x[i, j]" in scripted.te_text()


def test_a_choice_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="no candidate of knob rows"):
        task().candidate(Config.of({"rows": 7})).check_choice()
    with pytest.raises(ConfigError, match="no knob columns"):
        task().candidate(Config.of({"columns": 7})).check_choice()


def test_a_size_that_only_a_run_knows_makes_no_task() -> None:
    with pytest.raises(UsageError, match="known at run time only: n"):
        template_task(doubled(te.var("n")), TARGET, flops=0)
