# SPDX-License-Identifier: Apache-2.0
"""What a node knows of what is in it from its making on."""

from __future__ import annotations

import pytest

from treadle.expr.nodes import Const, Expr, Var, broadcast, call, load, ramp, select
from treadle.expr.traversal import loads, rewrite, walk
from treadle.expr.vocabulary import HAS_CALL, HAS_DIVISION, HAS_LAZY, HAS_LOAD, HAS_VECTOR
from treadle.loop.nodes import Buffer, shape_of

X, Y = Var("x"), Var("y")
A, B = Buffer("A", "float32", shape_of(64)), Buffer("B", "int64", shape_of(64))

CASES: list[tuple[Expr, set[object], int]] = [
    (X, {X}, 0),
    (Const.of(3), set(), 0),
    (X + Y * 2, {X, Y}, 0),
    (X // 4 + Y, {X, Y}, HAS_DIVISION),
    (load(A, (X,)), {X, A}, HAS_LOAD),
    (load(A, (load(B, (Y % 8,)),)), {Y, A, B}, HAS_LOAD | HAS_DIVISION),
    (call("sqrt", load(A, (X,))), {X, A}, HAS_LOAD | HAS_CALL),
    (select(X < 3, X, Y, lazy=True) + 1, {X, Y}, HAS_LAZY),
    (select(X < 3, X, Y), {X, Y}, 0),
    (ramp(X, 1, 8) + broadcast(Y, 8), {X, Y}, HAS_VECTOR),
]


@pytest.mark.parametrize(("e", "leaves", "traits"), CASES, ids=[str(c[0])[:40] for c in CASES])
def test_a_node_knows_what_is_in_it(e: Expr, leaves: set[object], traits: int) -> None:
    assert e.leaves == leaves
    assert e.traits == traits


def test_children_are_in_order_of_evaluation() -> None:
    assert (X - Y).children == (X, Y)
    assert select(X < 3, Y, X).children[1:] == (Y, X)


def test_loads_are_found_with_those_of_their_indices_first() -> None:
    inner = load(B, (Y,))
    outer = load(A, (inner + X * 2,))
    assert loads(outer * 2.0 + call("sqrt", outer)) == [inner, outer]


def test_what_lacks_the_traits_is_not_looked_at() -> None:
    e = (X + Y * 2) + X // 4
    seen: list[Expr] = []

    def look(n: Expr) -> None:
        seen.append(n)

    assert rewrite(e, look, traits=HAS_DIVISION) is e
    assert seen == [X // 4, e]
    assert walk(e, HAS_DIVISION) == seen
    assert rewrite(X + Y, lambda _: X, traits=HAS_DIVISION) is X + Y
