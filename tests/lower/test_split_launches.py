# SPDX-License-Identifier: Apache-2.0
"""Kernels for GPUs taken apart into launches."""

from __future__ import annotations

import pytest

from treadle.errors import ScheduleError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import substitute
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store
from treadle.lower.split_launches import split_launches

N = Var("n")
X = Buffer("x", "float32", lp.shape_of(64))
Y = Buffer("y", "float32", lp.shape_of(64))
HELD = Buffer("held", "float32", lp.shape_of(64), "workspace")


def launch(target: Buffer, source: Buffer, blocks: int | Expr, threads: int = 8) -> Stmt:
    """Each thread copies an element."""
    b, t = Var("b"), Var("t")
    at = b * threads + t
    store = Store(target, (at,), ex.load(source, (at,)))
    inner = For(t, Const.of(threads), "thread", store, "threadIdx.x")
    return For(b, ex.convert(blocks), "thread", inner, "blockIdx.x")


def func(body: Stmt, *sizes: Var) -> PrimFunc:
    return PrimFunc("f", (X, Y), sizes, body)


def test_each_nest_is_a_launch_and_the_memory_between_them_is_lent() -> None:
    body = Allocate(HELD, lp.seq(launch(HELD, X, 2), launch(Y, HELD, 4, threads=16)))
    first, second = split_launches(func(body))
    assert (first.name, second.name) == ("f_1", "f_2")
    assert list(first.params) == [0]
    assert list(second.params) == [1]
    assert [b.name for f in (first, second) for b in f.workspace] == ["held", "held"]
    assert [int_value(e) for e in (*first.grid, *second.grid)] == [2, 1, 1, 4, 1, 1]
    assert (first.block, second.block) == ((8, 1, 1), (16, 1, 1))
    assert (first.result, second.result) == ("held", "y")


def test_a_condition_on_sizes_leaves_blocks_or_none() -> None:
    body = If(N < 5, launch(Y, X, N), launch(Y, X, 8))
    few, many = split_launches(func(body, N))

    def blocks(size: int) -> list[int | None]:
        grids = [f.grid[0] for f in (few, many)]
        return [int_value(simplify(substitute(g, {N: Const.of(size)}))) for g in grids]

    assert blocks(3) == [3, 0]
    assert blocks(5) == [0, 8]
    assert few.sizes == ()  # the host alone asks


def test_threads_that_would_write_the_same_are_refused() -> None:
    b, t = Var("b"), Var("t")
    store = Store(Y, (b,), Const.of(1.0, "float32"))
    other = For(t, Const.of(4), "thread", Store(Y, (t,), ex.load(X, (b,))), "threadIdx.x")
    body = For(b, Const.of(4), "thread", lp.seq(store, other), "blockIdx.x")
    with pytest.raises(ScheduleError, match=r"every thread along threadIdx\.x would write all"):
        split_launches(func(body))


def test_a_block_has_as_many_threads_whatever_the_sizes() -> None:
    t = Var("t")
    body = For(t, N, "thread", Store(Y, (t,), ex.load(X, (t,))), "threadIdx.x")
    with pytest.raises(ScheduleError, match="the number of threads in a block depends on sizes"):
        split_launches(func(body, N))


def test_an_axis_that_no_gpu_has_is_refused() -> None:
    t = Var("t")
    body = For(t, Const.of(4), "thread", Store(Y, (t,), ex.load(X, (t,))), "vthread")
    with pytest.raises(ScheduleError, match="bound to vthread, which a GPU does not have"):
        split_launches(func(body))
