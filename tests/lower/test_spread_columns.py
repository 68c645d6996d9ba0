# SPDX-License-Identifier: Apache-2.0
"""Columns of shared tiles laid out by vectors: every element has its own place, results stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpus import flat_result
from tests.loop.test_threads import product
from treadle.expr.nodes import Const
from treadle.loop import nodes as lp
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import PrimFunc
from treadle.lower.flatten_buffers import flatten_buffers
from treadle.lower.pipeline import LOOPS
from treadle.lower.simplify_loops import simplify_loops
from treadle.lower.spread_columns import SPREAD_COLUMNS, spread_columns


def made(count: int, *, is_asked: bool = True) -> PrimFunc:
    """A matrix product of 16 in tiles of 16 columns, whose second factor asks for it."""
    schedule, args = product(16, 16, 2, 4)
    shared = next(s for s in schedule.stages if s.name == "B.shared")
    if is_asked:
        for axis in shared.leaf_iter_vars:
            shared.pragma(axis, SPREAD_COLUMNS, count)
    return LOOPS.run(schedule_to_func(schedule, args))


@pytest.mark.parametrize("count", [8, 16])
def test_a_product_is_the_same(count: int) -> None:
    spread = spread_columns(made(count))
    lp.verify(spread)
    assert str(spread) != str(made(count))
    chance = np.random.default_rng(count)
    a, b = (chance.integers(-3, 4, (16, 16)).astype(np.float32) for _ in range(2))
    found = flat_result(simplify_loops(flatten_buffers(spread)), [a, b], 256).reshape(16, 16)
    assert np.array_equal(found, a @ b)


def test_first_vectors_of_all_threads_come_first() -> None:
    buffer = lp.Buffer("S", "float32", (Const.of(16),), "shared")
    stores = [lp.Store(buffer, (Const.of(n),), Const.of(0.0, "float32")) for n in range(16)]
    loop = lp.For(lp.Var("i"), Const.of(1), "serial", lp.seq(*stores), "", ((SPREAD_COLUMNS, 8),))
    found = spread_columns(PrimFunc("f", (), (), lp.Allocate(buffer, loop)))
    places = [
        s.indices[0].value
        for s in lp.walk_stmts(simplify_loops(found).body)
        if isinstance(s, lp.Store) and isinstance(s.indices[0], Const)
    ]
    assert places == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]


def test_only_buffers_that_ask_and_divide_are_changed() -> None:
    plain, uneven = made(8, is_asked=False), made(12)
    assert spread_columns(plain) is plain
    assert str(spread_columns(uneven)) == str(uneven)
