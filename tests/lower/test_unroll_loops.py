# SPDX-License-Identifier: Apache-2.0
"""Unrolled loops become copies of their body, which are simplified as if each had been alone."""

from __future__ import annotations

import pytest

from tests.conftest import Golden
from tests.lower.nests import CALLS, IN, OUT, I, J, K, N, copy, count, func, loop, same
from treadle.expr.nodes import Const, load, select
from treadle.limits import UNROLLED_STATEMENTS
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Store, shape_of, walk_stmts
from treadle.lower.unroll_loops import unroll_loops

LOCAL = Buffer("L", "float32", shape_of(4), "local")
ZERO = Const.of(0)


def unrolled(extent: object, *body: object) -> For:
    return loop(J, extent, *body, kind="unrolled")  # type: ignore[arg-type]


UNROLLED: dict[str, PrimFunc] = {
    "plain": func(unrolled(3, copy(J + 1))),
    "nested": func(unrolled(2, loop(K, 2, copy(J * 2 + K), kind="unrolled"))),
    "loop_inside": func(unrolled(2, loop(I, 5, copy(J * 5 + I)))),
    "buffer_inside": func(
        unrolled(
            2,
            Allocate(
                LOCAL,
                loop(I, 4, Store(LOCAL, (I,), load(IN, (J * 4 + I,))), kind="unrolled"),
            ),
        ),
    ),
    "symbolic": func(unrolled(N, copy(J)), sizes=(N,)),
    "condition_on_it": func(unrolled(4, If(J < 2, copy(J), count(J)))),
    "guarded": func(
        unrolled(3, Store(OUT, (J,), select(J > 0, load(IN, (J - 1,)), 0.0, lazy=True)))
    ),
    "around_a_tail": func(loop(I, 5, unrolled(4, If(I * 4 + J < 18, copy(I * 4 + J))))),
}


@pytest.mark.parametrize("name", UNROLLED)
def test_unroll(name: str, golden: Golden) -> None:
    before = UNROLLED[name]
    after = same(before, unroll_loops, **({"n": 3} if before.sizes else {}))
    golden.check(f"unroll_{name}.txt", f"{before}\n{after}")
    assert all(s.kind == "serial" for s in walk_stmts(after.body) if isinstance(s, For))


def test_copies_have_variables_and_buffers_of_their_own() -> None:
    after = unroll_loops(UNROLLED["loop_inside"])
    loops = [s.var for s in walk_stmts(after.body) if isinstance(s, For)]
    assert len(loops) == len({id(v) for v in loops}) == 2
    after = unroll_loops(UNROLLED["buffer_inside"])
    buffers = [s.buffer for s in walk_stmts(after.body) if isinstance(s, Allocate)]
    assert len(buffers) == len({id(b) for b in buffers}) == 2


def test_what_grows_too_large_stays_a_loop() -> None:
    small = unroll_loops(
        func(unrolled(UNROLLED_STATEMENTS, Store(CALLS, (ZERO,), load(IN, (ZERO,)))))
    )
    assert sum(isinstance(s, Store) for s in walk_stmts(small.body)) == UNROLLED_STATEMENTS
    large = unroll_loops(func(unrolled(UNROLLED_STATEMENTS + 1, count(ZERO))))
    assert sum(isinstance(s, Store) for s in walk_stmts(large.body)) == 1
