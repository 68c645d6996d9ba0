# SPDX-License-Identifier: Apache-2.0
"""Digits of axes follow from quotients, remainders and choices in what a stage computes."""

from __future__ import annotations

from collections.abc import Callable

from tests.targets import AVX512
from tests.tune import sketch_graphs as graphs
from treadle import te
from treadle.expr.nodes import Expr, select
from treadle.loop.bodies import inline_bodies
from treadle.ops.schedules.stages import compute_of
from treadle.tune.sketch_digits import Digits, digits_of
from treadle.tune.sketch_plans import Blocks
from treadle.tune.sketch_rules import sketches_of

X = te.placeholder((6, 40, 32), "float32", "X")


def found(shape: tuple[int, ...], element: Callable[..., Expr]) -> Digits | None:
    y = te.compute(shape, element, name="Y")
    assert isinstance(y, te.Tensor)
    s = te.create_schedule([y.op])
    stage = s.stages[-1]
    return digits_of(stage, compute_of(stage), inline_bodies(s)[id(stage)], 16)


def roles(digits: Digits | None) -> list[tuple[int, int, int, str]]:
    assert digits is not None
    return [(d.axis, d.unit, d.extent, d.role) for d in digits.digits]


def test_a_stage_that_reads_at_its_axes_has_none() -> None:
    assert found((6, 40, 32), lambda i, j, k: X[i, j, k] + 1.0) is None
    assert found((5, 40, 32), lambda i, j, k: X[i + 1, j, k] * 2.0) is None


def test_quotients_and_remainders_are_loops() -> None:
    made = found((240, 32), lambda i, j: X[i % 6, i // 6, j])
    assert roles(made) == [
        (0, 6, 40, "tile"), (0, 1, 6, "inner"), (1, 16, 2, "tile"), (1, 1, 16, "lanes"),
    ]  # fmt: skip
    assert made is not None
    (read,) = made.nest.reads
    assert read.steps == ((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 16, 1))


def test_what_formulas_depend_on_is_written_out() -> None:
    made = found(
        (12, 32), lambda i, j: select(i % 3 == 0, X[0, i // 3, j], X[1, i // 3, j] * X[2, 0, j])
    )
    assert roles(made)[:2] == [(0, 3, 4, "tile"), (0, 1, 3, "chosen")]
    assert made is not None
    assert made.operations == 2 / 3  # one product in two of three formulas
    assert made.loads == 5 / 3


def test_a_long_axis_that_formulas_depend_on_is_a_loop() -> None:
    assert found((40, 32), lambda i, j: select(i == 3, X[0, i, j], X[1, i, j])) is None


def test_a_mask_that_is_computed_is_no_choice_of_formulas() -> None:
    assert found((6, 40), lambda i, j: select(X[i, j, 0] > 0.0, X[i, j, 1], 0.0)) is None


def test_remainders_that_do_not_divide_are_no_digits() -> None:
    made = found((240, 32), lambda i, j: X[i % 6, i % 40, j])
    assert roles(made)[:2] == [(0, 6, 40, "tile"), (0, 1, 6, "inner")]


def test_rests_of_axes_make_the_code_longer() -> None:
    even = found((12, 32), lambda i, j: X[i % 3, i // 3, j])
    uneven = found((14, 32), lambda i, j: X[i % 3, i // 3, j])
    assert even is not None
    assert uneven is not None
    assert (even.copies, uneven.copies) == (1, 2)


def test_a_transform_is_computed_by_formulas() -> None:
    (kept,) = sketches_of(graphs.winograd().schedule(), AVX512)
    result, _, transform = kept.plans
    assert isinstance(result, Blocks)
    assert isinstance(transform, Blocks)
    assert [d.role for d in transform.digits] == ["chosen", "tile", "lanes"]
    assert transform.parts.loads == 2.0
    assert transform.parts.operations == 1.0  # without writing out: all four, and the choices
