# SPDX-License-Identifier: Apache-2.0
"""The simplifier: what it makes of expressions, and that their values stay what they were."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.evaluate import Generator, evaluate
from treadle.expr.bounds import interval
from treadle.expr.conditions import all_of
from treadle.expr.intervals import Interval
from treadle.expr.nodes import (
    Const,
    Expr,
    Ramp,
    Var,
    broadcast,
    call,
    cast,
    load,
    maximum,
    minimum,
    ramp,
    select,
    truncdiv,
    truncmod,
)
from treadle.expr.simplify import Simplifier, simplify
from treadle.expr.traversal import walk
from treadle.loop.nodes import Buffer, shape_of

pytestmark = pytest.mark.tiny

I, J, N, M = Var("i"), Var("j"), Var("n"), Var("m")  # noqa: E741
X, Y = Var("x", "float32"), Var("y", "float32")
B, C = Var("b", "int32"), Var("c", "uint8")
P, Q = Var("p", "bool"), Var("q", "bool")
RANGES = {I: Interval(0, 15), J: Interval(0, 3), N: Interval(1, None), M: Interval(0, None)}
DATA = Buffer("A", "float32", shape_of(64))

CASES: list[tuple[Expr, str]] = [
    # Sums.
    (I + 0, "i"),
    (I * 4 + J + 3 - I * 4 - 3, "j"),
    (J + I * 4, "((i * 4) + j)"),
    (I - J * 0 + I, "(i * 2)"),
    (3 - I, "(3 - i)"),
    ((I + 1) * N, "((i * n) + n)"),
    (N * I - I * N, "0"),
    # Division.
    ((I * 8 + J) // 8, "i"),
    ((I * 8 + J) % 8, "j"),
    ((N * 4 + I) // 4, "((i // 4) + n)"),
    ((I + 9) // 4, "(((i + 1) // 4) + 2)"),
    (I // 2 // 4, "(i // 8)"),
    ((I * 6) // 4, "((i * 3) // 2)"),
    ((I * 8 + J) // 16, "(i // 2)"),
    ((I * 8 + J) % 16, "(((i % 2) * 8) + j)"),
    (I % 8 % 4, "(i % 4)"),
    ((I % 8) // 4, "((i // 4) % 2)"),
    (I // 4 * 4 + I % 4, "i"),
    ((I // 4 % 2) * 4 + I % 4, "(i % 8)"),
    ((N % 14 * 4 + J) // 7 * 7 + (N * 4 + J) % 7, "(((n % 14) * 4) + j)"),  # 14 * 4 is 8 * 7
    (
        (N % 13 * 4 + J) // 7 * 7 + (N * 4 + J) % 7 - J,
        "(((((((n % 13) * 4) + j) // 7) * 7) + (((n * 4) + j) % 7)) - j)",
    ),
    (
        (N % 14 * 4 + J) // 7 * 7 + (N * 4 + J + 1) % 7,
        "((((((n % 14) * 4) + j) // 7) * 7) + ((((n * 4) + j) + 1) % 7))",
    ),
    (I // 16, "0"),
    (I % 16, "i"),
    ((I - 16) // 16, "-1"),
    ((N * I) // N, "i"),
    ((N * I) % N, "0"),
    (I // N, "(i // n)"),
    (truncdiv(I, 4), "(i // 4)"),
    (truncmod(I, 16), "i"),
    # Order.
    (minimum(I, 20), "i"),
    (maximum(I + 1, I), "(i + 1)"),
    (minimum(minimum(N, 9), 5), "min(n, 5)"),
    (minimum(maximum(N, M), M), "m"),
    (I < 16, "True"),
    (I + J < I, "False"),
    (I * 4 + J < N * 4, "(i < n)"),
    (I * 8 < 20, "(i < 3)"),
    (I >= 1, "(0 < i)"),
    ((I + 1).__eq__(N + 1), "(i == n)"),
    ((I * 2).__eq__(7), "False"),
    # Logic and choice.
    (all_of([I < 8, I < 10]), "(i < 8)"),
    ((I < 3) | (I >= 2), "True"),
    (P & P & Const.of(True, "bool"), "p"),
    (call("not", I < N), "(n <= i)"),
    (select(I < 16, X, Y), "x"),
    (select(P, X, X), "x"),
    (select(I < 4, I // 4, J, lazy=True), "if_then_else((i < 4), 0, j)"),
    (select(I >= N, minimum(N, 15), J, lazy=True), "if_then_else((n <= i), n, j)"),
    (select((I < 8) & (M < I), M // 8, J, lazy=True), "if_then_else(((i < 8) and (m < i)), 0, j)"),
    (select(I < 4, I // 4, J), "select((i < 4), (i // 4), j)"),
    # Floats: only what is exact for every value.
    (X * 1.0, "x"),
    (X + 0.0, "(x + float32(0.0))"),
    (X + -0.0, "x"),
    (X * 0.0, "(x * float32(0.0))"),
    (X / 4.0, "(x * float32(0.25))"),
    (X / 3.0, "(x / float32(3.0))"),
    (X + 1.0 + 2.0, "((x + float32(1.0)) + float32(2.0))"),
    (X - X, "(x - x)"),
    # Other integers keep their author's order and may wrap.
    (B + 1 + 2, "(b + int32(3))"),
    ((B * 4) // 4, "((b * int32(4)) // int32(4))"),
    (B * (B - 3), "(b * (b - int32(3)))"),
    (C < 256, "False"),  # the literal wraps to zero
    # Conversions.
    (cast(cast(C, "int32"), "int64"), "int64(c)"),
    (cast(cast(B, "int64"), "int8"), "int8(b)"),
    (cast(cast(B, "float32"), "int32"), "int32(float32(b))"),
    (cast(cast(X, "float64"), "float32"), "x"),
    (cast(Const.of(-7.9, "float32"), "int32"), "int32(-7)"),
    # Vectors.
    (ramp(I, 1, 4) + broadcast(J, 4), "ramp((i + j), 1, 4)"),
    (ramp(I, 2, 4) * broadcast(Const.of(3), 4), "ramp((i * 3), 6, 4)"),
    (ramp(I * 4, 1, 4) // broadcast(Const.of(4), 4), "broadcast(i, 4)"),
    (ramp(I * 8, 1, 4) % broadcast(Const.of(8), 4), "ramp(0, 1, 4)"),
    (ramp(I, N, 4) + ramp(0, 1, 4), "ramp(i, (n + 1), 4)"),
    (ramp(I, 0, 4), "broadcast(i, 4)"),
    (broadcast(X, 4) * broadcast(Y, 4), "broadcast((x * y), 4)"),
    (ramp(I * 4, 1, 4) < broadcast(Const.of(64), 4), "broadcast(True, 4)"),
    (call("sqrt", broadcast(X, 4)), "broadcast(sqrt(x), 4)"),
    (load(DATA, [ramp(I * 4, 1, 4) + broadcast(Const.of(0), 4)]), "A[ramp((i * 4), 1, 4)]"),
]


@pytest.mark.parametrize(("before", "after"), CASES, ids=[str(b) for b, _ in CASES])
def test_before_and_after(before: Expr, after: str) -> None:
    assert str(simplify(before, RANGES)) == after


def test_loaded_indices_may_wrap() -> None:
    data = Buffer("K", "int64", shape_of(4))
    index = load(data, [0])
    assert str(simplify((index * 4) // 4)) == "((K[0] * 4) // 4)"
    assert simplify(index + 1 - index) is Const.of(1)


def test_a_strict_select_does_not_move_a_load() -> None:
    guarded = load(DATA, [minimum(I, 3)])
    assert simplify(select(I < 4, guarded, 0.0), RANGES) is select(I < 4, guarded, 0.0)
    lazy = simplify(select(I < 4, guarded, 0.0, lazy=True), RANGES)
    assert str(lazy) == "if_then_else((i < 4), A[i], float32(0.0))"


def test_a_lazy_select_whose_condition_is_known_already() -> None:
    flag = Var("flag", "bool")
    value = maximum(load(DATA, [I]), 0.0)
    assert simplify(select(Const.of(True, "bool"), value, 1.0, lazy=True), RANGES) is value
    unknown = select(flag, value, 1.0, lazy=True)
    assert simplify(unknown, RANGES) is unknown


def test_equal_sums_are_one_node_whatever_the_order() -> None:
    parts = [I * 4, J, N * 16, I * J, (I + N) // 3, Const.of(5)]
    sums = set()
    for order in itertools.permutations(parts):
        total: Expr = Const.of(0)
        for part in order:
            total = total + part
        sums.add(simplify(total))
    assert len(sums) == 1


def test_a_zero_divisor_is_left_alone() -> None:
    for e in (I // 0, I % 0, truncdiv(I, 0), truncmod(Const.of(3), 0)):
        assert isinstance(simplify(e, RANGES), type(e))


def test_depth_is_no_limit() -> None:
    deep: Expr = I
    for k in range(20_000):
        deep = deep + J if k % 2 else minimum(deep, N)
    shallow = simplify(select(P, deep, deep))
    assert shallow.dtype == "int64"


def test_a_shared_doubling_chain_takes_linear_time() -> None:
    e: Expr = I
    for _ in range(60):
        e = e + e
    assert simplify(e) is I * Const.of(1 << 60)


def test_thousands_of_nodes_take_milliseconds() -> None:
    total: Expr = Const.of(0.0, "float32")
    for k in range(300):
        index = ((I * 8 + J) // 8 * N + (M * 4 + k % 4) // 4) * 16 + (I * 16 + k) % 16
        total = total + load(DATA, [index])
    count = len(walk(total))
    start = time.process_time()
    simplify(total, RANGES)
    assert count > 1500
    assert time.process_time() - start < 5  # measured: 0.05


def test_a_simplifier_remembers() -> None:
    simplifier = Simplifier(RANGES)
    first = simplifier.run((I * 8 + J) // 8)
    assert simplifier.run((I * 8 + J) // 8) is first
    assert simplifier.prove(I < 16) is True


def _check(e: Expr, domains: dict[Var, list[int]], ranges: dict[Var, Interval]) -> None:
    simple = simplify(e, ranges)
    bounds = interval(e, ranges)
    for values in itertools.islice(itertools.product(*domains.values()), 64):
        variables = dict(zip(domains, values, strict=True))
        expected = evaluate(e, variables)
        if expected is None:
            continue
        found = evaluate(simple, variables)
        assert found == expected, f"{e}  ->  {simple} at {variables} within {ranges}"
        for lane in expected if isinstance(expected, tuple) else (expected,):
            assert bounds.contains(Interval(int(lane), int(lane))), f"{e}: {lane} not in {bounds}"
    assert simplify(simple, ranges) is simple, f"{e}  ->  {simple} is not final"


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from(["int64", "int64", "int8", "uint8", "vector"]))
def test_values_and_bounds_of_random_expressions(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    dtype = "int64" if kind == "vector" else kind
    domains: dict[Var, list[int]] = {}
    ranges: dict[Var, Interval] = {}
    for name in "ijk":
        low = 0 if dtype == "uint8" else chance.choice((0, 0, 0, -5, 1))
        high = low + chance.choice((0, 1, 3, 7, 15))
        var = Var(name, dtype)
        domains[var] = [low, high, *(chance.randint(low, high) for _ in range(2))]
        if chance.random() < 0.8:
            ranges[var] = Interval(low, high)
        elif dtype == "int64":
            ranges[var] = Interval(low, None)
    generator = Generator(chance, list(domains), dtype, 4 if kind == "vector" else 1)
    depth = chance.randint(1, 4)
    e = generator.number(depth) if chance.random() < 0.7 else generator.condition(depth)
    _check(e, domains, ranges)


def test_ramps_stay_ramps() -> None:
    address = ramp(I * 16, 1, 8) + broadcast(N * 4 + 3, 8)
    assert isinstance(simplify(address), Ramp)


def test_a_lazy_select_of_a_constant_or_a_variable() -> None:
    a, b = Var("a", "float32"), Var("b", "float32")
    chosen = select(Const.of(True, "bool"), a * 1.0 + b, b, lazy=True)
    assert simplify(chosen) is simplify(a * 1.0 + b)
    flag = Var("flag", "bool")
    kept = select(flag, a + b, b * 1.0, lazy=True)
    assert simplify(kept) is select(flag, a + b, b, lazy=True)


@pytest.mark.parametrize("width", [3, 7, 9, 12, 49, 100])
@pytest.mark.parametrize("factor", [4, 16, 24])
def test_row_and_column_of_a_strip_join_again(width: int, factor: int) -> None:
    outer, lane = Var("outer"), Var("lane")
    ranges = {outer: Interval(0, 50), lane: Interval(0, factor - 1)}
    flat = outer * factor + lane
    assert simplify(flat // width * width + flat % width, ranges) is simplify(flat, ranges)
    remainder = simplify(flat % width, ranges)
    for o, i in itertools.product(range(51), range(factor)):
        assert evaluate(remainder, {outer: o, lane: i}) == (o * factor + i) % width
