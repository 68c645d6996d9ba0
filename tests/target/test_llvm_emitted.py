# SPDX-License-Identifier: Apache-2.0
"""Values are used again where they still hold, and computed again where they do not."""

from __future__ import annotations

import numpy as np

from tests.target.kernel import flat, run
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop.nodes import For, If, PrimFunc, Store, seq

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
