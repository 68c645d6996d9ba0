# SPDX-License-Identifier: Apache-2.0
"""Loops are cut, and bodies of parallel loops doubled, where guards begin or cease to hold."""

from __future__ import annotations

import numpy as np

from tests.loop_eval import run
from treadle import te
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import For, PrimFunc, func_text, walk_stmts
from treadle.lower.simplify_loops import simplify_loops
from treadle.lower.specialize_guards import specialize_guards


def padded_sum(width: int | te.Var, *, parallel: bool = False) -> tuple[PrimFunc, PrimFunc]:
    """Return y[i] = x[i - 1] + x[i] + x[i + 1], zeros outside, before and after the pass."""
    x = te.placeholder((width,), name="x")
    k = te.reduce_axis((0, 3), "k")

    def window(i: te.Expr) -> te.Expr:
        inside = te.all(i + k >= 1, i + k < width + 1)
        return te.sum(te.if_then_else(inside, x[i + k - 1], 0.0), [k])

    y = te.compute((width,), window, name="y")
    s = te.create_schedule(y.op)
    s[y].unroll(k)
    if parallel:
        s[y].parallel(y.op.axis[0])
    before = simplify_loops(schedule_to_func(s, [x, y], "f"))
    return before, specialize_guards(before)


def assert_same(
    before: PrimFunc, after: PrimFunc, width: int, sizes: dict[te.Var, int] | None = None
) -> None:
    x = np.random.default_rng(0).standard_normal(width).astype(np.float32)
    results = [np.zeros(width, np.float32) for _ in range(2)]
    for func, y in zip((before, after), results, strict=True):
        run(func, [x, y], sizes)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], np.convolve(x, np.ones(3))[1 : width + 1], rtol=1e-5)


def test_the_inside_of_a_serial_loop_has_no_guard() -> None:
    before, after = padded_sum(9)
    text = func_text(after)
    inside = text.split("in range(7):")[1].split("y[8]")[0]
    assert "if_then_else" not in inside
    assert_same(before, after, 9)


def test_a_parallel_loop_stays_one_and_asks_once() -> None:
    before, after = padded_sum(9, parallel=True)
    loops = [s for s in walk_stmts(after.body) if isinstance(s, For) and s.kind == "parallel"]
    assert len(loops) == 1
    assert func_text(after).count("    if ") == 1
    assert_same(before, after, 9)


def test_a_loop_of_symbolic_extent_asks_once_per_iteration() -> None:
    n = te.var("n")
    before, after = padded_sum(n)
    inside, border = func_text(after).split("else:")
    assert "if_then_else" not in inside.split("if ((0 < ")[1]
    assert "if_then_else" in border
    for width in (1, 2, 3, 9):
        assert_same(before, after, width, {n: width})


def test_short_loops_keep_their_meaning() -> None:
    for width in (1, 2, 3):
        before, after = padded_sum(width)
        assert_same(before, after, width)


def test_a_loop_without_guards_is_left_alone() -> None:
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, name="y")
    func = schedule_to_func(te.create_schedule(y.op), [x, y], "f")
    assert specialize_guards(func) is func


def test_a_condition_that_another_implies_is_not_asked() -> None:
    """Where a tile is whole it has rows, and where it is not its rows are known."""
    x = te.placeholder((131,), name="x")
    y = te.compute((131,), lambda i: x[i] + 1.0, name="y")
    z = te.compute((131,), lambda i: y[i] * 2.0, name="z")
    s = te.create_schedule(z.op)
    block, inner = s[z].split(z.op.axis[0], factor=24)
    tile, place = s[z].split(inner, factor=8)
    task = s[z].fuse(block, tile)
    s[z].parallel(task)
    s[z].unroll(place)
    s[y].compute_at(s[z], task)
    after = specialize_guards(simplify_loops(schedule_to_func(s, [x, z], "f")))
    text = func_text(after)
    assert text.count("    if ") == 2 + 1  # whole, there at all, and each element of the last
    assert "max(" not in text
    data, made = np.arange(131, dtype=np.float32), np.zeros(131, np.float32)
    run(after, [data, made], None)
    np.testing.assert_array_equal(made, (data + 1) * 2)
