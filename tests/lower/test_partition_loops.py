# SPDX-License-Identifier: Apache-2.0
"""Loops are cut where conditions change, and nothing else changes."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.conftest import Golden
from tests.lower.nests import I, J, K, N, copy, count, func, has_if, loop, same
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, binary, minimum
from treadle.expr.vocabulary import BinaryOp
from treadle.loop.nodes import If, PrimFunc, func_text
from treadle.lower.partition_loops import partition_loops, threshold, thresholds

OPS = ("lt", "le", "gt", "ge")


@pytest.mark.parametrize("op", OPS)
def test_threshold_by_enumeration(op: str) -> None:
    for factor, const, limit in itertools.product(
        (-3, -2, -1, 1, 2, 5), range(-4, 5), range(-6, 7)
    ):
        cond = binary(op, I * factor + const, Const.of(limit))  # type: ignore[arg-type]
        truth = [holds(op, i * factor + const, limit) for i in range(-20, 21)]
        changes = [i for i in range(-19, 21) if truth[i + 20] != truth[i + 19]]
        assert changes == [threshold(cond, I)]


def holds(op: str, a: int, b: int) -> bool:
    return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op]


@pytest.mark.parametrize("op", OPS)
def test_thresholds_with_inner_variables_by_enumeration(op: str) -> None:
    inner = {J: Interval(0, 4), K: Interval(0, 2)}
    for f, g, h, limit in itertools.product((-7, -1, 1, 2, 8), (-1, 1, 3), (0, -2, 5), (-9, 0, 13)):
        cond = binary(op, I * f + J * g + K * h, Const.of(limit))  # type: ignore[arg-type]
        states = []
        for i in range(-60, 61):
            truths = {holds(op, i * f + j * g + k * h, limit) for j in range(5) for k in range(3)}
            states.append(len(truths) > 1 or truths.pop() + 10)
        changes = [i - 60 for i in range(1, 121) if states[i] != states[i - 1]]
        assert changes == thresholds(cond, I, inner)


def test_conditions_that_have_no_threshold() -> None:
    assert threshold(binary("eq", I, Const.of(3)), I) is None
    assert threshold(I + J < 3, I) is None
    assert threshold(J < 3, I) is None
    assert threshold((I < 3) & (J < 3), I) is None
    assert thresholds(I * J < 3, I, {J: Interval(0, 3)}) == []
    assert thresholds(I + J < 3, I, {J: Interval(0, None)}) == []


def uneven() -> PrimFunc:
    body = If(I * 4 + 4 <= 30, loop(J, 4, copy(I * 4 + J)), loop(J, 2, copy(I * 4 + J)))
    return func(loop(I, 8, body))


def guarded() -> PrimFunc:
    body = loop(J, 16, If(I * 16 + J < 130, count(I * 16 + J)), kind="vectorized")
    return func(loop(I, 9, body))


def guarded_twice() -> PrimFunc:
    test = If((I * 8 + J < 60) & (J + K < 9), count(I * 8 + J + K))
    return func(loop(I, 8, loop(J, 8, loop(K, 3, test))))


def from_both_sides() -> PrimFunc:
    return func(loop(I, 20, If((I >= 3) & (I < 17), copy(I), count(I))))


def symbolic() -> PrimFunc:
    full, rest = loop(J, 16, copy(I * 16 + J)), loop(J, N - I * 16, copy(I * 16 + J))
    whole = (N + 15) // 16
    return func(loop(I, whole, If(I * 16 + 16 <= N, full, rest)), sizes=(N,))


def parallel() -> PrimFunc:
    return func(loop(I, 8, If(I < 3, copy(I), count(I)), kind="parallel"))


def many_conditions() -> PrimFunc:
    return func(loop(I, 50, *(If(I - k < 0, count(I)) for k in range(5, 40, 5))))


NESTS = {
    "uneven": uneven, "guarded": guarded, "guarded_twice": guarded_twice,
    "from_both_sides": from_both_sides, "symbolic": symbolic, "parallel": parallel,
    "many_conditions": many_conditions,
}  # fmt: skip
KEPT = {"parallel", "many_conditions"}
"""A parallel loop is not torn in two; too many parts are not made."""


@pytest.mark.parametrize("name", NESTS)
def test_nest(name: str, golden: Golden) -> None:
    before = NESTS[name]()
    after = same(before, partition_loops, **({"n": 70} if before.sizes else {}))
    golden.check(f"partition_{name}.txt", f"{before}\n{after}")
    assert has_if(after.body) == (name in KEPT)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 32, 40])
def test_symbolic_sizes(n: int) -> None:
    same(symbolic(), partition_loops, n=n)


def part_of_a_split() -> PrimFunc:
    """A loop that is the inner part of a symbolic split: pairs of a row, in chunks of any size."""
    full, rest = loop(K, 2, count((J + I * 3) * 2 + K)), count((J + I * 3) * 2)
    chunk = minimum((N + 1) // 2 - I * 3, Const.of(3))
    pairs = loop(J, chunk, If((J + I * 3) * 2 + 2 <= N, full, rest))
    return func(loop(I, ((N + 1) // 2 + 2) // 3 + 1, pairs), sizes=(N,))


@pytest.mark.parametrize("n", range(15))
def test_a_loop_that_ends_before_the_last_full_tile(n: int) -> None:
    after = same(part_of_a_split(), partition_loops, n=n)
    assert not has_if(after.body)


def test_random_nests() -> None:
    chance = random.Random(0)

    def condition() -> Expr:
        terms = [v * chance.choice((0, 1, 2, -1, 8)) for v in (I, J, K)]
        left = terms[0] + terms[1] + terms[2]
        made = binary(chance.choice(OPS), left, Const.of(chance.randint(-5, 60)))  # type: ignore[arg-type]
        if chance.random() < 0.3:
            other = binary(chance.choice(OPS), J + K, Const.of(chance.randint(0, 12)))  # type: ignore[arg-type]
            made = binary(chance.choice(("and", "or")), made, other)  # type: ignore[arg-type]
        return made

    for _ in range(150):
        at = I * 40 + J * 5 + K
        kinds = [chance.choice(("serial", "unrolled", "vectorized", "parallel")) for _ in range(3)]
        body = If(condition(), count(at), copy(at) if chance.random() < 0.5 else None)
        nest = loop(K, chance.randint(1, 5), body, kind=kinds[0])  # type: ignore[arg-type]
        nest = loop(J, chance.randint(1, 8), nest, kind=kinds[1])  # type: ignore[arg-type]
        same(func(loop(I, chance.randint(1, 9), nest, kind=kinds[2])), partition_loops)  # type: ignore[arg-type]


@pytest.mark.parametrize("comparison", ["lt", "le"])
def test_vectors_of_a_symbolic_row_are_full_but_for_the_last(comparison: BinaryOp) -> None:
    inside = If(binary(comparison, I * 16 + J, N), count(I * 16 + J))
    turns = (N + 15 + (comparison == "le")) // 16
    before = func(loop(I, turns, loop(J, 16, inside, kind="vectorized")), sizes=[N])
    for n in (0, 1, 15, 16, 17, 47, 48):
        text = func_text(same(before, partition_loops, n=n))
    full, rest = text.split("for i in ")[1:]
    assert "if" not in full
    assert "if" in rest
