# SPDX-License-Identifier: Apache-2.0
"""Division by sizes in loops of symbolic extent: what becomes of it, held by enumeration."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.evaluate import Generator, evaluate
from treadle.expr.bounds import Ranges, assume, interval
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Expr, ExprLike, Var, convert, maximum, minimum, truncmod
from treadle.expr.simplify import Simplifier, simplify

pytestmark = pytest.mark.tiny

N, M, B = Var("n"), Var("m"), Var("b")
I, J, K = Var("i"), Var("j"), Var("k")  # noqa: E741
SIZES = (N, M, B)
Loop = tuple[Var, ExprLike]

CASES: list[tuple[Sequence[Loop], Expr, str]] = [
    # One loop over a size.
    ([(I, N)], I % N, "i"),
    ([(I, N)], I // N, "0"),
    ([(I, N)], (I + N) % N, "i"),
    ([(I, N)], (I + N) // N, "1"),
    ([(I, N)], (N - 1 - I) % N, "((n - i) - 1)"),
    ([(I, N)], (N - 1) % N, "(n - 1)"),
    ([(I, N)], truncmod(I, N), "i"),
    ([(I, N + M)], I % (M + N), "i"),
    ([(I, N * 2)], I // N, "(i // n)"),
    ([(I, N * 2)], I // (N * 2), "0"),
    # What reshapes make: row and column of a flat index.
    ([(J, M), (I, N)], (J * N + I) // N, "j"),
    ([(J, M), (I, N)], (J * N + I) % N, "i"),
    ([(J, M), (I, N)], (J * N + I) // (N * M), "0"),
    ([(J, M), (I, N)], (J * N + I) % (M * N), "(i + (j * n))"),
    ([(I, N), (J, 4)], (I * 4 + J) // (N * 4), "0"),
    ([(K, B), (I, N), (J, 4)], (K * N * 4 + I * 4 + J) // (N * 4), "k"),
    ([(K, B), (I, N), (J, 4)], (K * N * 4 + I * 4 + J) // 4 % N, "i"),
    ([(K, B * 4), (I, N), (J, 8)], (K * N * 8 + I * 8 + J) // (N * 8) % 4, "(k % 4)"),
    ([(K, B), (J, M), (I, N)], ((K * M + J) * N + I) // (N * M), "k"),
    ([(K, B), (J, M), (I, N)], ((K * M + J) * N + I) // N % M, "j"),
    ([(K, 3), (I, N), (J, 4)], (K * N * 4 + I * 4 + J) // (N * 12), "0"),
    # A factor that divisor and dividend share goes.
    ([(I, B), (J, 4)], (I * 4 + J) // (N * 4), "(i // n)"),
    ([(I, B), (J, 4)], (I * 4 + J) % (N * 4), "(((i % n) * 4) + j)"),
    ([(I, B), (J, N)], (I * N + J) // (N * M), "(i // m)"),
    ([(I, B), (J, N)], (I * N + J) // (N * 4), "(i // 4)"),
    ([(I, B), (J, N)], (I * N + J) % (N * 4), "(j + ((i % 4) * n))"),
    # A sum of sizes.
    ([(J, B), (I, N + M)], (J * (N + M) + I) // (N + M), "j"),
    ([(J, B), (I, N + M)], (J * (N + M) + I) % (M + N), "i"),
    # Tiles, the last of them clamped.
    ([(J, (N + 3) // 4), (I, 4)], minimum(J * 4 + I, N - 1) % N, "min(((j * 4) + i), (n - 1))"),
    ([(J, (N + 3) // 4), (I, minimum(N - J * 4, 4))], (J * 4 + I) % N, "((j * 4) + i)"),
    ([(J, (N + 3) // 4)], (J * 4) % N, "(j * 4)"),
    ([(J, N // 4), (I, 4)], (J * 4 + I) // N, "0"),
    ([(J, (N + 3) // 4), (I, 4)], (J * 4 + I) % N, "(((j * 4) + i) % n)"),
    # Comparisons and extremes.
    ([(I, N)], I < N, "True"),
    ([(I, N), (J, I)], J < N, "True"),
    ([(J, M), (I, N)], J * N + I < N * M, "True"),
    ([(I, N)], minimum(I, N - 1), "i"),
    ([(I, N)], maximum(N - I, 1), "(n - i)"),
    ([(I, N)], N > 0, "True"),
    # Nothing is known.
    ([(I, M)], I % N, "(i % n)"),
    ([(I, N)], (I + 1) % N, "((i + 1) % n)"),
    ([(I, N)], (I - 1) // N, "((i - 1) // n)"),
    ([(I, N)], I < N - 1, "((i + 1) < n)"),
]


def _within(loops: Sequence[Loop]) -> Ranges:
    ranges: Ranges = {v: Interval(0, None) for v in SIZES}
    for var, extent in loops:
        ranges = Simplifier(ranges).in_loop(var, convert(extent)).ranges
    return ranges


def _turns(loops: Sequence[Loop], most: int = 5) -> Iterator[dict[Var, int]]:
    """Return the values of all variables in every turn of a nest, for all small sizes."""
    for sizes in itertools.product(range(most), range(most), range(3)):
        yield from _inner(loops, dict(zip(SIZES, sizes, strict=True)))


def _inner(loops: Sequence[Loop], values: dict[Var, int]) -> Iterator[dict[Var, int]]:
    if not loops:
        yield values
        return
    (var, extent), *rest = loops
    count = evaluate(convert(extent), values)
    assert isinstance(count, int)
    for k in range(count):
        yield from _inner(rest, {**values, var: k})


@pytest.mark.parametrize(("loops", "before", "after"), CASES, ids=[str(c[1]) for c in CASES])
def test_before_and_after(loops: Sequence[Loop], before: Expr, after: str) -> None:
    made = simplify(before, _within(loops))
    assert str(made) == after
    checked = 0
    for values in _turns(loops):
        expected = evaluate(before, values)
        if expected is not None:
            assert evaluate(made, values) == expected, values
            checked += 1
    assert checked


def test_a_condition_relates_its_sides() -> None:
    ranges = _within([(J, M), (I, 4)])
    inside = assume(ranges, J * 4 + I < N)
    assert str(simplify((J * 4 + I) % N, inside)) == "((j * 4) + i)"
    assert str(simplify((J * 4 + I) % N, assume(ranges, J * 4 + I < N, holds=False))) != "i"
    assert str(simplify((J * 4 + I) % N, ranges)) == "(((j * 4) + i) % n)"


def test_a_size_of_zero_leaves_no_turn() -> None:
    ranges = _within([(I, N)])
    assert interval(N, ranges) == Interval(0, None)  # of the atom alone
    assert simplify(N >= 1, ranges).__bool__() is True
    assert list(_turns([(I, N)], most=1)) == []


_EXTENTS: tuple[ExprLike, ...] = (
    N, M, 3, N * 2, M * N, N + M, (N + 3) // 4, N // 2, minimum(N, 3), maximum(M, 2),
)  # fmt: skip


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_values_in_random_nests(seed: int) -> None:
    chance = random.Random(seed)
    extents: list[ExprLike] = [chance.choice(_EXTENTS) for _ in range(2)]
    loops: list[Loop] = list(zip((I, J), extents, strict=True))
    inner = chance.choice((minimum(N - I * 4, 4), I, N - I, M))
    loops.append((K, maximum(inner, 0)))
    generator = Generator(chance, [I, J, K, N, M])
    depth = chance.randint(1, 3)
    e = generator.number(depth) if chance.random() < 0.7 else generator.condition(depth)
    if chance.random() < 0.6:
        flat = I * extents[1] + J
        d = chance.choice((N, M, N * 4, convert(extents[1]), N * M, N + M))
        top = chance.choice((flat, flat * 4 + K, e, I * 4 + K))
        e = top // d if chance.random() < 0.5 else top % d
    ranges = _within(loops)
    if chance.random() < 0.3:
        ranges = assume(ranges, I * 4 + K < N)
        loops_hold = I * 4 + K < N
    else:
        loops_hold = convert(0) < 1
    made = simplify(e, ranges)
    bounds = interval(e, ranges)
    for values in itertools.islice(_turns(loops, most=4), 400):
        expected = evaluate(e, values)
        if expected is None or not evaluate(loops_hold, values):
            continue
        assert evaluate(made, values) == expected, f"{e} -> {made} at {values} in {loops}"
        assert bounds.contains(Interval(int(expected), int(expected)))
    assert simplify(made, ranges) is made, f"{e} -> {made} is not final in {loops}"


Rule = Callable[[Var, Var, Var], Expr]


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda x, n, m: x // n * n + x % n, lambda x, n, m: x),
        (lambda x, n, m: x // n * n * 4 + x % n * 4 + 3, lambda x, n, m: x * 4 + 3),
        (lambda x, n, m: (x + m) // n * n + (x + m) % n - m, lambda x, n, m: x),
        (lambda x, n, m: x // (n * m) * n * m + x % (n * m), lambda x, n, m: x),
        (lambda x, n, m: x // (n + 2) * n + x // (n + 2) * 2 + x % (n + 2), lambda x, n, m: x),
        (lambda x, n, m: x // n * m + x % n, None),
        (lambda x, n, m: x // n * n * 2 + x % n, None),
    ],
)
def test_quotient_and_remainder_by_a_size_make_the_dividend(make: Rule, want: Rule | None) -> None:
    x, n, m = Var("x"), Var("n"), Var("m")
    ranges = {v: Interval(0, None) for v in (x, n, m)}
    e = make(x, n, m)
    found = Simplifier(ranges).run(e)
    if want is not None:
        assert found is Simplifier(ranges).run(want(x, n, m))
    for values in itertools.product(range(9), range(1, 5), range(4)):
        given = dict(zip((x, n, m), values, strict=True))
        if values[1] * values[2] or want is None or "m" not in str(e):
            assert evaluate(found, given) == evaluate(e, given)
