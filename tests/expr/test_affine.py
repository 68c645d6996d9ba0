# SPDX-License-Identifier: Apache-2.0
"""Sums of products of variables: equal sums become one node, and keep their value."""

from __future__ import annotations

import random

import pytest

from tests.expr.evaluate import evaluate
from treadle.expr.affine import decompose, divide_by, factors, product_of_sums
from treadle.expr.nodes import Const, Expr, Var

I, J, K = Var("i"), Var("j"), Var("k")  # noqa: E741
VARIABLES = (I, J, K)


def random_sum(draw: random.Random, depth: int) -> Expr:
    if depth == 0:
        return draw.choice((*VARIABLES, Const.of(draw.randint(-4, 4))))
    a, b = random_sum(draw, depth - 1), random_sum(draw, depth - 1)
    kind = draw.choice(("add", "sub", "mul", "scale", "divide"))
    if kind == "scale":
        return a * draw.randint(-5, 5)
    if kind == "divide":
        return a // draw.choice((2, 3, 8))
    return a + b if kind == "add" else a - b if kind == "sub" else a * b


@pytest.mark.parametrize("seed", range(40))
def test_the_normal_form_keeps_the_value(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        e = random_sum(draw, draw.randint(1, 4))
        made = decompose(e).to_expr()
        for _ in range(5):
            values = {v: draw.randint(-20, 20) for v in VARIABLES}
            assert evaluate(made, values) == evaluate(e, values), e
        assert decompose(made).to_expr() is made


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (I + J, J + I),
        ((I + 1) * 4 - 4, I * 4),
        ((I + J) * 4 + K, K + J * 4 + I * 4),
        (I - I, Const.of(0)),
        (I * 2 + J - (J - I), I * 3),
    ],
)
def test_equal_sums_become_one_node(left: Expr, right: Expr) -> None:
    assert decompose(left).to_expr() is decompose(right).to_expr()


def test_larger_coefficients_come_first_and_subtractions_last() -> None:
    assert str(decompose(J - I * 3 + K * 8 + 2).to_expr()) == "((((k * 8) + j) - (i * 3)) + 2)"


def test_parts_of_a_sum() -> None:
    total = decompose(I * 6 + J + 5)
    assert total.value is None
    assert decompose(I - I + 7).value == 7
    coefficient, rest = total.without(I)
    assert coefficient == 6
    assert rest.to_expr() is J + 5
    assert total.without(K) == (0, total)
    assert total.plus(total, -1).value == 0
    assert total.times(0).value == 0
    assert sorted(map(str, factors(I * J * K))) == ["i", "j", "k"]


@pytest.mark.parametrize("seed", range(20))
def test_a_quotient_and_its_rest_add_up(seed: int) -> None:
    draw = random.Random(seed)
    n = decompose(random_sum(draw, 3) * 4 + I * J * draw.randint(1, 8) + J * 4)
    d = decompose(draw.choice((J, J * 4, I * J, J * 2 + K)))
    quotient, rest = divide_by(n, d)
    whole = product_of_sums(quotient, d).plus(rest)
    assert whole.plus(n, -1).value == 0


def test_whole_multiples_are_in_the_quotient() -> None:
    quotient, rest = divide_by(decompose(I * K * 8 + J + K * 4), decompose(K * 4))
    assert quotient.to_expr() is I * 2 + 1
    assert rest.to_expr() is J
