# SPDX-License-Identifier: Apache-2.0
"""Loops bound to GPU threads: shared regions, barriers, and the results of running them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle
from tests import loop_threads
from treadle import te
from treadle.errors import InternalError, ScheduleError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop import nodes as lp
from treadle.loop.nodes import PrimFunc
from treadle.lower.insert_barriers import insert_barriers
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule


def product(n: int, tile: int, threads: int, step: int) -> tuple[Schedule, list[Tensor]]:
    """A matrix product whose blocks fetch tiles of both factors into shared memory together."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    shared = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    local = s.cache_write(c, "local")
    block = te.thread_axis("blockIdx.y"), te.thread_axis("blockIdx.x")
    thread = (
        te.thread_axis((0, threads), "threadIdx.y"),
        te.thread_axis((0, threads), "threadIdx.x"),
    )
    outer, inner = zip(*(s[c].split(axis, tile) for axis in s[c].op.axis), strict=True)
    rows, elements = zip(*(s[c].split(axis, nparts=threads) for axis in inner), strict=True)
    s[c].reorder(*outer, *rows, *elements)
    for axis, hardware in zip((*outer, *rows), (*block, *thread), strict=True):
        s[c].bind(axis, hardware)
    s[local].compute_at(s[c], rows[1])
    ko, ki = s[local].split(s[local].op.reduce_axis[0], step)
    s[local].reorder(ko, ki, *s[local].op.axis)
    for fetched in shared:
        s[fetched].compute_at(s[local], ko)
        parts = [s[fetched].split(axis, nparts=threads) for axis in s[fetched].op.axis]
        s[fetched].reorder(*(p[0] for p in parts), *(p[1] for p in parts))
        for (part, _), hardware in zip(parts, thread, strict=True):
            s[fetched].bind(part, hardware)
    return s, [a, b, c]


GOLDEN = """\
def main(A: float32[32, 32], B: float32[32, 32], C: float32[32, 32]):
    for i.outer in thread(2, "blockIdx.y"):
        for j.outer in thread(2, "blockIdx.x"):
            for i.inner.outer in thread(8, "threadIdx.y"):
                for j.inner.outer in thread(8, "threadIdx.x"):
                    C.local: float32[2, 2] = alloc(local)
                    for i.c in range(2):
                        for j.c in range(2):
                            C.local[i.c, j.c] = float32(0.0)
                    for k.outer in range(4):
                        barrier()
                        A.shared: float32[16, 8] = alloc(shared)
                        B.shared: float32[8, 16] = alloc(shared)
                        for ax0.inner in range(2):
                            A.shared[((i.inner.outer * 2) + ax0.inner), j.inner.outer] = \
A[(((i.outer * 16) + (i.inner.outer * 2)) + ax0.inner), ((k.outer * 8) + j.inner.outer)]
                        for ax1.inner in range(2):
                            B.shared[i.inner.outer, ((j.inner.outer * 2) + ax1.inner)] = \
B[((k.outer * 8) + i.inner.outer), (((j.outer * 16) + (j.inner.outer * 2)) + ax1.inner)]
                        barrier()
                        for k.inner in range(8):
                            for i.c_1 in range(2):
                                for j.c_1 in range(2):
                                    C.local[i.c_1, j.c_1] = \
fma(A.shared[((i.inner.outer * 2) + i.c_1), k.inner], \
B.shared[k.inner, ((j.inner.outer * 2) + j.c_1)], C.local[i.c_1, j.c_1])
                    for i.inner.inner in range(2):
                        for j.inner.inner in range(2):
                            C[(((i.outer * 16) + (i.inner.outer * 2)) + i.inner.inner), \
(((j.outer * 16) + (j.inner.outer * 2)) + j.inner.inner)] = C.local[i.inner.inner, j.inner.inner]
"""


def test_a_block_fetches_its_tiles_together() -> None:
    schedule, args = product(32, tile=16, threads=8, step=8)
    assert str(treadle.lower(schedule, args)) == GOLDEN


def result(func: PrimFunc, n: int) -> tuple[np.ndarray, np.ndarray]:
    """What a product of integers gives, and what it should: both are exact."""
    chance = np.random.default_rng(n)
    a, b = (chance.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    c = np.full((n, n), np.nan, np.float32)
    loop_threads.run(func, [a, b, c])
    return c, a @ b


@pytest.mark.parametrize(
    ("n", "tile", "threads", "step"),
    [(8, 4, 2, 2), (8, 4, 4, 3), (7, 4, 2, 2), (11, 6, 3, 4), (5, 8, 4, 8)],
)
def test_tiles_that_do_not_divide_are_right(n: int, tile: int, threads: int, step: int) -> None:
    found, expected = result(treadle.lower(*product(n, tile, threads, step)), n)
    assert np.array_equal(found, expected)


def without(stmt: lp.Stmt, number: int) -> lp.Stmt:
    """Leave out one barrier."""
    seen = [0]

    def leave_out(s: lp.Stmt) -> lp.Stmt | None:
        if not isinstance(s, lp.Barrier):
            return None
        seen[0] += 1
        return lp.seq() if seen[0] == number else s

    return lp.map_stmt(stmt, None, leave_out)


@pytest.mark.parametrize("number", [1, 2])
def test_both_barriers_are_needed(number: int) -> None:
    func = treadle.lower(*product(8, 4, 2, 2))
    found, expected = result(func.with_body(without(func.body, number)), 8)
    assert not np.array_equal(found, expected)


def reversed_rows(n: int) -> tuple[Schedule, list[Tensor]]:
    """Each thread reads what another one wrote."""
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n, n), lambda i, j: b[i, (n - 1) - j], name="C")
    s = te.create_schedule(c.op)
    tx = te.thread_axis((0, n), "threadIdx.x")
    s[c].bind(s[c].op.axis[1], tx)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].bind(s[b].op.axis[1], tx)
    return s, [a, c]


def test_a_stage_outside_the_loops_over_threads() -> None:
    n = 6
    func = treadle.lower(*reversed_rows(n))
    assert str(func).count("barrier()") == 2
    a, c = np.arange(n * n, dtype=np.float32).reshape(n, n), np.zeros((n, n), np.float32)
    loop_threads.run(func, [a, c])
    assert np.array_equal(c, a[:, ::-1] + 1)


def test_a_thread_waits_for_nobody_but_others() -> None:
    n = 6
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n, n), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    tx = te.thread_axis((0, n), "threadIdx.x")
    s[c].bind(s[c].op.axis[1], tx)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].bind(s[b].op.axis[1], tx)
    assert "barrier" not in str(treadle.lower(s, [a, c]))


def test_a_barrier_under_a_condition_is_refused() -> None:
    x, shared = lp.Buffer("x", "int64", lp.shape_of(8)), lp.Buffer("s", "int64", lp.shape_of(8))
    shared.scope, t = "shared", Var("t")
    write = lp.Store(shared, (t,), t)
    read = lp.Store(x, (t,), ex.load(shared, (7 - t,)))
    body = lp.If(t < 4, lp.seq(write, read))
    loop = lp.For(t, Const.of(8), "thread", lp.Allocate(shared, body), "threadIdx.x")
    with pytest.raises(ScheduleError) as error:
        insert_barriers(PrimFunc("f", (x,), (), loop))
    assert str(error.value) == (
        "threads must wait for each other before s is used, where only those run for which "
        "(t < 4)\n  at    kernel f\n"
        "  hint  compute it outside of that condition, or split so that the parts are even"
    )


def test_the_last_block_has_all_its_threads() -> None:
    n = 7
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n,), lambda i: te.sum(b[k] * (i + 1), axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], 3)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis((0, 3), "threadIdx.x"))
    s[b].set_scope("shared")
    s[b].compute_at(s[c], inner)
    part, _ = s[b].split(b.op.axis[0], nparts=3)
    s[b].bind(part, te.thread_axis((0, 3), "threadIdx.x"))
    func = treadle.lower(s, [a, c])
    given, found = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    loop_threads.run(func, [given, found])
    assert np.array_equal(found, (given + 1).sum() * np.arange(1, n + 1))


def test_two_extents_of_one_thread_are_refused() -> None:
    x = lp.Buffer("x", "float32", lp.shape_of(8))

    def loop(extent: int, body: lp.Stmt | None = None) -> lp.For:
        var = Var("t")
        store = lp.Store(x, (var,), Const.of(0.0, "float32"))
        return lp.For(var, Const.of(extent), "thread", body or store, "threadIdx.x")

    def verified(body: lp.Stmt) -> None:
        lp.verify(PrimFunc("f", (x,), (), body))

    def in_blocks(body: lp.Stmt) -> lp.Stmt:
        return lp.For(Var("b"), Const.of(2), "thread", body, "blockIdx.x")

    verified(in_blocks(lp.seq(loop(8), loop(8))))
    verified(lp.seq(loop(8), loop(4)))  # a launch each
    with pytest.raises(InternalError, match=r"threadIdx\.x runs to 4 here and 8 elsewhere"):
        verified(in_blocks(lp.seq(loop(8), loop(4))))
    with pytest.raises(InternalError, match=r"a loop over threadIdx\.x is inside of another one"):
        verified(loop(8, loop(8)))


def test_statements_that_no_schedule_makes() -> None:
    x = lp.Buffer("x", "int64", lp.shape_of(4))
    i, twice = Var("i"), Var("twice")
    store = lp.Store(x, (i,), twice + 1)
    body = lp.For(i, Const.of(4), "serial", lp.Let(twice, i * 2, store))
    func = PrimFunc("f", (x,), (), body)
    lp.verify(func)
    assert str(func) == (
        "def f(x: int64[4]):\n"
        "    for i in range(4):\n"
        "        twice = (i * 2)\n"
        "        x[i] = (twice + 1)\n"
    )
    nested = lp.Let(twice, Const.of(1), lp.Let(twice, Const.of(2), store))
    broken = replace(func, body=lp.For(i, Const.of(4), "serial", nested))
    with pytest.raises(InternalError, match="variable twice is bound twice"):
        lp.verify(broken)


def test_threads_do_not_combine_their_values() -> None:
    a, k = te.placeholder((8, 32), name="A"), te.reduce_axis((0, 32), "k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].bind(s[b].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ScheduleError, match=r"k, an axis of a reduction, is bound to threadIdx\.x"):
        treadle.lower(s, [a, b])
