# SPDX-License-Identifier: Apache-2.0
"""Vectorized loops become vectors where they can."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conftest import Golden
from tests.lower.nests import IN, OUT, I, J, N, copy, count, func, loop, same
from treadle.expr.nodes import Const, load, select
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Store, shape_of, walk_stmts
from treadle.lower.vectorize_loops import vectorize_loops

LOCAL = Buffer("L", "float32", shape_of(4), "local")
ZERO = Const.of(0)


def vector(extent: object, *body: object) -> For:
    return loop(I, extent, *body, kind="vectorized")  # type: ignore[arg-type]


VECTORS: dict[str, PrimFunc] = {
    "even": func(loop(J, 3, vector(8, copy(J * 8 + I)))),
    "odd_lanes": func(vector(7, copy(I))),
    "one_lane": func(vector(1, copy(I + 2))),
    "widest": func(vector(64, copy(I))),
    "too_wide": func(vector(80, copy(I))),
    "too_wide_and_odd": func(vector(100, copy(I))),
    "stride": func(vector(4, copy(I * 3))),
    "reversed": func(vector(4, copy(10 - I))),
    "same_value": func(vector(4, Store(OUT, (I,), load(IN, (Const.of(5),))))),
    "index_as_value": func(vector(4, Store(OUT, (I,), (I * 2).astype("float32")))),
    "loop_inside": func(vector(4, loop(J, 3, count(I)))),
    "lazy_guard": func(
        vector(8, Store(OUT, (I,), select(I < 5, load(IN, (I * 80,)), load(IN, (I,)), lazy=True)))
    ),
    "gather": func(vector(4, Store(OUT, (I,), load(IN, (load(IN, (I * 2,)).astype("int64"),))))),
}
SERIAL: dict[str, PrimFunc] = {
    "if_on_the_lane": func(vector(8, If(I < 5, copy(I), count(I)))),
    "local_buffer": func(
        vector(4, Allocate(LOCAL, loop(J, 1, Store(LOCAL, (ZERO,), load(IN, (I,))), copy(I))))
    ),
    "inner_extent": func(vector(5, loop(J, I + 1, copy(I * 5 + J)))),
    "same_place": func(vector(4, count(ZERO))),
    "symbolic": func(vector(N, copy(I)), sizes=(N,)),
    "parallel_inside": func(vector(4, loop(J, 3, copy(I * 3 + J), kind="parallel"))),
    "vector_inside": func(vector(4, loop(J, 4, copy(I * 4 + J), kind="vectorized"))),
}


def test_a_local_buffer_in_the_nest_is_really_used() -> None:
    assert any(isinstance(s, Allocate) for s in walk_stmts(SERIAL["local_buffer"].body))


@pytest.mark.parametrize("name", [*VECTORS, *SERIAL])
def test_vectorize(name: str, golden: Golden) -> None:
    before = {**VECTORS, **SERIAL}[name]
    after = same(before, partial(vectorize_loops, chunk=16), **({"n": 9} if before.sizes else {}))
    kinds = {s.kind for s in walk_stmts(after.body) if isinstance(s, For)}
    assert "vectorized" not in kinds
    golden.check(f"vectorize_{name}.txt", f"{before}\n{after}")
    lanes = {s.value.lanes for s in walk_stmts(after.body) if isinstance(s, Store)}
    if name in VECTORS and name != "one_lane":
        assert max(lanes) > 1
    elif name != "vector_inside":  # there the inner loop is the vector
        assert lanes == {1}


def test_a_condition_on_another_variable_is_kept_around_a_vector() -> None:
    before = func(loop(J, 3, vector(4, If(J < 2, copy(J * 4 + I)))))
    after = same(before, vectorize_loops)
    assert "ramp" in str(after)
    assert "if (j < 2)" in str(after)
