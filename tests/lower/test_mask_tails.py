# SPDX-License-Identifier: Apache-2.0
"""Loops that do not fill a vector become vectors under a mask, and do what they did."""

from __future__ import annotations

from functools import partial

import pytest

from tests.lower.nests import CALLS, IN, OUT, I, J, K, N, copy, count, func, loop, same
from treadle.expr.nodes import Const, Expr, load, minimum
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, If, PrimFunc, Store, func_text
from treadle.lower.mask_tails import mask_tails

pytestmark = pytest.mark.tiny

SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 32, 61)
MASKED = partial(mask_tails, least_masked=4)
TILES = (N + 15) // 16
REST = minimum(N - I * 16, 16)
ROW = Buffer("s", "float32", (Const.of(2), Const.of(15)), "local")


def test_a_tail_is_a_vector_under_a_mask() -> None:
    before = func(loop(I, TILES, loop(J, REST, copy(I * 16 + J), kind="vectorized")), sizes=[N])
    for n in SIZES:
        text = func_text(same(before, MASKED, n=n))
    assert "for j in vectorized(16):" in text
    assert "if (j < min((n - (i * 16)), 16)):" in text


def test_lanes_under_a_condition() -> None:
    guarded = If(I * 16 + J < N, lp.seq(copy(I * 16 + J), count(I * 16 + J)))
    before = func(loop(I, TILES, loop(J, 16, guarded, kind="vectorized")), sizes=[N])
    for n in SIZES:
        text = func_text(same(before, MASKED, n=n))
    assert text.count("if (((i * 16) + j) < n):") == 2  # each store has its own


def test_a_local_row_grows_to_whole_vectors() -> None:
    """What is summed in rows of 15 is kept in vectors of 16, and what lies beyond is not read."""
    rest = minimum(N, 15)
    start = Store(ROW, (I, J), Const.of(0.0, "float32"))
    more = Store(ROW, (I, J), load(ROW, (I, J)) + load(IN, (K,)) * load(IN, (K * 15 + J,)))
    end = Store(OUT, (I * 15 + J,), load(ROW, (I, J)))
    body = lp.seq(
        loop(I, 2, loop(J, rest, start, kind="vectorized")),
        loop(K, 3, loop(I, 2, loop(J, rest, more, kind="vectorized"))),
        loop(I, 2, loop(J, rest, end, kind="vectorized")),
    )
    before = func(Allocate(ROW, body), sizes=[N])
    for n in (0, 1, 2, 14, 15):
        text = func_text(same(before, MASKED, n=n))
    assert "s: float32[2, 16] = alloc(local)" in text
    assert "if_then_else((j < min(n, 15)), A[((k * 15) + j)]" in text
    assert "A[k]" in text  # the same in all lanes: read once, without a mask


@pytest.mark.parametrize("kind", ["no masks", "known sizes", "small elements", "long", "load"])
def test_what_stays(kind: str) -> None:
    small = Buffer("D", "uint8", (Const.of(400),))
    body: lp.Stmt = copy(J)
    extent = minimum(N, 15)
    if kind == "small elements":
        body = Store(small, (J,), Const.of(1, "uint8"))
    elif kind == "long":
        extent = N
    elif kind == "load":
        body = If(load(CALLS, (J,)) < 1.0, body)
        extent = Const.of(15)
    sizes = [] if kind == "known sizes" else [N]
    if kind == "known sizes":
        extent, body = Const.of(15), If(J < 9, body)
    f = func(loop(J, extent, body, kind="vectorized"), sizes=sizes)
    after = mask_tails(f, least_masked=0 if kind == "no masks" else 4)
    assert func_text(after) == func_text(f)


def test_a_division_stands_under_the_mask() -> None:
    ints = Buffer("Q", "int32", (Const.of(15),), "local")
    data = Buffer("P", "int32", (Const.of(400),))
    divide = Store(ints, (J,), load(data, (J,)) // load(data, (J + 100,)))
    use = Store(OUT, (J,), load(ints, (J,)).astype("float32"))
    inner = [loop(J, minimum(N, 15), s, kind="vectorized") for s in (divide, use)]
    body = Allocate(ints, lp.seq(*inner))
    f = lp.PrimFunc("f", (data, OUT), (N,), body)
    text = func_text(MASKED(f))
    assert "Q[j] = if_then_else((j < min(n, 15)), (P[j] // P[(j + 100)]), Q[j])" in text


def _sums_of_rows(start: Expr, more: Expr, division: int) -> PrimFunc:
    """Return sums over k of A[k * 15 + j] in a local row, whose loops have the given extents."""
    row = Buffer("s", "float32", (Const.of(16),), "local")
    at = K * 15 + J // division
    return func(
        Allocate(
            row,
            lp.seq(
                loop(J, start, Store(row, (J,), Const.of(0.0, "float32")), kind="vectorized"),
                loop(
                    K,
                    3,
                    loop(
                        J,
                        more,
                        Store(row, (J,), load(row, (J,)) + load(IN, (at,))),
                        kind="vectorized",
                    ),
                ),
                loop(J, more, Store(OUT, (J,), load(row, (J,))), kind="vectorized"),
            ),
        ),
        sizes=[N],
    )


@pytest.mark.parametrize("division", [1, 2])
def test_lanes_that_nobody_reads_need_not_keep_what_they_had(division: int) -> None:
    rest = minimum(N, 15)
    before = _sums_of_rows(rest, rest, division)
    for n in (0, 1, 7, 15):
        text = func_text(same(before, MASKED, n=n))
    assert "s[j] = (s[j] + if_then_else(" in text


def test_lanes_of_a_row_that_others_write_keep_what_they_had() -> None:
    before = _sums_of_rows(Const.of(16), minimum(N, 15), 1)
    for n in (0, 1, 7, 15):
        text = func_text(same(before, MASKED, n=n))
    assert "s[j] = select(" in text
