# SPDX-License-Identifier: Apache-2.0
"""Keys to remember results under: equal where what decides is equal, and only there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from treadle.expr.bounds import Bounds
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Expr, Var
from treadle.expr.scope import Scope
from treadle.expr.simplify import Simplifier

pytestmark = pytest.mark.tiny

K, J, M, N = (Var(name) for name in "kjmn")
NATURAL = Interval(0, None)
BELOW = Interval(None, -1)
RANGES: dict[Expr, Interval] = dict.fromkeys((K, J, M, N), NATURAL)


def scope(facts: Mapping[Expr, Interval]) -> Scope:
    return Bounds(facts).scope  # type: ignore[arg-type]


def test_intervals_of_other_variables_decide_nothing() -> None:
    one, other = scope(RANGES), scope({**RANGES, J: Interval(0, 7)})
    assert one.of(frozenset([K, N])) == other.of(frozenset([K, N]))
    assert one.of(frozenset([K, J])) != other.of(frozenset([K, J]))


def test_intervals_are_told_apart_by_variable() -> None:
    small, large = Interval(0, 3), Interval(0, 9)
    one, other = scope({K: small, J: large}), scope({K: large, J: small})
    assert one.of(frozenset([K, J])) != other.of(frozenset([K, J]))
    assert one.of(frozenset([K, J])) == scope({J: large, K: small}).of(frozenset([J, K]))


def test_relations_decide_as_far_as_they_reach() -> None:
    """k < n reaches n, and what is known of n; j < m, of a loop next to it, does not."""
    below_n = {**RANGES, K - N: BELOW}
    assert scope(RANGES).of(frozenset([K])) != scope(below_n).of(frozenset([K]))
    beside = {**below_n, J - M: BELOW}
    assert scope(below_n).of(frozenset([K])) == scope(beside).of(frozenset([K]))
    assert scope(below_n).of(frozenset([K])) != scope({**below_n, N: Interval(4, 8)}).of(
        frozenset([K])
    )
    joined = {**below_n, J - M: BELOW, M - N: BELOW}
    assert scope(below_n).of(frozenset([K])) != scope(joined).of(frozenset([K]))


def test_results_under_one_relation_are_not_those_under_another() -> None:
    """The same nodes, simplified first where the relation holds and then where it does not."""
    quotient = (N + K) // N
    holding = Simplifier({**RANGES, N: Interval(1, None), K - N: BELOW})  # type: ignore[dict-item]
    free = Simplifier({**RANGES, N: Interval(1, None), J - N: BELOW})  # type: ignore[dict-item]
    for _ in range(2):
        assert str(holding.run(quotient)) == "1"
        assert str(free.run(quotient)) != "1"
        assert holding.prove(holding.run(K < N)) is True
        assert free.prove(free.run(K < N)) is None
