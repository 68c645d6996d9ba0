# SPDX-License-Identifier: Apache-2.0
"""Affine forms, intervals and proofs: sound for every value, and sharp where it matters."""

from __future__ import annotations

import itertools

import pytest

from tests.expr.evaluate import integer
from treadle.expr.affine import Affine, decompose
from treadle.expr.bounds import Bounds, assume, interval, prove
from treadle.expr.conditions import all_of
from treadle.expr.intervals import FAR, Interval
from treadle.expr.nodes import (
    Const,
    Expr,
    Var,
    binary,
    broadcast,
    call,
    cast,
    load,
    maximum,
    minimum,
    ramp,
    select,
)
from treadle.loop.nodes import Buffer, shape_of

pytestmark = pytest.mark.tiny

I, J, N = Var("i"), Var("j"), Var("n")  # noqa: E741
RANGES = {I: Interval(0, 15), J: Interval(0, 3), N: Interval(1, None)}
OPS = (
    "add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "bitand",
    "bitor", "bitxor",
)  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_intervals_hold_every_result(op: str) -> None:
    ends = (-5, -2, -1, 0, 1, 3)
    spans = [(a, b) for a in ends for b in ends if a <= b]
    x, y = Var("x"), Var("y")
    e = binary(op, x, y)
    for (a, b), (c, d) in itertools.product(spans, repeat=2):
        found = interval(e, {x: Interval(a, b), y: Interval(c, d)})
        open_above = interval(e, {x: Interval(a, None), y: Interval(c, None)})
        open_below = interval(e, {x: Interval(None, b), y: Interval(None, d)})
        for p, q in itertools.product(range(a, b + 1), range(c, d + 1)):
            value = integer(op, p, q)
            if value is None:
                continue
            for bounds in (found, open_above, open_below):
                assert bounds.contains(Interval(value, value)), (op, p, q, bounds)


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (I * 8 + J, Interval(0, 123)),
        (I - I, Interval(0, 0)),
        ((I + 1) * 4 - I * 4, Interval(4, 4)),
        (N * 2 - 1, Interval(1, None)),
        (I // 4, Interval(0, 3)),
        (I % 4, Interval(0, 3)),
        (J % 8, Interval(0, 3)),
        ((I + 1) // N, Interval(0, 16)),
        (I % N, Interval(0, 15)),
        (minimum(N, 7), Interval(1, 7)),
        (maximum(I - 20, 0), Interval(0, 0)),
        (select(I < 20, J, N), Interval(0, 3)),
        (select(I < J, J, I), Interval(0, 15)),
        (I < 16, Interval(1, 1)),
        (I < J, Interval(0, 1)),
        (ramp(I, 2, 4), Interval(0, 21)),
        (broadcast(I, 4) * ramp(0, 1, 4), Interval(0, 45)),
        (cast(Var("b", "uint8"), "int64"), Interval(0, 255)),
        (Var("b", "int8") * 4, Interval(-128, 127)),
        (call("popcount", I), Interval(0, 64)),
        (I & 7, Interval(0, 7)),
    ],
    ids=str,
)
def test_intervals(e: Expr, expected: Interval) -> None:
    assert interval(e, RANGES) == expected


def test_a_load_has_the_bounds_of_its_type() -> None:
    data = Buffer("A", "int8", shape_of(4))
    assert interval(load(data, [I]), RANGES) == Interval(-128, 127)


@pytest.mark.parametrize(
    ("cond", "expected"),
    [
        (N + 1 > N, True),
        (N * 2 >= N * 2, True),
        (I < 16, True),
        (I >= 16, False),
        (I * 4 + J < 64, True),
        (I < N, None),
        (N > 0, True),
        ((I * 2).__eq__(Const.of(5)), False),
        ((I * 2).__ne__(Const.of(5)), True),
        (all_of([I < 16, N >= 1]), True),
        ((I < 0) | (J < 4), True),
        (call("not", I < 16), False),
        (Var("x", "float32") < 1.0, None),
        (Var("b", "uint8") + 1 > Var("b", "uint8"), None),
    ],
    ids=str,
)
def test_proofs(cond: Expr, expected: bool | None) -> None:
    assert prove(cond, RANGES) is expected


def test_decompose_is_exact() -> None:
    affine = decompose((I * 8 + J - 2) * 4 - (J - N) + 3)
    assert affine.terms == {I: 32, J: 3, N: 1}
    assert affine.const == -5
    assert str(affine.to_expr()) == "((((i * 32) + (j * 3)) + n) - 5)"


def test_equal_affine_values_print_the_same() -> None:
    one = Affine({I: 4, J: 4, N: -1}, 2)
    two = Affine({N: -1, J: 4, I: 4}, 2)
    assert one.to_expr() is two.to_expr()
    assert str(one.to_expr()) == "((((i * 4) + (j * 4)) - n) + 2)"


def test_vectors_decompose_into_lanes() -> None:
    affine = decompose(ramp(I * 4 + 1, 2, 8) + broadcast(N, 8))
    lane = ramp(0, 1, 8)
    assert affine.terms == {lane: 2, I: 4, N: 1}
    assert str(affine.to_expr()) == "ramp((((i * 4) + n) + 1), 2, 8)"


def test_conditions_narrow_ranges() -> None:
    def narrowed(cond: Expr, *, holds: bool = True) -> list[Interval]:
        bounds = Bounds(assume(RANGES, cond, holds=holds))
        return [bounds.of(v) for v in (I, J, N)]

    i, j, n = (RANGES[v] for v in (I, J, N))
    assert narrowed(I < 4) == [Interval(0, 3), j, n]
    assert narrowed(I < 4, holds=False) == [Interval(4, 15), j, n]
    assert narrowed(I * 2 + 1 <= 8) == [Interval(0, 3), j, n]
    assert narrowed(N <= I) == [Interval(1, 15), j, Interval(1, 15)]
    assert narrowed(all_of([I > 2, J.__eq__(Const.of(2))])) == [
        Interval(3, 15), Interval(2, 2), n
    ]  # fmt: skip
    assert narrowed((I < 2) | (J > 1), holds=False) == [Interval(2, 15), Interval(0, 1), n]
    assert narrowed(call("not", I < 2)) == [Interval(2, 15), j, n]
    assert assume(RANGES, I < 20) is RANGES
    assert assume(RANGES, Var("x", "float32") < 1.0) is RANGES
    assert [i, j, n] == narrowed(I < 2 * N)


def test_deep_sums_need_no_recursion() -> None:
    e: Expr = I
    for _ in range(20_000):
        e = e + 1
    assert interval(e, RANGES) == Interval(20_000, 20_015)


def test_relations_bound_what_intervals_do_not() -> None:
    """A tail of n - 16*o is at most 15 in the part where 16*(o + 1) exceeds n."""
    n, o = Var("n"), Var("o")
    ranges = assume({n: Interval(0, None), o: Interval(0, None)}, n < o * 16 + 16, holds=True)
    bounds = Bounds(ranges)
    tail = n - o * 16 + 1
    assert bounds.of(tail).hi is None
    assert bounds.reach(tail).hi == 16
    assert bounds.reach(maximum(tail, 0)) == Interval(0, 16)
    assert bounds.reach(minimum(tail, 9)).hi == 9


def test_relations_of_a_quotient_bound_what_is_divided() -> None:
    rows = (N + 1) // 2
    bounds = Bounds({N: Interval(1, None), I: Interval(0, None), rows - I * 32: Interval(None, 31)})
    assert bounds.reach(N - I * 64).hi == 62
    assert bounds.reach((N + 31) // 32 - I * 2).hi == 2


def test_tiles_of_blocks_are_counted_together() -> None:
    """Of 47 tiles of 14 rows in blocks of 6 the last has 11 rows: a loop goes over the blocks."""
    t = Var("t")
    loop = {t: Interval(0, 47)}
    tile, first = (t // 6) * 6 + t % 6, (t // 6) * 84 + (t % 6) * 14
    full = Bounds(assume(loop, tile < 46))
    assert full.prove(first + 14 <= 655) is True
    rest = Bounds(assume(assume(loop, tile < 46, holds=False), first < 655))
    assert rest.of_sum(decompose(655 - first)) == Interval(11, 11)
    assert Bounds(loop).prove(first + 14 <= 655) is None


def test_extremes_of_open_sizes_bound_sums_without_other_relations() -> None:
    """Rows of a border that begin after the last one: i + max(n, 1) is never below n."""
    bounds = Bounds({N: Interval(0, None), I: Interval(0, None)})
    assert bounds.prove(I + maximum(N, 1) < N) is False
    assert bounds.prove(minimum(N, I * 3) <= N) is True


@pytest.mark.parametrize("limit", [FAR, 1 << 60, (1 << 63) - 1])
def test_far_limits_bound_nothing(limit: int) -> None:
    size = {N: Interval(0, None)}
    assert interval(minimum(N, limit), size) == Interval(0, None)
    assert interval(maximum(N - 5, -limit), size) == Interval(-5, None)
    assert interval(maximum(Var("k"), -limit), {}) == Interval(None, None)
    # A sum of what has no bound is taken to be exact: its quotient is worked out.
    assert prove((minimum(N, limit) * 8 + 7) // 8 >= 0, size) is True
    assert interval(minimum(I, limit), RANGES) == Interval(0, 15)
    assert assume(size, limit >= N) == size


def test_near_limits_bound() -> None:
    assert interval(minimum(N, FAR - 1), {N: Interval(0, None)}) == Interval(0, FAR - 1)


def test_quotients_are_bounded_by_their_multiples() -> None:
    """Tiles of 8 of n // 2 columns: in the last one, t, there is at most one tile left."""
    n, t = Var("n"), Var("t")
    natural = {n: Interval(0, None), t: Interval(0, None)}
    whole = Bounds(assume(natural, n < t * 16 + 16, holds=True))
    assert whole.reach((n + 15) // 16 - t).hi == 1
    half = Bounds(assume(natural, n // 2 - t * 8 <= 7, holds=True))
    assert half.reach((n + 14) // 16 - t).hi == 1
    for a, b in itertools.product(range(80), range(6)):
        if a // 2 - b * 8 <= 7:
            assert (a + 14) // 16 - b <= 1
