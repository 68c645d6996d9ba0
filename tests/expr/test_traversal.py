# SPDX-License-Identifier: Apache-2.0
"""Walks visit operands first and each node once; rewriting keeps what no rule touches."""

from __future__ import annotations

import random

import pytest

from tests.expr.evaluate import evaluate
from treadle.expr.nodes import Const, Expr, Var, binary, call, select
from treadle.expr.traversal import (
    free_vars,
    has_call,
    has_lazy_select,
    reads_memory,
    rewrite,
    substitute,
    uses,
    walk,
)
from treadle.te.tensor import placeholder

X, Y, Z = Var("x"), Var("y"), Var("z")


def test_a_walk_visits_operands_before_users_and_shared_nodes_once() -> None:
    shared = X + Y
    root = shared * shared + select(X < Y, shared, Z)
    order = walk(root)
    assert order[-1] is root
    assert len(order) == len({id(n) for n in order})
    place = {id(n): k for k, n in enumerate(order)}
    assert all(place[id(c)] < place[id(n)] for n in order for c in n.children)
    assert free_vars(root) == [X, Y, Z]


def test_leaves_are_variables_and_sources() -> None:
    source = placeholder((4, 4), name="a")
    root = source[X, Y + 1] * Const.of(2.0, "float32")
    assert root.leaves == {X, Y, source}
    assert uses(root, source)
    assert not uses(root, Z)
    assert reads_memory(root)
    assert not reads_memory(X + Y)


def test_lazy_selects_are_found_below() -> None:
    lazy = select(X < 3, X, Y, lazy=True)
    assert has_lazy_select(lazy + 1)
    assert not has_lazy_select(select(X < 3, X, Y) + 1)
    assert not has_lazy_select(X + 1)


def test_rules_see_rewritten_operands_and_none_keeps_a_node() -> None:
    seen: list[str] = []

    def rule(e: Expr) -> Expr | None:
        seen.append(str(e))
        return Y if e is X else None

    assert rewrite((X + 1) * 2, rule) is (Y + 1) * 2
    assert "((y + 1) * 2)" in seen  # not the old operand
    assert rewrite(Z * 2, lambda e: None) is Z * 2


@pytest.mark.parametrize("seed", range(20))
def test_substitution_is_evaluation_at_other_values(seed: int) -> None:
    draw = random.Random(seed)
    parts: list[Expr] = [X, Y, Z, Const.of(3), Const.of(-2)]
    for _ in range(30):
        op = draw.choice(("add", "sub", "mul", "min", "max"))
        parts.append(binary(op, draw.choice(parts[-6:]), draw.choice(parts)))
    root = parts[-1]
    changed = substitute(root, {X: Y + 1, Y: Const.of(5)})
    values = {Y: draw.randint(-9, 9), Z: draw.randint(-9, 9)}
    # At once: the y in what x becomes is not replaced.
    expected = evaluate(root, {X: values[Y] + 1, Y: 5, Z: values[Z]})
    assert evaluate(changed, values) == expected


def test_nodes_other_than_variables_are_replaced_too() -> None:
    root = call("exp", (X + Y).astype("float32")) * 2.0
    made = substitute(root, {X + Y: Z})
    assert made is call("exp", Z.astype("float32")) * 2.0


def test_depth_is_no_limit() -> None:
    root: Expr = X
    for k in range(20_000):
        root = root + (k % 7)
    assert len(walk(root)) > 20_000
    assert uses(root, X)
    deep = substitute(root, {X: Y})
    assert free_vars(deep) == [Y]


def test_calls_are_noted_on_every_node() -> None:
    x = Var("x", "float32")
    plain, called = x * 2.0 + 1.0, call("exp", x) * 2.0
    assert not has_call(plain)
    assert has_call(called)
    assert has_call(plain + called)
