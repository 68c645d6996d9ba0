# SPDX-License-Identifier: Apache-2.0
"""The text of expressions grows with their nodes, however much they share."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.expr.nodes import Const, Expr, Var, binary, ramp
from treadle.expr.operands import LONG
from treadle.expr.text import Parts
from treadle.expr.traversal import substitute, walk

X, Y = Var("x"), Var("y")


def _doubled(times: int) -> Expr:
    e: Expr = X + Y
    for k in range(times):
        e = binary("max", e - k, e * Y)
    return e


def _spelt_out(short: Expr, parts: Parts) -> Expr:
    for name, value in reversed(parts.values):
        short = substitute(short, {name: value})
    return short


def _words(exprs: Iterable[Expr]) -> int:
    return sum(str(e).count(" ") + 1 for e in exprs)


def test_short_parts_are_repeated() -> None:
    parts = Parts("%{}")
    e = (X + Y) * (X + Y)
    assert parts.shorten([e, X]) == [e, X]
    assert parts.values == []


def test_long_parts_that_are_shared_are_named_and_the_text_stays_linear() -> None:
    for times in (10, 100, 400):
        parts, root = Parts("%{}"), _doubled(times)
        (short,) = parts.shorten([root])
        assert _spelt_out(short, parts) is root
        assert _words([short, *(v for _, v in parts.values)]) < 3 * LONG * len(walk(root))
        assert [name.name for name, _ in parts.values[:2]] == ["%0", "%1"]


def test_a_long_part_in_two_roots_is_named_once() -> None:
    terms: Expr = X
    for k in range(LONG // 2):
        terms = binary("min", terms, Const.of(k))
    parts = Parts("%{}")
    assert [str(e) for e in parts.shorten([terms + 1, terms * Y])] == ["(%0 + 1)", "(%0 * y)"]
    assert parts.shorten([terms + 1]) == parts.shorten([terms + 1])
    alone = Parts("%{}")
    assert alone.shorten([terms + 1]) == [terms + 1]
    sizes = Parts("size[{}]")
    assert [str(e) for e in sizes.shorten([terms], repeated=True)] == ["size[0]"]


def test_parts_that_nest_too_deep_for_a_reader_are_named() -> None:
    deep: Expr = ramp(X, 1, 4)
    for _ in range(5000):
        deep = binary("max", deep, ramp(Y, 1, 4) - deep)
    parts = Parts("%{}", deep=10)
    (short,) = parts.shorten([deep])
    assert all(str(v).count("(") < 200 and v.lanes == 4 for _, v in parts.values)
    assert len(str(short)) < 2000


def test_the_text_of_one_expression_names_what_it_repeats() -> None:
    assert str((X + Y) * (X + Y)) == "((x + y) * (x + y))"
    terms: Expr = X
    for k in range(LONG // 2):
        terms = binary("min", terms, Const.of(k))
    text = str(terms * terms)
    assert text.startswith("(%0 * %0) where %0 = min(min(")
    assert text.count("min(") == LONG // 2
    for times in (10, 100, 2000):
        assert _words([_doubled(times)]) < 30 * LONG * times
