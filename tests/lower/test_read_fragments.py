# SPDX-License-Identifier: Apache-2.0
"""Factors read a step ahead: the same bits, as many barriers a step, and what is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.gpus import flat_result
from tests.loop.test_threads import product
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const
from treadle.expr.traversal import rewrite
from treadle.loop import nodes as lp
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import Allocate, Barrier, For, PrimFunc, Stmt
from treadle.lower.fetch_ahead import FETCH_AHEAD, fetch_ahead
from treadle.lower.flatten_buffers import flatten_buffers
from treadle.lower.move_vectors import move_vectors
from treadle.lower.pipeline import LOOPS
from treadle.lower.read_fragments import FRAGMENTS, read_fragments
from treadle.lower.simplify_loops import simplify_loops


def ahead(
    n: int, tile: int, threads: int, step: int, *, places: int = 2, is_unrolled: bool = True
) -> PrimFunc:
    """A matrix product whose tiles are fetched ahead, and whose loop over steps asks for it."""
    schedule, args = product(n, tile, threads, step)
    local = next(s for s in schedule.stages if s.name == "C.local")
    outer, *inner = local.leaf_iter_vars
    local.pragma(outer, FETCH_AHEAD, places)
    local.pragma(outer, FRAGMENTS, True)
    for axis in inner if is_unrolled else ():
        local.unroll(axis)
    lowered = simplify_loops(flatten_buffers(LOOPS.run(schedule_to_func(schedule, args))))
    return fetch_ahead(lowered)


def fragments(func: PrimFunc) -> set[str]:
    """Return the names of the registers that hold factors."""
    buffers = [s.buffer for s in lp.walk_stmts(func.body) if isinstance(s, Allocate)]
    return {b.name for b in buffers if b.name.endswith(".fragment")}


def changed(func: PrimFunc, on_stmt: Callable[[Stmt], Stmt | None]) -> PrimFunc:
    return func.with_body(lp.map_stmt(func.body, None, on_stmt))


def asks(s: Stmt) -> bool:
    return isinstance(s, For) and any(key == FRAGMENTS for key, _ in s.pragmas)


@pytest.mark.parametrize(
    ("n", "tile", "threads", "step"),
    [(8, 4, 2, 2), (12, 6, 2, 2), (16, 8, 2, 4), (16, 16, 2, 2), (7, 4, 2, 2), (13, 8, 2, 4)],
)
def test_a_product_has_the_same_bits(n: int, tile: int, threads: int, step: int) -> None:
    plain = ahead(n, tile, threads, step)
    made = simplify_loops(move_vectors(read_fragments(plain)))
    lp.verify(made)
    assert fragments(made) == {"A.shared.fragment", "B.shared.fragment"}
    a, b = np.random.default_rng(n).standard_normal((2, n, n)).astype(np.float32)
    found, expected = (flat_result(f, [a, b], n * n) for f in (made, plain))
    assert np.array_equal(found, expected)


def test_threads_meet_once_a_step() -> None:
    made = read_fragments(ahead(8, 4, 2, 2))
    (loop,) = [
        s for s in lp.walk_stmts(made.body) if isinstance(s, For) and s.var.name == "k.outer"
    ]
    inside = list(lp.walk_stmts(loop))
    assert sum(isinstance(s, Barrier) for s in inside) == 1
    assert not any(isinstance(s, lp.If) for s in inside)
    assert not asks(loop)


def test_the_next_factors_are_read_before_the_products() -> None:
    made = str(simplify_loops(read_fragments(ahead(16, 8, 2, 4))))
    loop = made[made.index("for k.outer in range") :]
    fetched = loop.index("A.shared.ahead[")
    first = loop.index("A.shared.fragment[", fetched)
    products = loop.index("fma(", first)
    stored = loop.index("A.shared[", products)
    barrier = loop.index("barrier()", stored)
    again = loop.index("A.shared.fragment[", barrier)
    assert fetched < first < products < stored < barrier < again < loop.rindex("fma(")


def test_factors_side_by_side_are_read_as_vectors() -> None:
    made = str(simplify_loops(move_vectors(read_fragments(ahead(16, 8, 2, 4)))))
    assert "B.shared.fragment[ramp(" in made


def without_places() -> PrimFunc:
    return ahead(8, 4, 2, 2, places=1)


def with_loops_of_its_own() -> PrimFunc:
    return ahead(8, 4, 2, 2, is_unrolled=False)


def of_odd_steps() -> PrimFunc:
    return ahead(9, 3, 3, 3)


def of_one_step() -> PrimFunc:
    return ahead(8, 4, 2, 8)


def that_is_not_asked() -> PrimFunc:
    return changed(ahead(8, 4, 2, 2), lambda s: replace(s, pragmas=()) if asks(s) else None)


def that_runs_again() -> PrimFunc:
    """Its last tile must not be overwritten before all have read it."""
    schedule, args = product(8, 4, 2, 2)
    local = next(s for s in schedule.stages if s.name == "C.local")
    for key, value in ((FETCH_AHEAD, 2), (FRAGMENTS, True)):
        local.pragma(local.leaf_iter_vars[0], key, value)
    for axis in local.leaf_iter_vars[1:]:
        local.unroll(axis)
    func = simplify_loops(flatten_buffers(LOOPS.run(schedule_to_func(schedule, args))))

    def again(s: Stmt) -> Stmt | None:
        return For(lp.Var("again"), Const.of(2), "serial", s) if asks(s) else None

    return fetch_ahead(changed(func, again))


def that_reads_by_the_step() -> PrimFunc:
    """A factor that lies in memory for all tiles: behind the last one there is none."""
    func = ahead(8, 4, 2, 2)
    (loop,) = [s for s in lp.walk_stmts(func.body) if asks(s)]
    assert isinstance(loop, For)
    half = loop.var % 2

    def on_expr(e: ex.Expr) -> ex.Expr:
        return rewrite(e, lambda n: loop.var if n is half else None)

    return func.with_body(lp.map_stmt(func.body, on_expr))


def that_chooses() -> PrimFunc:
    """A factor that is read under a test of its own."""

    def on_stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, lp.Store) or "fma" not in str(s.value):
            return None
        value = ex.select(s.indices[0] < 2, s.value, Const.of(0, "float32"), lazy=True)
        return replace(s, value=value)

    return changed(ahead(8, 4, 2, 2), on_stmt)


def of_shared_sums() -> PrimFunc:
    """What is summed lies where the factors do."""
    func = ahead(8, 4, 2, 2)
    for s in lp.walk_stmts(func.body):
        if isinstance(s, Allocate) and s.buffer.name == "C.local":
            s.buffer.scope = "shared"
    return func


KEPT = (
    without_places, with_loops_of_its_own, of_odd_steps, of_one_step, that_is_not_asked,
    that_runs_again, that_reads_by_the_step, that_chooses, of_shared_sums,
)  # fmt: skip


@pytest.mark.parametrize("func", KEPT, ids=lambda f: f.__name__)
def test_a_loop_stays(func: Callable[[], PrimFunc]) -> None:
    kept = func()
    assert str(read_fragments(kept)) == str(kept)
