# SPDX-License-Identifier: Apache-2.0
"""Regions of index expressions cover what enumeration finds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.expr.evaluate import evaluate
from treadle import te
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, ExprLike, Var, binary, maximum, minimum, select
from treadle.expr.simplify import Simplifier
from treadle.loop.regions import Span, index_span, union
from treadle.te.operations import IterVar

OUTER = Var("o")
KNOWN = Simplifier({OUTER: Interval(0, 5)})
EXTENT = Const.of(1000)


def span(start: ExprLike, extent: int) -> Span:
    first = Const.of(start) if isinstance(start, int) else start
    assert isinstance(first, Expr)
    return Span(first, Const.of(extent))


def value(e: Expr, outer: int) -> int:
    found = evaluate(e, {OUTER: outer})
    assert isinstance(found, int)
    return found


def covered(found: Span, outer: int) -> range:
    start = value(found.start, outer)
    return range(start, start + value(found.extent, outer))


def touched(index: Expr, box: dict[IterVar, Span], outer: int) -> set[int]:
    points: list[dict[Var, int]] = [{OUTER: outer}]
    for axis, s in box.items():
        points = [{**p, axis: v} for p in points for v in covered(s, outer)[:: s.step]]
    return {int(evaluate(index, p)) for p in points}  # type: ignore[arg-type]


def axes() -> tuple[IterVar, IterVar]:
    return IterVar("i", extent=Const.of(9)), IterVar("j", extent=Const.of(5))


EXACT = {
    "constant": lambda i, j: Const.of(7) + i * 0,
    "axis": lambda i, j: i,
    "moved": lambda i, j: i + 3,
    "backwards": lambda i, j: 20 - i,
    "sum": lambda i, j: i + j,
    "difference": lambda i, j: i - j + 4,
    "outer": lambda i, j: OUTER * 9 + i,
    "quotient": lambda i, j: i // 4,
    "quotient of a clamped axis": lambda i, j: minimum(OUTER * 4 + i, 21) // 4,
    "remainder inside a row": lambda i, j: (j + 8) % 8,
    "minimum": lambda i, j: minimum(i, 4),
    "maximum": lambda i, j: maximum(i + j, OUTER),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str) -> None:
    i, j = axes()
    box = {i: span(0, 9), j: span(0, 5)}
    index = EXACT[name](i, j)
    found = index_span(index, box, EXTENT, KNOWN)
    for outer in range(6):
        points = touched(index, box, outer)
        assert covered(found, outer) == range(min(points), max(points) + 1)


@pytest.mark.parametrize("start", [OUTER % 2, OUTER * 8 + 3, Const.of(5)])
def test_a_stepped_axis_is_in_one_phase(start: Expr) -> None:
    i, j = axes()
    box = {i: Span(start, Const.of(9), 4), j: span(2, 1)}
    for index in (i % 2, (i + j) % 4, (i * 2 + 1) % 8, (i + 1) // 4):
        found = index_span(index, box, EXTENT, KNOWN)
        for outer in range(6):
            points = touched(index, box, outer)
            assert covered(found, outer) == range(min(points), max(points) + 1)


def random_index(chance: random.Random, leaves: list[Expr], depth: int) -> Expr:
    if depth == 0 or chance.random() < 0.15:
        return chance.choice(leaves)
    a = random_index(chance, leaves, depth - 1)
    kind = chance.randrange(7)
    if kind == 0:
        return a * chance.choice((1, 2, 3, -1, 8))
    if kind == 1:
        return binary(chance.choice(("floordiv", "floormod")), a, chance.choice((1, 2, 3, 5, 8)))
    b = random_index(chance, leaves, depth - 1)
    if kind == 2:
        return (minimum if chance.random() < 0.5 else maximum)(a, b)
    if kind == 3:
        return select(a < b, a, b + 1)
    if kind == 4:
        return a * b
    return a + b if kind == 5 else a - b


def test_random_indices_are_covered() -> None:
    chance = random.Random(1)
    unknown = 0
    for _ in range(1500):
        i, j = axes()
        box = {
            i: span(OUTER * 4 if chance.random() < 0.5 else chance.randint(0, 9), 4),
            j: span(chance.randint(0, 3), chance.randint(1, 5)),
        }
        if chance.random() < 0.3:
            box[i] = replace(box[i], step=chance.randint(2, 5))
        index = random_index(chance, [i, j, OUTER, Const.of(chance.randint(-3, 9))], 3)
        found = index_span(index, box, EXTENT, KNOWN)
        if found.extent is EXTENT:  # nothing can be said
            unknown += 1
            continue
        for outer in (0, 1, 5):
            points = touched(index, box, outer)
            assert points <= set(covered(found, outer)), f"{index} over {box}"
    assert unknown < 500


def test_random_unions_cover_both() -> None:
    chance = random.Random(2)
    starts: list[Expr] = [Const.of(0), Const.of(6), OUTER, OUTER * 3, 10 - OUTER, OUTER % 2]
    for _ in range(400):
        a = Span(chance.choice(starts), Const.of(chance.randint(1, 7)))
        b = Span(chance.choice(starts), Const.of(chance.randint(1, 7)))
        both = union(a, b, KNOWN)
        for outer in range(6):
            first, second = set(covered(a, outer)), set(covered(b, outer))
            assert first | second <= set(covered(both, outer))
            ends = sorted(first | second)
            assert covered(both, outer) == range(ends[0], ends[-1] + 1)


def test_an_index_read_from_memory_may_be_anything() -> None:
    i, j = axes()
    table = te.placeholder((9,), "int64", "T")
    found = index_span(table[i], {i: span(0, 9), j: span(0, 5)}, EXTENT, KNOWN)
    assert (str(found.start), found.extent) == ("0", EXTENT)
