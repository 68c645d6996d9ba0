# SPDX-License-Identifier: Apache-2.0
"""Nests written by hand get threads; what a schedule left unbound is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import loop_threads
from treadle import te
from treadle.errors import ScheduleError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop import nodes as lp
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import Buffer, For, PrimFunc, Stmt, Store
from treadle.lower.bind_loops import bind_loops

N = Var("n")


def by_hand(extent: ex.Expr, *sizes: Var) -> PrimFunc:
    x, y = (Buffer(name, "float32", (extent, Const.of(3))) for name in "xy")
    i, j = Var("i"), Var("j")
    store = Store(y, (i, j), ex.load(x, (i, j)) + 1.0)
    rows = For(i, extent, "parallel", For(j, Const.of(3), "parallel", store))
    func = PrimFunc("f", (x, y), sizes, rows)
    return replace(func, attrs={"by_hand": frozenset({"y"})})


def test_the_outermost_parallel_loop_is_divided_among_blocks() -> None:
    assert str(bind_loops(by_hand(N, N), threads=4)) == (
        "def f(x: float32[n, 3], y: float32[n, 3], n: int64):\n"
        '    for i.block in thread(((n + 3) // 4), "blockIdx.x"):\n'
        '        for i.thread in thread(4, "threadIdx.x"):\n'
        "            if (((i.block * 4) + i.thread) < n):\n"
        "                for j in range(3):\n"
        "                    y[((i.block * 4) + i.thread), j] = "
        "(x[((i.block * 4) + i.thread), j] + float32(1.0))\n"
    )


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_every_iteration_runs_once(rows: int) -> None:
    x, y = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3), np.zeros((rows, 3), np.float32)
    loop_threads.run(bind_loops(by_hand(Const.of(rows)), threads=4), [x, y])
    assert np.array_equal(y, x + 1)


def test_an_extern_stage_is_by_hand_and_a_compute_is_not() -> None:
    a = te.placeholder((8,), name="A")

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        i = Var("i")
        return For(i, Const.of(8), "serial", Store(outputs[0], (i,), ex.load(inputs[0], (i,))))

    b = te.extern((8,), [a], body, name="B", dtype="float32")
    s = te.create_schedule(b.op)
    func = schedule_to_func(s, [a, b])
    assert func.attrs["by_hand"] == {"B"}
    assert lp.func_text(bind_loops(func)) == lp.func_text(func)  # one thread runs it

    c = te.compute((8,), lambda i: a[i] * 2, name="C")
    unbound = schedule_to_func(te.create_schedule(c.op), [a, c])
    with pytest.raises(ScheduleError) as error:
        bind_loops(unbound)
    assert str(error.value) == (
        "the loops of stage C are bound to no index of the GPU\n  at    kernel main\n"
        "  hint  bind them to blockIdx and threadIdx, or compute the stage inside of one that is"
    )
