# SPDX-License-Identifier: Apache-2.0
"""Which sketches there are follows from the te graph, and from what rules of a user say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets import AVX512
from tests.tune import sketch_graphs as graphs
from tests.tune.test_sketch_steps import check_points
from treadle import te
from treadle.errors import ScheduleError
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.tune.sketch import SketchSpace
from treadle.tune.sketch_plans import CPU_REUSE, CPU_STREAM, Tiled
from treadle.tune.sketch_rules import SketchRule, sketches_of


def names(graph: graphs.Graph) -> list[str]:
    return [s.name for s in sketches_of(graph.schedule(), AVX512)]


def test_sketches_by_graph() -> None:
    assert names(graphs.matmul()) == ["tile C"]
    assert names(graphs.conv2d()) == ["tile conv", "tile conv, inline pad"]
    assert names(graphs.chain()) == ["plain"]
    assert names(graphs.column_sums()) == ["tile sums"]
    assert names(graphs.winograd()) == ["tile M"]  # the transform has formulas: it is kept
    assert names(graphs.matmul_of_rows()) == ["16 lanes of C"]
    assert names(graphs.matmul_of_rows(k=128)) == ["16 lanes of C", "64 lanes of C"]
    large = graphs.total(4096, 128)
    assert any(name.startswith("chunks of total, ") for name in names(large))


def plans_of(graph: graphs.Graph) -> list[Tiled]:
    (sketch,) = sketches_of(graph.schedule(), AVX512)
    return [p for p in sketch.plans if isinstance(p, Tiled)]


def test_what_is_read_again_is_tiled_in_more_levels() -> None:
    assert [p.levels.text for p in plans_of(graphs.matmul())] == [CPU_REUSE]
    assert [p.levels.text for p in plans_of(graphs.column_sums())] == [CPU_STREAM]
    assert {p.levels.text for p in plans_of(graphs.softmax())} == {CPU_STREAM}


def test_an_element_wise_result_takes_up_the_sums() -> None:
    (alone,) = sketches_of(graphs.matmul().schedule(), AVX512)
    (fused,) = sketches_of(graphs.matmul_bias_relu().schedule(), AVX512)
    assert [s.primitive for s in alone.steps] == ["cache_write"]
    assert fused.steps == ()  # D stores what C sums: no copy in between
    assert len(fused.plans) == 1


def test_operands_whose_rows_lie_apart_may_be_packed() -> None:
    (plan,) = plans_of(graphs.matmul(64, 64, 64))
    assert plan.packable == (1,)  # B, not A
    (plan,) = plans_of(graphs.matmul(64, 16, 64))
    assert plan.packable == ()  # a row of B is one line


def _serial(s: Schedule, stage: Stage) -> None:
    outer, _ = stage.split(stage.op.axis[0], factor=4)  # type: ignore[union-attr]  # a compute
    stage.parallel(outer)


def test_a_rule_of_a_user_is_asked_first() -> None:
    rule = SketchRule("by hand", lambda s, stage: stage.name == "C", _serial)
    graph = graphs.matmul(20, 16, 12)
    (sketch,) = sketches_of(graph.schedule(), AVX512, [rule])
    assert sketch.name == "by hand"
    assert [s.primitive for s in sketch.steps] == ["split", "parallel"]
    space = SketchSpace(graph.schedule(), AVX512, [rule])
    assert space.size == 1
    assert check_points(graph, space.start(), space) == 0


def test_a_rule_that_does_not_apply_changes_nothing() -> None:
    rule = SketchRule("never", lambda s, stage: False, _serial)
    graph = graphs.conv2d()
    plain, ruled = (sketches_of(graph.schedule(), AVX512, rules) for rules in ([], [rule]))
    assert [s.slots[0].values for s in plain] == [s.slots[0].values for s in ruled]


def test_a_rule_may_take_other_stages_along() -> None:
    def both(s: Schedule, stage: Stage) -> list[Stage]:
        made_by = s["C"]
        _serial(s, stage)
        made_by.compute_root()
        return [made_by]

    rule = SketchRule("both", lambda s, stage: stage.name == "D", both)
    (sketch,) = sketches_of(graphs.matmul_bias_relu().schedule(), AVX512, [rule])
    assert sketch.plans == ()


def test_an_error_in_a_rule_is_the_users() -> None:
    def wrong(s: Schedule, stage: Stage) -> None:
        stage.compute_inline()

    rule = SketchRule("wrong", lambda s, stage: stage.is_output, wrong)
    with pytest.raises(ScheduleError, match="an output cannot be inlined"):
        sketches_of(graphs.chain().schedule(), AVX512, [rule])


def test_other_targets_are_refused() -> None:
    with pytest.raises(ScheduleError, match="no sketches for targets of the family gpu"):
        SketchSpace(graphs.matmul().schedule(), replace(AVX512, family="gpu"))


def test_symbolic_sizes_are_refused() -> None:
    n = te.var("n")
    x = te.placeholder((n,), "float32", "X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    with pytest.raises(ScheduleError, match="a size that is not known"):
        SketchSpace(te.create_schedule([y.op]), AVX512)


def test_the_schedule_that_is_given_stays_as_it_is() -> None:
    s = graphs.conv2d().schedule()
    space = SketchSpace(s, AVX512)
    space.choice(space.sample(1, np.random.default_rng(0))[0])
    assert s.steps == []


def test_much_arithmetic_is_not_done_again_for_each_term() -> None:
    x, w = te.placeholder((16, 32), "float32", "X"), te.placeholder((32, 64), "float32", "W")

    def polynomial(degree: int) -> te.Tensor:
        def element(i: te.Expr, j: te.Expr) -> te.Expr:
            value = x[i, j]
            for k in range(degree):
                value = value * x[i, j] + float(k)
            return value

        return te.compute((16, 32), element, name="P")

    def found(degree: int) -> list[str]:
        p, r = polynomial(degree), te.reduce_axis((0, 32), "r")
        y = te.compute((16, 64), lambda i, j: te.sum(p[i, r] * w[r, j], r), name="Y")
        return [s.name for s in sketches_of(te.create_schedule([y.op]), AVX512)]

    assert found(1) == ["tile Y", "tile Y, inline P"]
    assert found(6) == ["tile Y"]


def test_a_transposition_is_not_only_done_at_each_read() -> None:
    x, w = te.placeholder((16, 32), "float32", "X"), te.placeholder((64, 32), "float32", "W")
    turned = te.compute((32, 64), lambda i, j: w[j, i], name="T")
    r = te.reduce_axis((0, 32), "r")
    y = te.compute((16, 64), lambda i, j: te.sum(x[i, r] * turned[r, j], r), name="Y")
    found = sketches_of(te.create_schedule([y.op]), AVX512)
    assert [s.name for s in found] == ["tile Y", "tile Y, inline T"]


def test_packed_weights_lie_along_the_results() -> None:
    x, w = te.placeholder((12, 32), "float32", "X"), te.placeholder((3, 32, 16), "float32", "W")
    r = te.reduce_axis((0, 32), "r")
    y = te.compute((12, 48), lambda i, j: te.sum(x[i, r] * w[j // 16, r, j % 16], r), name="Y")
    (sketch,) = sketches_of(te.create_schedule([y.op]), AVX512)
    assert sketch.name == "tile Y"  # no partial sums in lanes: vectors of W are results
    (plan,) = [p for p in sketch.plans if isinstance(p, Tiled)]
    (weights,) = [read for read in plan.nest.reads if len(read.shape) == 3]
    assert weights.step_in_memory(1) == 1
    one_vector = np.array([[1.0], [16.0], [32.0]])
    assert weights.elements(one_vector)[0] == 32 * 16
