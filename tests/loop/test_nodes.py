# SPDX-License-Identifier: Apache-2.0
"""Loop nests: their text, what is rebuilt, and what `verify` refuses."""

from __future__ import annotations

import pytest

from treadle.errors import InternalError
from treadle.expr.nodes import Const, Var, convert, load
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, Prefetch, PrimFunc, Store, shape_of

I, J, N = Var("i"), Var("j"), Var("n")  # noqa: E741
A = Buffer("A", "float32", (N, Const.of(8)))
B = Buffer("B", "float32", (N, Const.of(8)))
L = Buffer("L", "float32", shape_of(8), "local")
ONE = Const.of(1.0, "float32")
COPY = Store(B, (I, J), load(A, (I, J)))


def func(body: lp.Stmt) -> PrimFunc:
    return PrimFunc("f", (A, B), (N,), body)


def loop(var: Var, extent: object, body: lp.Stmt, kind: lp.ForKind = "serial") -> For:
    return For(var, convert(extent), kind, body)  # type: ignore[arg-type]


def test_text_of_every_statement() -> None:
    inner = lp.seq(
        For(J, Const.of(8), "vectorized", Store(L, (J,), load(A, (I, J))), "", (("note", 3),)),
        loop(J, 8, If(J < 4, Store(B, (I, J), load(L, (J,))), Store(B, (I, J), ONE)), "unrolled"),
    )
    body = lp.seq(
        loop(I, N, Allocate(L, inner), "parallel"),
        For(I, Const.of(2), "thread", If(I < N, Store(B, (I, Const.of(0)), ONE)), "threadIdx.x"),
        For(I, N, "serial", lp.seq()),
        loop(I, N, Prefetch(A, (I + 3, Const.of(0)))),
        Prefetch(A, (I, Const.of(4)), level=2),
    )
    assert str(func(body)) == (
        "def f(A: float32[n, 8], B: float32[n, 8], n: int64):\n"
        "    for i in parallel(n):\n"
        "        L: float32[8] = alloc(local)\n"
        "        # pragma note = 3\n"
        "        for j in vectorized(8):\n"
        "            L[j] = A[i, j]\n"
        "        for j in unrolled(8):\n"
        "            if (j < 4):\n"
        "                B[i, j] = L[j]\n"
        "            else:\n"
        "                B[i, j] = float32(1.0)\n"
        '    for i in thread(2, "threadIdx.x"):\n'
        "        if (i < n):\n"
        "            B[i, 0] = float32(1.0)\n"
        "    for i in range(n):\n"
        "        pass\n"
        "    for i in range(n):\n"
        "        prefetch(A[(i + 3), 0])\n"
        "    prefetch(A[i, 4], level=2)\n"
    )


def test_seq_is_flat() -> None:
    assert lp.seq(COPY) is COPY
    flat = lp.seq(lp.seq(COPY, COPY), lp.seq(), COPY)
    assert isinstance(flat, lp.Seq)
    assert len(flat.stmts) == 3
    assert lp.is_empty(lp.seq(lp.seq()))
    assert not lp.is_empty(COPY)


def test_map_drops_what_is_empty() -> None:
    nest = lp.seq(loop(I, N, loop(J, 8, COPY)), If(N < 4, COPY, COPY))
    assert lp.stmt_text(lp.map_stmt(nest)) == lp.stmt_text(nest)
    gone = lp.map_stmt(nest, None, lambda s: lp.seq() if isinstance(s, Store) else None)
    assert lp.stmt_text(gone) == "if (n < 4):\n    pass"
    moved = lp.substitute(COPY, {I: I + 1})
    assert lp.stmt_text(moved) == "B[(i + 1), j] = A[(i + 1), j]"
    assert [type(s).__name__ for s in lp.walk_stmts(nest)] == [
        "Seq", "For", "For", "Store", "If", "Store", "Store",
    ]  # fmt: skip


MALFORMED = {
    "variable i is used outside the loop that defines it": COPY,
    "variable i is bound twice, one inside of the other": loop(I, N, loop(I, N, loop(J, 8, COPY))),
    "buffer L is written where it does not exist": loop(J, 8, Store(L, (J,), ONE)),
    "buffer L is read where it does not exist": lp.seq(
        Allocate(L, loop(J, 8, Store(L, (J,), ONE))),
        loop(J, 8, Store(B, (J, J), load(L, (J,)))),
    ),
    "B is written with 1 indices": loop(I, N, Store(B, (I,), ONE)),
    "buffer L is prefetched where it does not exist": loop(I, N, Prefetch(L, (I,))),
    "A is prefetched with 1 indices": loop(I, N, Prefetch(A, (I,))),
    "a int64 value is stored in B: float32[n, 8]": loop(I, N, Store(B, (I, Const.of(0)), I)),
}


@pytest.mark.parametrize("problem", MALFORMED)
def test_verify_refuses(problem: str) -> None:
    with pytest.raises(InternalError) as caught:
        lp.verify(func(MALFORMED[problem]))
    assert str(caught.value) == f"{problem}\n  at    kernel f"


def test_verify_accepts_a_variable_used_by_two_loops_in_turn() -> None:
    nest = loop(J, 8, COPY)
    lp.verify(func(lp.seq(loop(I, N, nest), loop(I, N, nest))))


def test_text_repeats_no_long_part() -> None:
    extent, value = N, load(A, (I, J))
    for k in range(60):
        extent = extent - lp.ex.binary("max", extent - k, convert(0))
        value = value * value + value
    wide = Buffer("W", "float32", (extent,), "local")
    body = Allocate(wide, loop(I, N, loop(J, 8, If(extent > I, Store(B, (I, J), value)))))
    text = str(PrimFunc("f", (A, B, Buffer("C", "float32", (extent,))), (N,), body))
    assert len(text) < 40_000
    names = [line.split(" := ")[0].strip() for line in text.splitlines() if " := " in line]
    assert {"%size0", "%0"} <= set(names)
    assert "%" in text.splitlines()[-1]
