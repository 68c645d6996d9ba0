# SPDX-License-Identifier: Apache-2.0
"""Dead code goes, single turns are run, conditions narrow what is known."""

from __future__ import annotations

import pytest

from tests.conftest import Golden
from tests.lower.nests import I, J, N, copy, count, func, loop, same
from treadle.expr.nodes import Const, maximum
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, seq, shape_of
from treadle.lower.simplify_loops import simplify_loops

LOCAL = Buffer("L", "float32", shape_of(4), "local")

NESTS: dict[str, PrimFunc] = {
    "single_turn": func(loop(I, 1, copy(I + 3))),
    "no_turn": func(loop(I, 0, copy(I)), count(Const.of(1))),
    "negative": func(loop(I, Const.of(3) - 5, copy(I))),
    "always": func(loop(I, 8, If(I < 8, copy(I), count(I)))),
    "never": func(loop(I, 8, If(I >= 8, copy(I), count(I)))),
    "never_without_else": func(loop(I, 8, If(I > 9, copy(I)))),
    "inside_a_branch": func(
        loop(I, 8, If(I < 4, If(I < 6, copy(maximum(I, 0))), If(I < 3, count(I), copy(I))))
    ),
    "quotient_in_a_branch": func(
        loop(I, 40, If(I // 7 < 5, If(I < 35, copy(I), count(I)), If(I < 35, count(I), copy(I))))
    ),
    "both": func(loop(I, 8, loop(J, 4, If((I < 6) & (J < 4), copy(I * 4 + J))))),
    "unused_buffer": func(Allocate(LOCAL, loop(I, 0, copy(I))), count(Const.of(2))),
    "empty_branches": func(loop(I, 8, If(I < 4, loop(J, 0, copy(J)), seq()))),
    "empty_else": func(loop(I, 8, If(I < 4, copy(I), loop(J, 0, copy(J))))),
    "empty_then": func(loop(I, 8, If(I < 4, loop(J, 0, copy(J)), copy(I)))),
    "symbolic": func(loop(I, N, If(I < N, copy(I))), loop(J, N - N + 3, count(J)), sizes=(N,)),
    "thread": func(For(I, Const.of(1), "thread", copy(I), "threadIdx.x")),
}


@pytest.mark.parametrize("name", NESTS)
def test_nest(name: str, golden: Golden) -> None:
    before = NESTS[name]
    after = same(before, simplify_loops, **({"n": 6} if before.sizes else {}))
    golden.check(f"simplify_{name}.txt", f"{before}\n{after}")
