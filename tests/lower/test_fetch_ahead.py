# SPDX-License-Identifier: Apache-2.0
"""Fetches into shared memory a step ahead: the same results, and what is left as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpus import flat_result
from tests.loop.test_threads import product
from treadle.loop import nodes as lp
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import For, PrimFunc, Stmt
from treadle.lower.fetch_ahead import FETCH_AHEAD, fetch_ahead
from treadle.lower.flatten_buffers import flatten_buffers
from treadle.lower.pipeline import LOOPS
from treadle.lower.simplify_loops import simplify_loops


def lowered(
    n: int, tile: int, threads: int, step: int, *, is_asked: bool = True, places: int = 1
) -> PrimFunc:
    """A matrix product whose loop over steps asks for it."""
    schedule, args = product(n, tile, threads, step)
    local = next(s for s in schedule.stages if s.name == "C.local")
    if is_asked:
        local.pragma(local.leaf_iter_vars[0], FETCH_AHEAD, places)
    return simplify_loops(flatten_buffers(LOOPS.run(schedule_to_func(schedule, args))))


@pytest.mark.parametrize(
    ("n", "tile", "threads", "step"), [(8, 4, 2, 2), (8, 4, 4, 4), (7, 4, 2, 2)]
)
def test_a_product_is_the_same(n: int, tile: int, threads: int, step: int) -> None:
    made = fetch_ahead(lowered(n, tile, threads, step))
    lp.verify(made)
    chance = np.random.default_rng(n)
    a, b = (chance.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    found = flat_result(made, [a, b], n * n).reshape(n, n)
    assert np.array_equal(found, a @ b)


@pytest.mark.parametrize(("n", "tile", "threads", "step"), [(8, 4, 2, 2), (7, 4, 2, 2)])
def test_two_places_need_fewer_barriers(n: int, tile: int, threads: int, step: int) -> None:
    one, two = (fetch_ahead(lowered(n, tile, threads, step, places=p)) for p in (1, 2))
    lp.verify(two)
    assert str(two).count("barrier()") < str(one).count("barrier()")
    chance = np.random.default_rng(n)
    a, b = (chance.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    found = flat_result(two, [a, b], n * n).reshape(n, n)
    assert np.array_equal(found, a @ b)


def test_the_next_step_is_read_between_the_barriers_and_the_products() -> None:
    made = str(fetch_ahead(lowered(8, 4, 2, 2)))
    loop = made[made.index("for k.outer in range") :]
    stored = loop.index("A.shared[")
    second = loop.index("barrier()", stored)
    ahead = loop.index("if ((k.outer + 1) < 4):")
    assert loop.index("barrier()") < stored < second < ahead < loop.index("fma(")
    assert made.index("A.shared.ahead[") < made.index("for k.outer in range")


def test_a_loop_that_runs_again_has_one_place() -> None:
    asked = lowered(8, 4, 2, 2, places=2)

    def repeated(s: Stmt) -> Stmt | None:
        is_asked = isinstance(s, For) and any(key == FETCH_AHEAD for key, _ in s.pragmas)
        return For(lp.Var("again"), lp.ex.Const.of(2), "serial", s) if is_asked else None

    made = str(fetch_ahead(asked.with_body(lp.map_stmt(asked.body, None, repeated))))
    loop = made[made.index("for k.outer in range") :]
    assert loop.index("barrier()") < loop.index("A.shared[")


def test_only_loops_that_ask_are_changed() -> None:
    plain = lowered(8, 4, 2, 2, is_asked=False)
    assert str(fetch_ahead(plain)) == str(plain)


def test_a_fetch_of_what_the_loop_computes_stays() -> None:
    asked = lowered(8, 4, 2, 2)

    def from_shared(s: Stmt) -> Stmt | None:
        """Let the second fetch read what the first one stored."""
        if isinstance(s, lp.Store) and s.buffer.name == "B.shared":
            shared = next(
                x.buffer
                for x in lp.walk_stmts(asked.body)
                if isinstance(x, lp.Store) and x.buffer.name == "A.shared"
            )
            return replace(s, value=lp.ex.load(shared, s.indices))
        return None

    changed = asked.with_body(lp.map_stmt(asked.body, None, from_shared))
    kept = fetch_ahead(changed)
    assert not any("ahead" in s.buffer.name for s in lp.walk_stmts(kept.body)
                   if isinstance(s, lp.Allocate))  # fmt: skip


def test_a_single_step_has_no_next_one() -> None:
    asked = lowered(8, 4, 2, 8)
    assert str(fetch_ahead(asked)) == str(asked)
    assert not any(isinstance(s, For) and s.pragmas for s in lp.walk_stmts(asked.body))
