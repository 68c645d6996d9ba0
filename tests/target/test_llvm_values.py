# SPDX-License-Identifier: Apache-2.0
"""Lazy evaluation in generated code: branches, masks and guards, and expressions of any depth."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.kernel import FAR, flat, padded, run
from tests.targets import AVX2
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import For, If, PrimFunc, Store, seq
from treadle.target.llvm_ir import emit

ZERO = Const.of(0)


def test_scalar_lazy_select_does_not_touch_the_other_branch() -> None:
    size = flat("n", "int64", 1)
    source, out = flat("x", "float32", 4), flat("out", "float32", 2)
    n = ex.load(size, [ZERO])
    inside = ex.select(n < 4, ex.load(source, [n]), Const.of(-1.0, "float32"), lazy=True)
    body = seq(Store(out, (ZERO,), inside), Store(out, (Const.of(1),), inside * 2.0))
    func = PrimFunc("k", (size, source, out), (), body)
    x = np.array([1, 2, 3, 4], np.float32)
    for place, want in ((2, 3.0), (FAR, -1.0)):
        result = np.zeros(2, np.float32)
        run(func, [np.array([place]), x, result])
        np.testing.assert_array_equal(result, [want, 2 * want])


def test_vector_lazy_select_reads_only_lanes_that_are_on() -> None:
    lane = ex.ramp(0, 1, 8)
    size = 5
    cond = ex.binary("lt", lane, ex.broadcast(Const.of(size), 8))
    got = padded(8, lane, cond, size)
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 5, -1, -1, -1])
    far = ex.select(cond, lane, ex.broadcast(Const.of(FAR), 8))
    np.testing.assert_array_equal(padded(8, far, cond, size), [1, 2, 3, 4, 5, -1, -1, -1])


def test_nested_vector_lazy_selects_narrow_the_mask() -> None:
    lane = ex.ramp(0, 1, 8)
    source, out = flat("x", "float32", 4), flat("out", "float32", 8)
    first = ex.binary("ge", lane, ex.broadcast(Const.of(2), 8))
    second = ex.binary("lt", lane, ex.broadcast(Const.of(6), 8))
    inner = ex.select(second, ex.load(source, [lane - 2]), Const.of(-2.0, "float32"), lazy=True)
    value = ex.select(first, inner, Const.of(-1.0, "float32"), lazy=True)
    body = Store(out, (lane,), value)
    result = np.zeros(8, np.float32)
    x = np.array([1, 2, 3, 4], np.float32)
    run(PrimFunc("k", (source, out), (), body), [x, result])
    np.testing.assert_array_equal(result, [-1, -1, 1, 2, 3, 4, -2, -2])


def test_a_scalar_load_under_a_vector_condition_runs_only_if_a_lane_is_on() -> None:
    where, source = flat("where", "int64", 1), flat("x", "float32", 4)
    out = flat("out", "float32", 8)
    lane = ex.ramp(0, 1, 8)
    n = ex.load(where, [ZERO])
    cond = ex.binary("lt", lane + n, ex.broadcast(Const.of(6), 8))
    value = ex.broadcast(ex.load(source, [n]), 8)
    body = Store(out, (lane,), ex.select(cond, value, Const.of(-1.0, "float32"), lazy=True))
    func = PrimFunc("k", (where, source, out), (), body)
    x = np.array([1, 2, 3, 4], np.float32)
    for place, want in ((3, [4, 4, 4, -1, -1, -1, -1, -1]), (FAR, [-1] * 8)):
        result = np.zeros(8, np.float32)
        run(func, [np.array([place]), x, result])
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("row", [-1, 0, 2, 3])
def test_what_a_condition_asks_of_all_lanes_alike_is_a_branch(row: int) -> None:
    """Of 0 <= n < 3 and lane < 5 the lanes alone are a mask."""
    source, out = flat("x", "float32", 3 * 8), flat("out", "float32", 8)
    n, lane = Var("n"), ex.ramp(0, 1, 8)
    alike = ex.broadcast(ex.binary("and", n >= 0, n < 3), 8)
    cond = ex.binary("and", ex.binary("lt", lane, ex.broadcast(Const.of(5), 8)), alike)
    value = ex.load(source, [ex.ramp(n * 8, 1, 8)])
    body = Store(out, (lane,), ex.select(cond, value, Const.of(-1.0, "float32"), lazy=True))
    func = PrimFunc("k", (source, out), (n,), body)
    x, got = np.arange(24, dtype=np.float32), np.zeros(8, np.float32)
    run(func, [x, got], [row])
    want = np.full(8, -1, np.float32)
    if 0 <= row < 3:
        want[:5] = x[row * 8 : row * 8 + 5]
    np.testing.assert_array_equal(got, want)
    assert "br i1" in emit(func, AVX2)


def test_a_uniform_vector_condition_is_a_branch() -> None:
    where, source = flat("where", "int64", 1), flat("x", "float32", 8)
    out = flat("out", "float32", 8)
    n, lane = ex.load(where, [ZERO]), ex.ramp(0, 1, 8)
    low = ex.broadcast(ex.binary("ge", n, ZERO), 8)
    high = ex.broadcast(ex.binary("lt", n, Const.of(1)), 8)
    value = ex.load(source, [ex.ramp(n, 1, 8)])
    cond = ex.binary("and", low, high)
    body = Store(out, (lane,), ex.select(cond, value, Const.of(0.0, "float32"), lazy=True))
    func = PrimFunc("k", (where, source, out), (), body)
    assert "masked" not in emit(func, AVX2)
    x = np.arange(8, dtype=np.float32)
    for place, want in ((0, x), (-FAR, np.zeros(8))):
        result = np.ones(8, np.float32)
        run(func, [np.array([place]), x, result])
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("lanes", [1, 8])
def test_a_guarded_division_by_zero_does_not_trap(lanes: int) -> None:
    a, b, out = (flat(n, "int32", 8) for n in ("a", "b", "out"))
    i = Var("i")
    at = i if lanes == 1 else ex.ramp(i * lanes, 1, lanes)
    x, y = ex.load(a, [at]), ex.load(b, [at])
    value = ex.select(ex.binary("ne", y, 0), x // y, x, lazy=True)
    body = For(i, Const.of(8 // lanes), "serial", Store(out, (at,), value))
    top = np.array([7, -7, 5, 9, 8, -8, 1, 0], np.int32)
    by = np.array([0, 2, 0, 3, 0, 3, 1, 0], np.int32)
    result = np.zeros(8, np.int32)
    run(PrimFunc("k", (a, b, out), (), body), [top, by, result])
    np.testing.assert_array_equal(result, [7, -4, 5, 3, 8, -3, 1, 0])


def test_a_vector_if_masks_its_stores() -> None:
    x, out = flat("x", "float32", 5), flat("out", "float32", 8)
    lane = ex.ramp(0, 1, 8)
    cond = ex.binary("lt", lane, ex.broadcast(Const.of(5), 8))
    then = Store(out, (lane,), ex.load(x, [lane]) * 2.0)
    orelse = Store(out, (lane,), ex.broadcast(Const.of(9.0, "float32"), 8))
    result = np.zeros(8, np.float32)
    func = PrimFunc("k", (x, out), (), If(cond, then, orelse))
    run(func, [np.arange(5, dtype=np.float32), result])
    np.testing.assert_array_equal(result, [0, 2, 4, 6, 8, 9, 9, 9])


def test_a_vector_if_does_not_write_beyond_the_buffer() -> None:
    n, out = flat("n", "int64", 1), flat("out", "float32", 8)
    lane = ex.ramp(0, 1, 8)
    cond = ex.binary("lt", lane, ex.broadcast(ex.load(n, [ZERO]), 8))
    body = If(cond, Store(out, (lane,), ex.broadcast(Const.of(1.0, "float32"), 8)))
    result = np.zeros(8, np.float32)
    run(PrimFunc("k", (n, out), (), body), [np.array([3]), result])
    np.testing.assert_array_equal(result, [1, 1, 1, 0, 0, 0, 0, 0])


def test_a_scalar_store_under_a_vector_if_is_refused() -> None:
    out = flat("out", "float32", 8)
    cond = ex.binary("lt", ex.ramp(0, 1, 8), ex.broadcast(Const.of(5), 8))
    body = If(cond, Store(out, (ZERO,), Const.of(1.0, "float32")))
    with pytest.raises(InternalError, match="under a vector mask"):
        emit(PrimFunc("k", (out,), (), body), AVX2)


# -- values are reused only while they hold


def test_a_very_deep_expression_compiles() -> None:
    x, out = flat("x", "float32", 1), flat("out", "float32", 1)
    value: Expr = ex.load(x, [ZERO])
    for _ in range(4000):
        value = value + 1.0
    func = PrimFunc("k", (x, out), (), Store(out, (ZERO,), value))
    assert emit(func, AVX2).count("fadd") == 4000


def test_a_deep_chain_of_lazy_selects_compiles() -> None:
    x, out = flat("x", "float32", 64), flat("out", "float32", 1)
    value: Expr = ex.load(x, [ZERO])
    for k in range(64):
        here = ex.load(x, [Const.of(63 - k)])
        value = ex.select(here > 0.0, here / ex.load(x, [ZERO]), value, lazy=True)
    func = PrimFunc("k", (x, out), (), Store(out, (ZERO,), value))
    result = np.zeros(1, np.float32)
    run(func, [np.ones(64, np.float32), result])
    assert result[0] == 1
