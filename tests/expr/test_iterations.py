# SPDX-License-Identifier: Apache-2.0
"""Expressions at a number of a variable are what simplifying them there alone gives."""

from __future__ import annotations

from itertools import product

import pytest

from treadle.expr.intervals import Interval
from treadle.expr.iterations import Iterations
from treadle.expr.nodes import Const, Expr, Var, broadcast, load, maximum, ramp, select
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import substitute
from treadle.loop.nodes import Buffer, shape_of

I, J, K, M, N = Var("i"), Var("j"), Var("k"), Var("m"), Var("n")  # noqa: E741
A = Buffer("A", "float32", shape_of(4096))
RANGES = {I: Interval(0, 7), K: Interval(0, 15), M: Interval(0, None)}
TURNS = 6

CASES: dict[str, Expr] = {
    "without_it": I * 8 + 3,
    "itself": J,
    "a_term": I * 64 + J * 16 + K + 3,
    "alone": J * 16 - 32,
    "subtracted": 40 - J * 8 - I,
    "only_subtractions": Const.of(8) - I - J * 4,
    "it_cancels": (I + J) * 4 - J * 4,
    "inside_of_a_quotient": (I * 8 + J) // 4 * 4 + K,
    "quotient_and_remainder": (J * 3 + I) // 4 * 16 + (J * 3 + I) % 4,
    "a_product_of_variables": I * J + M * J,
    "an_extreme": maximum(I + J, 3),
    "a_load": load(A, (I * 64 + J * 8 + 1,)),
    "a_vector": load(A, (ramp(I * 64 + J * 16, 1, 16),)) + 1.0,
    "a_strided_vector": load(A, (ramp(I, J + 1, 4),)),
    "an_index_of_vectors": load(A, (broadcast(J * 16, 4) + ramp(I, 2, 4) // broadcast(2, 4),)),
    "a_gather": load(A, (load(A, (J * 2,)).astype("int64") + J,)),
    "equal_operands_at_one": select(J < 3, 1.0, 0.0) * load(A, (I + J,)) - load(A, (I + 4,)),
    "a_guard": select(J + I > 3, load(A, (I + J - 4,)), 0.0, lazy=True),
    "a_conversion": (J * 2 + 1).astype("float32") * 0.5,
}


@pytest.mark.parametrize("name", CASES)
def test_an_iteration_is_simplified_as_it_would_be_alone(name: str) -> None:
    outside = Simplifier(RANGES)
    body = outside.in_loop(J, Const.of(TURNS)).run(CASES[name])
    made = Iterations([J], outside)
    for turn in range(TURNS):
        made.at([turn])
        alone = Simplifier(RANGES).run(substitute(CASES[name], {J: Const.of(turn)}))
        assert str(made.run(body)) == str(alone)


def test_iterations_of_several_loops() -> None:
    outside = Simplifier(RANGES)
    inside = outside.in_loop(J, Const.of(TURNS)).in_loop(N, Const.of(2))
    for e in (J * 16 + I * 64 + N * 3 - 5, (J + N * 8) // 4 + load(A, (ramp(J - N, 1, 4),))):
        body, made = inside.run(e), Iterations([J, N], outside)
        for j, n in product(range(TURNS), range(2)):
            made.at([j, n])
            alone = Simplifier(RANGES).run(substitute(e, {J: Const.of(j), N: Const.of(n)}))
            assert str(made.run(body)) == str(alone)


def test_deep_expressions_need_no_recursion() -> None:
    e: Expr = load(A, (J,))
    for _ in range(3000):
        e = e + load(A, (J + 1,))
    outside = Simplifier(RANGES)
    made = Iterations([J], outside)
    made.at([2])
    same = made.run(e) is outside.run(substitute(e, {J: Const.of(2)}))
    assert same  # not the comparison itself, whose text would be deep
