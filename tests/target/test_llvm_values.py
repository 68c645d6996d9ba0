# SPDX-License-Identifier: Apache-2.0
"""Memory access and lazy evaluation in generated code: ramps, gathers, masks, guards, reuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.kernel import flat, run
from tests.targets import AVX2
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import Allocate, For, If, PrimFunc, Store, seq
from treadle.target.llvm_ir import emit

ZERO = Const.of(0)


def gather_with(index: Expr, size: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Return x and x[index] computed by one vector load."""
    x = np.arange(1, size + 1).astype(dtype)
    source, out = flat("x", dtype, size), flat("out", dtype, index.lanes)
    body = Store(out, (ex.ramp(0, 1, index.lanes),), ex.load(source, [index]))
    result = np.zeros(index.lanes, dtype)
    run(PrimFunc("k", (source, out), (), body), [x, result])
    return x, result


@pytest.mark.parametrize("lanes", [2, 3, 4, 5, 8, 16, 32])
@pytest.mark.parametrize("stride", [-2, -1, 0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
def test_strided_loads(dtype: str, stride: int, lanes: int) -> None:
    base = 3 if stride >= 0 else 3 - stride * (lanes - 1)
    # The last element read is the last there is, so that reading on would leave the buffer.
    size = 4 + abs(stride) * (lanes - 1)
    x, got = gather_with(ex.ramp(base, stride, lanes), size, dtype)
    np.testing.assert_array_equal(got, x[base + stride * np.arange(lanes)])


def test_a_vector_index_that_is_a_sum_of_ramps_is_one_load() -> None:
    i = ex.ramp(0, 1, 8) * 2 + ex.broadcast(Const.of(5), 8) - ex.ramp(1, 1, 8)
    x, got = gather_with(i, 12)
    np.testing.assert_array_equal(got, x[4:12])
    source, out = flat("x", "float32", 12), flat("out", "float32", 8)
    body = Store(out, (ex.ramp(0, 1, 8),), ex.load(source, [i]))
    assert "gather" not in emit(PrimFunc("k", (source, out), (), body), AVX2)


def test_gather_and_scatter_with_computed_indices() -> None:
    table, places = flat("table", "float32", 50), flat("places", "int64", 16)
    out = flat("out", "float32", 64)
    at = ex.load(places, [ex.ramp(0, 1, 16)])
    body = Store(out, (at,), ex.load(table, [at]) + 1.0)
    rng = np.random.default_rng(0)
    x, where = rng.normal(size=50).astype(np.float32), rng.permutation(50)[:16].astype(np.int64)
    result = np.zeros(64, np.float32)
    run(PrimFunc("k", (table, places, out), (), body), [x, where, result])
    want = np.zeros(64, np.float32)
    want[where] = x[where] + 1
    np.testing.assert_array_equal(result, want)


def test_strided_store() -> None:
    out = flat("out", "int32", 40)
    body = Store(out, (ex.ramp(1, 4, 8),), ex.cast(ex.ramp(10, 1, 8), "int32"))
    result = np.zeros(40, np.int32)
    run(PrimFunc("k", (out,), (), body), [result])
    want = np.zeros(40, np.int32)
    want[1:33:4] = np.arange(10, 18)
    np.testing.assert_array_equal(result, want)


def test_bool_vectors_take_a_byte_each_and_any_nonzero_byte_is_true() -> None:
    x, out = flat("x", "bool", 8), flat("out", "bool", 8)
    i = ex.ramp(0, 1, 8)
    body = Store(out, (i,), ex.call("not", ex.load(x, [i])))
    raw = np.array([0, 1, 2, 255, 0, 0, 1, 1], np.uint8)
    result = np.zeros(8, bool)
    run(PrimFunc("k", (x, out), (), body), [raw.view(bool), result])
    np.testing.assert_array_equal(result, raw == 0)


def padded(lanes: int, at: Expr, cond: Expr, size: int) -> np.ndarray:
    """Return if_then_else(cond, x[at], -1) for x = 1, 2, ..."""
    source, out = flat("x", "float32", size), flat("out", "float32", lanes)
    value = ex.select(cond, ex.load(source, [at]), Const.of(-1.0, "float32"), lazy=True)
    index = ex.ramp(0, 1, lanes)
    result = np.zeros(lanes, np.float32)
    x = np.arange(1, size + 1, dtype=np.float32)
    body = Store(out, (index,), value)
    run(PrimFunc("k", (source, out), (), body), [x, result])
    return result


FAR = 1 << 40
"""An index whose address no process has."""


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


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strided_loads_under_a_mask_read_only_lanes_that_are_on(stride: int, lanes: int) -> None:
    lane = ex.ramp(0, 1, lanes)
    for on in range(lanes + 1):
        size = max(1, stride * (on - 1) + 1)
        cond = ex.binary("lt", lane, ex.broadcast(Const.of(on), lanes))
        got = padded(lanes, ex.ramp(0, stride, lanes), cond, size)
        want = np.where(np.arange(lanes) < on, 1 + stride * np.arange(lanes), -1)
        np.testing.assert_array_equal(got, want)
    off = ex.binary("ge", lane, ex.broadcast(Const.of(lanes - 1), lanes))
    got = padded(lanes, ex.ramp(FAR, stride, lanes), ex.binary("lt", lane, lane), 1)
    np.testing.assert_array_equal(got, np.full(lanes, -1))
    got = padded(lanes, ex.ramp(0, stride, lanes), off, stride * (lanes - 1) + 1)
    np.testing.assert_array_equal(got[-2:], [-1, 1 + stride * (lanes - 1)])


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


def test_a_store_makes_the_same_load_read_again() -> None:
    x, out = flat("x", "float32", 2), flat("out", "float32", 2)
    first = ex.load(x, [ZERO]) + 1.0
    body = seq(
        Store(out, (ZERO,), first),
        Store(x, (ZERO,), Const.of(10.0, "float32")),
        Store(out, (Const.of(1),), first),
    )
    result = np.zeros(2, np.float32)
    run(PrimFunc("k", (x, out), (), body), [np.zeros(2, np.float32), result])
    np.testing.assert_array_equal(result, [1, 11])


def test_a_loop_that_stores_reads_again_in_each_iteration() -> None:
    x, out = flat("x", "int32", 1), flat("out", "int32", 6)
    i = Var("i")
    value = ex.load(x, [ZERO])
    body = seq(
        Store(out, (ZERO,), value),
        For(
            i,
            Const.of(4),
            "serial",
            seq(Store(out, (i + 1,), value), Store(x, (ZERO,), value + 1)),
        ),
        Store(out, (Const.of(5),), value),
    )
    result = np.zeros(6, np.int32)
    run(PrimFunc("k", (x, out), (), body), [np.zeros(1, np.int32), result])
    np.testing.assert_array_equal(result, [0, 0, 1, 2, 3, 4])


def test_a_value_from_one_branch_is_not_used_in_the_other() -> None:
    n, out = flat("n", "int64", 1), flat("out", "int64", 3)
    i = ex.load(n, [ZERO])
    costly = i * 7 + 3
    body = seq(
        If(i < 5, Store(out, (ZERO,), costly), Store(out, (Const.of(1),), costly)),
        Store(out, (Const.of(2),), costly),
    )
    func = PrimFunc("k", (n, out), (), body)
    for value, want in ((1, [10, 0, 10]), (6, [0, 45, 45])):
        result = np.zeros(3, np.int64)
        run(func, [np.array([value]), result])
        np.testing.assert_array_equal(result, want)


def test_one_variable_in_two_loops_has_its_own_values() -> None:
    out = flat("out", "int64", 8)
    i = Var("i")
    body = seq(
        For(i, Const.of(1), "serial", Store(out, (i,), i * 3 + 5)),
        For(i, Const.of(4), "serial", Store(out, (i + 1,), i * 3 + 5)),
        For(i, Const.of(3), "serial", Store(out, (i + 5,), i * 3 + 5)),
    )
    result = np.zeros(8, np.int64)
    run(PrimFunc("k", (out,), (), body), [result])
    np.testing.assert_array_equal(result, [5, 5, 8, 11, 14, 5, 8, 11])


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


def test_unaligned_elements_in_the_middle_of_a_buffer() -> None:
    x, out = flat("x", "float32", 64), flat("out", "float32", 64)
    i = Var("i")
    body = For(
        i,
        Const.of(3),
        "serial",
        Store(out, (ex.ramp(i * 17 + 1, 1, 16),), ex.load(x, [ex.ramp(i * 13 + 3, 1, 16)])),
    )
    a, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(PrimFunc("k", (x, out), (), body), [a, result])
    want = np.zeros(64, np.float32)
    for k in range(3):
        want[k * 17 + 1 : k * 17 + 17] = a[k * 13 + 3 : k * 13 + 19]
    np.testing.assert_array_equal(result, want)


def test_local_buffers_hold_bool_and_half() -> None:
    x, out = flat("x", "float16", 8), flat("out", "float16", 8)
    keep = flat("keep", "bool", 8, "local")
    half = flat("half", "float16", 8, "local")
    i = ex.ramp(0, 1, 8)
    body = Allocate(
        keep,
        Allocate(
            half,
            seq(
                Store(keep, (i,), ex.load(x, [i]) > 2.0),
                Store(half, (i,), ex.load(x, [i]) * 2.0),
                Store(out, (i,), ex.select(ex.load(keep, [i]), ex.load(half, [i]), 0.0)),
            ),
        ),
    )
    a, result = np.arange(8).astype(np.float16), np.zeros(8, np.float16)
    run(PrimFunc("k", (x, out), (), body), [a, result])
    np.testing.assert_array_equal(result, np.where(a > 2, a * 2, 0))
