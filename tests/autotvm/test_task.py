# SPDX-License-Identifier: Apache-2.0
"""Tasks: of templates and of models, what there is to choose from, and its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autotvm.templates import matmul_task, ways_task
from tests.optimize.cases import function, var
from tests.tune.tasks import network
from treadle import autotvm, build, te
from treadle.errors import ConfigError, UsageError
from treadle.graph.nodes import Module
from treadle.ops.elementwise import relu
from treadle.ops.matmul import matmul

pytestmark = pytest.mark.tiny


def test_a_task_of_a_template_says_what_it_is() -> None:
    task = matmul_task()
    assert (task.name, task.args) == ("tests/matmul", (16, 16, 16, "float32"))
    assert task.workload == ("tests/matmul", 16, 16, 16, "float32")
    assert task.flop == 2 * 16**3
    assert ways_task().flop == 1000  # by cfg.add_flop
    assert matmul_task(8).kernel_name != task.kernel_name
    assert "func_name=tests/matmul" in repr(task)


def test_configurations_have_numbers_as_in_autotvm() -> None:
    space = matmul_task().config_space
    assert len(space) == 5 * 5 * 6 * 2 * 2
    assert list(space.space_map) == ["tile_y", "tile_x", "order", "inner", "unroll"]
    first = space.get(0)
    assert str(first) == (
        "[('tile_y', [-1, 1]), ('tile_x', [-1, 1]), ('order', [0, 1, 2]), ('inner', ['none']), "
        "('unroll', 0)],None,0"
    )
    config = space.get(3 + 5 * 2)  # the first knob counts fastest
    assert config.index == 13
    assert config["tile_y"].size == (2, 8)  # type: ignore[union-attr]
    assert config["tile_x"].size == (4, 4)  # type: ignore[union-attr]
    printed = repr(space)
    assert printed.startswith(
        "ConfigSpace (len=600, space_map=\n   0 tile_y: Split(policy=factors, "
    )
    assert "product=16, num_outputs=2) len=5" in printed
    with pytest.raises(UsageError, match="no configuration 600"):
        space.get(600)
    with pytest.raises(ConfigError, match="not vectorized"):
        space.get(5 * 5 * 6)


def test_the_space_is_what_can_be_made_and_each_has_its_schedule() -> None:
    space = ways_task().config_space
    assert [c["way"].val for c in space] == ["right"] * 2 + ["wrong"] * 2 + ["thread"] * 2
    task = matmul_task()
    schedule, (a, b, c) = task.instantiate(task.config_space.get(13))
    x, y, out = (np.random.default_rng(k).random((16, 16), "float32") for k in range(3))
    build(schedule, [a, b, c])(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)
    assert "factor=8" in schedule.as_python()


@autotvm.template("tests/scaled")
def scaled(x: Any, factor: float, axes: tuple[int, ...]) -> Any:
    y: Any = te.compute(x.shape, lambda *i: x[i] * factor, name="y")
    s = te.create_schedule(y.op)
    autotvm.get_config().define_knob("axes", [*axes])
    return s, [x, y]


def test_tensors_and_lists_are_arguments() -> None:
    x = te.placeholder((4, 6), "float32", "x")
    task = autotvm.task.create("tests/scaled", args=(x, 2.0, [0, 1]), target="llvm")
    assert task.args == (("TENSOR", (4, 6), "float32"), 2.0, (0, 1))
    assert (task.flop, len(task.config_space)) == (24, 2)
    assert scaled(x, 2.0, (0, 1))[1][0].shape == x.shape


def swapped(*, is_alien: bool) -> Any:
    x, other = te.placeholder((4,), name="x"), te.placeholder((4,), name="x")
    y: Any = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    return te.create_schedule(y.op), [other, y] if is_alien else [x]


autotvm.template("tests/without_result", lambda: swapped(is_alien=False))
autotvm.template("tests/alien", lambda: swapped(is_alien=True))


def test_what_a_template_returns_is_looked_at() -> None:
    autotvm.template("tests/nothing", lambda: None)
    with pytest.raises(UsageError, match="'tests/nothing' returns NoneType"):
        autotvm.task.create("tests/nothing", args=(), target="llvm")
    with pytest.raises(UsageError, match="computes is not among its tensors"):
        autotvm.task.create("tests/without_result", args=(), target="llvm")
    with pytest.raises(UsageError, match="tensor x of the template 'tests/alien' is not in"):
        autotvm.task.create("tests/alien", args=(), target="llvm")
    with pytest.raises(UsageError, match="no template 'tests/matmull'"):
        autotvm.task.create("tests/matmull", args=(), target="llvm")
    with pytest.raises(UsageError, match="there is a template 'tests/ways' already"):
        autotvm.template("tests/ways", lambda: None)
    with pytest.raises(UsageError, match="no template is running"):
        autotvm.get_config()
    with pytest.raises(UsageError, match="object cannot be an argument"):
        autotvm.task.create("tests/scaled", args=(object(),), target="llvm")


def test_an_order_may_be_defined_of_loops_that_will_be() -> None:
    def template(n: int) -> Any:
        x = te.placeholder((n, n), name="x")
        y: Any = te.compute((n, n), lambda i, j: x[i, j] + 1.0, name="y")
        s, cfg = te.create_schedule(y.op), autotvm.get_config()
        i, j = s[y].op.axis  # type: ignore[union-attr]
        io, ii = cfg.define_split("tile_i", cfg.axis(i), "factors", num_outputs=2)
        jo, ji = cfg.define_split("tile_j", j, policy="power2", num_outputs=2)
        cfg.define_reorder(
            "order", [io, ii, jo, ji], "candidate", candidate=[[io, jo, ii, ji], [jo, io, ji, ii]]
        )
        loops = [*cfg["tile_i"].apply(s, y, i), *cfg["tile_j"].apply(s, y, j)]
        cfg["order"].apply(s, y, loops)
        return s, [x, y]

    autotvm.template("tests/virtual", template)
    space = autotvm.task.create("tests/virtual", args=(8,), target="llvm").config_space
    assert len(space) == 4 * 4 * 2
    assert space.get(31)["order"].perm == (2, 0, 3, 1)  # type: ignore[union-attr]


def test_the_tasks_of_a_model_are_its_kernels_that_leave_a_choice() -> None:
    (task,) = autotvm.task.extract_from_program(network(), target="llvm")
    assert task.args == (("TENSOR", (16, 8), "float32"), ("TENSOR", (8, 8), "float32"))
    assert task.flop == 2 * 16 * 8 * 8
    assert len(task.config_space) == 16
    assert task.config_space.get(1)["rows"].val == 2  # type: ignore[union-attr]
    both = autotvm.task.extract_from_multiple_program([network(), network(8)], [None, {}])
    assert len(both) == 2
    assert autotvm.task.extract_from_program(network(), ops=["conv2d"]) == []
    assert len(autotvm.task.extract_from_program(network(), ops=["own_product", matmul])) == 1


def test_params_are_weights() -> None:
    params = [var("x", 16, 8), var("w", 8, 8)]
    module = Module(function(relu(matmul(*params)), params=params))
    weights = {"w": np.ones((8, 8), "float32")}
    tasks = autotvm.task.extract_from_program(module, params=weights)
    assert [v.sum() for t in tasks for v in t.engine.constants.values()] == [64.0]
    with pytest.raises(UsageError, match="params has 'v', which is no input"):
        autotvm.task.extract_from_program(module, params={"v": weights["w"]})
