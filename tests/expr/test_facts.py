# SPDX-License-Identifier: Apache-2.0
"""What loops and conditions prove of symbolic tiles, and that nothing false is proved."""

from __future__ import annotations

import itertools
import random

import pytest

from treadle.expr.facts import Around, Facts, Holding, Iterating
from treadle.expr.nodes import Const, Expr, Var, binary, int_value, maximum, minimum
from treadle.expr.simplify import simplify
from treadle.expr.traversal import substitute

ZERO = Const.of(0)
I, J, N = Var("i"), Var("j"), Var("n")  # noqa: E741
loop = Iterating


def test_a_tile_of_a_symbolic_extent_is_not_empty() -> None:
    facts = Facts([N], (loop(I, (N + 15) // 16),))
    assert facts.are_ordered(I * 16 + 1, N)
    assert facts.are_ordered(ZERO, minimum(N - I * 16, Const.of(16)) // 4)
    assert not facts.are_ordered(I * 16 + 2, N)


def test_quotients_of_one_divisor() -> None:
    facts = Facts([N], ())
    assert facts.are_ordered(N // 7, (N + 6) // 7)
    assert facts.are_ordered((N + 6) // 7, N // 7 + 1)
    assert not facts.are_ordered((N + 7) // 7, N // 7)
    assert not facts.are_ordered((N + 6) // 7, N // 7)
    assert facts.are_ordered((N // 7) * 7, N)
    assert facts.are_ordered(N - 6, (N // 7) * 7)
    assert not facts.are_ordered(N - 5, (N // 7) * 7)


def test_conditions_and_their_contraries() -> None:
    fits = I * 8 + 8 <= N
    assert Facts([N], (Holding(fits),)).are_ordered(I * 8 + 7, N)
    assert Facts([N], (Holding(fits, holds=False),)).are_ordered(N, I * 8 + 7)
    assert not Facts([N], (Holding(fits, holds=False),)).are_ordered(I * 8, N)


def test_extents_of_parameters_are_not_negative() -> None:
    assert Facts([N, N - 8], ()).are_ordered(ZERO, (N - 8) // 16)
    assert not Facts([N], ()).are_ordered(ZERO, (N - 8) // 16)


def random_sum(chance: random.Random, atoms: list[Expr]) -> Expr:
    total: Expr = Const.of(chance.randint(-6, 6))
    for atom in chance.sample(atoms, 2):
        total = total + atom * chance.choice((-2, -1, 1, 1, 2))
    return total


def random_term(chance: random.Random, depth: int) -> Expr:
    if depth == 0:
        return random_sum(chance, [I, J, N])
    parts = [random_term(chance, depth - 1) for _ in range(2)]
    pick = chance.randrange(4)
    if pick < 2:
        quotient = parts[0] // chance.choice((2, 3))
        return quotient * chance.choice((1, -1, 2, 3, -3)) + parts[1] if pick else quotient
    return maximum(*parts) if pick == 2 else minimum(*parts)


@pytest.mark.parametrize("seed", range(150))
def test_nothing_false_is_proved(seed: int) -> None:
    chance = random.Random(seed)
    cond = binary(chance.choice(("lt", "le", "gt", "ge")), random_term(chance, 1), Const.of(3))
    extents = [random_term(chance, 1), (N + 2) // 3]
    given = Holding(cond, chance.random() < 0.5)
    around: Around = (loop(I, extents[1]), given, loop(J, extents[0]))
    facts = Facts([N], around)
    a, b = random_term(chance, 2), random_term(chance, chance.randint(1, 2))
    if not facts.are_ordered(a, b):
        return
    for n, i, j in itertools.product(range(9), range(4), range(6)):
        at: dict[Expr, Expr] = {N: Const.of(n), I: Const.of(i), J: Const.of(j)}

        def value(e: Expr, at: dict[Expr, Expr] = at) -> int:
            number = int_value(simplify(substitute(e, at)))
            assert number is not None
            return number

        inside = i < value(extents[1]) and j < value(extents[0])
        if inside and bool(value(cond)) == given.holds:
            assert value(a) <= value(b), f"{a} <= {b} at n={n}, i={i}, j={j}"
