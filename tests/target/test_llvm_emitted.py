# SPDX-License-Identifier: Apache-2.0
"""Values are used again where they still hold, and computed again where they do not."""

from __future__ import annotations

import numpy as np

from tests.target.kernel import FAR, flat, native, run
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop.nodes import For, If, PrimFunc, Store, seq
from treadle.target.llvm_ir import emit

ZERO = Const.of(0)


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


def test_what_is_the_same_in_all_iterations_stands_before_the_loop() -> None:
    x, out = flat("x", "float32", 6), flat("out", "float32", 24)
    i, j = Var("i"), Var("j")
    root = ex.call("sqrt", ex.load(x, [i // 3]))
    inner = For(j, Const.of(4), "serial", Store(out, (i // 3 * 12 + i % 3 * 4 + j,), root * i))
    func = PrimFunc("k", (x, out), (), For(i, Const.of(6), "serial", inner))
    lines = emit(func, native()).splitlines()
    (first, *_, last) = [n for n, line in enumerate(lines) if "phi i64" in line]
    for operation in ("udiv", "urem", "load float", "@llvm.sqrt.f32(float"):
        places = [n for n, line in enumerate(lines) if operation in line and "declare" not in line]
        assert all(first < n < last for n in places), operation
    result = np.zeros(24, np.float32)
    run(func, [np.arange(6, dtype=np.float32), result])
    np.testing.assert_array_equal(result, [i // 3 * i for i in range(6) for _ in range(4)])


def test_what_stands_before_a_loop_without_iterations_is_not_used_after_it() -> None:
    n, out = Var("n"), flat("out", "int64", 12)
    i, j = Var("i"), Var("j")
    inner = For(j, n, "serial", Store(out, (i * 3 + j,), i * 5 + j))
    body = seq(inner, Store(out, (i * 3 + 2,), i * 5))
    func = PrimFunc("k", (out,), (n,), For(i, Const.of(4), "serial", body))
    for count, want in ((0, [0, 0, 5]), (2, [5, 6, 5])):
        result = np.zeros(12, np.int64)
        run(func, [result], [count])
        np.testing.assert_array_equal(result[3:6], want)


def test_a_load_under_a_condition_is_not_moved_before_the_loop() -> None:
    place, x, out = flat("place", "int64", 1), flat("x", "int64", 4), flat("out", "int64", 4)
    i, at = Var("i"), ex.load(place, [ZERO])
    store = If(at < 4, Store(out, (i,), ex.load(x, [at]) + i))
    func = PrimFunc("k", (place, x, out), (), For(i, Const.of(4), "serial", store))
    for number, want in ((2, [7, 8, 9, 10]), (FAR, [0, 0, 0, 0])):
        result = np.zeros(4, np.int64)
        run(func, [np.array([number]), np.array([5, 6, 7, 8]), result])
        np.testing.assert_array_equal(result, want)


def test_a_load_stays_in_the_loop_that_changes_one_of_its_places() -> None:
    x, out = flat("x", "int64", 3), flat("out", "int64", 6)
    i, j = Var("i"), Var("j")
    inner = For(j, Const.of(2), "serial", Store(out, (i * 2 + j,), ex.load(x, [ZERO]) + j))
    body = seq(inner, Store(x, (ZERO,), ex.load(x, [ZERO]) * 10))
    func = PrimFunc("k", (x, out), (), For(i, Const.of(3), "serial", body))
    result = np.zeros(6, np.int64)
    run(func, [np.array([1, 0, 0]), result])
    np.testing.assert_array_equal(result, [1, 2, 10, 11, 100, 101])


def test_a_division_by_a_size_stands_before_the_loop_but_not_before_its_condition() -> None:
    m, n, out = Var("m"), Var("n"), flat("out", "int64", 12)
    i, j = Var("i"), Var("j")
    inner = For(j, Const.of(3), "serial", Store(out, (i * 3 + j,), (i + 7) // m + j))
    body = For(i, Const.of(4), "serial", If(n > 0, inner))
    func = PrimFunc("k", (out,), (m, n), body)
    lines = emit(func, native()).splitlines()
    outer, _, last = [n for n, line in enumerate(lines) if line.startswith(("loop", "then"))]
    (division,) = [n for n, line in enumerate(lines) if "udiv" in line]
    assert outer < division < last
    for sizes, want in (((2, 1), [4, 5, 6]), ((0, 0), [0, 0, 0])):
        result = np.zeros(12, np.int64)
        run(func, [result], sizes)
        np.testing.assert_array_equal(result[3:6], want)
