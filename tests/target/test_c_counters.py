# SPDX-License-Identifier: Apache-2.0
"""Indices of 32 bits on machines of 32 bits: where they fit, and only there."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from tests.target.kernel import flat, native_c, pool_of, run
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import For, Let, PrimFunc, Stmt, Store, seq
from treadle.target.c_counters import Counters
from treadle.target.c_text import emit
from treadle.target.parse import parse_target

ARM = parse_target("c -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a9 -num-cores=2")
ROWS, COLUMNS = 60_000, 3


def expressions(i: Expr, j: Expr, x: Expr) -> list[Expr]:
    """Expressions of i in [0, 60000), j in [0, 3) and an int32; many need more than 32 bits."""
    square, large = i * i, i * 40_000
    found = [i + j, square, square + square, square * i * i, large - square, i - j * 70_000]
    found += [square // 7, square % 1000, (j - 2) // 2, (j - 2) % 5, (large - square) // 3]
    found += [ex.binary(op, large, j - 3) for op in ("truncdiv", "truncmod", "floordiv")]
    found += [ex.minimum(large, 5) * 7, ex.maximum(large, square), ex.minimum(i, j) * large]
    found += [i << 4, i << 20, (i << 20) >> 18, i >> 40, large >> 3, i << j, Const.of(1) << i % 50]
    found += [i & 255, i | large, i ^ square, ~i, ex.call("abs", j - large)]
    found += [ex.select(i < 5, large, j) * 3, ex.select(large < square, i, j * i) + 2_147_000_000]
    found += [ex.call("popcount", j - 1), ex.call("clz", i + 1) * large]
    found += [ex.cast(x, "int64") * 3, ex.cast(x, "int64") // 3, ex.cast(large < square, "int64")]
    return found + [ex.cast(e, "int64") for e in (ex.cast(large, "int8"), ex.cast(large, "uint32"))]


def kernel(kind: str) -> tuple[PrimFunc, int]:
    """Return a kernel that stores every expression for some i and j."""
    i, j, k = Var("i"), Var("j"), Var("k")
    x = flat("x", "int32", ROWS)
    values = expressions(k, j, ex.load(x, [k]))
    outs = [flat(f"out{n}", v.dtype, ROWS * COLUMNS) for n, v in enumerate(values)]
    stores: Stmt = seq(
        *(Store(o, (k * COLUMNS + j,), v) for o, v in zip(outs, values, strict=True))
    )
    body = For(i, Const.of(ROWS), kind, Let(k, Const.of(ROWS - 1) - i,
               For(j, Const.of(COLUMNS), "serial", stores)))  # fmt: skip
    return PrimFunc("k", (x, *outs), (), body), len(outs)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_every_index_has_the_value_it_has_in_64_bits(kind: str) -> None:
    func, count = kernel(kind)
    x = np.random.default_rng(0).integers(-(2**31), 2**31, ROWS, np.int32)
    ours, theirs = ([np.zeros(ROWS * COLUMNS, np.int64) for _ in range(count)] for _ in range(2))
    env = pool_of(3, []) if kind == "parallel" else None
    run(func, [x, *ours], env=env, target=native_c(), written_for=ARM)
    run(func, [x, *theirs], target=native_c())
    shown = expressions(Var("i"), Var("j"), Var("x", "int32"))
    for e, mine, other in zip(shown, ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=str(e))


@pytest.mark.tiny
def test_what_is_not_known_to_fit_keeps_64_bits() -> None:
    """Sizes of a run do, what is a product of indices where it may be large, and a long loop."""
    x, n = flat("x", "float32", 8), Var("n")
    i, j, k, m = (Var(name) for name in "ijkm")
    place = (i * 65_536 + j) // 65_536 + k + m // n
    loops: Stmt = Store(x, (place,), Const.of(0, "float32"))
    for var, extent in ((m, n), (k, Const.of(1 << 31)), (j, Const.of(7)), (i, Const.of(40_000))):
        loops = For(var, extent, "serial", loops)
    text = emit(PrimFunc("far", (x,), (n,), loops), ARM)
    assert re.findall(r"for \((int\d+)_t (\w) =", text) == [
        ("int32", "i"), ("int32", "j"), ("int64", "k"), ("int64", "m"),
    ]  # fmt: skip
    assert "const int64_t n = dims[0];" in text
    assert "(int64_t)i * 65536" in text
    here = emit(PrimFunc("far", (x,), (n,), loops), native_c())
    assert "int32_t i" not in here


@pytest.mark.tiny
def test_a_variable_is_known_inside_of_its_loop_only() -> None:
    counters, i = Counters(narrows=True), Var("i")
    assert not counters.is_narrow(i)
    with counters.loop(i, Const.of(100)) as type_:
        assert type_ == "int32_t"
        assert counters.is_narrow(i * 1000)
        assert not counters.is_narrow(i * (1 << 30))
        with counters.loop(i, Const.of((1 << 31) - 1)) as inner:
            assert inner == "int32_t"
            assert not counters.is_narrow(i * 1000)
    assert not counters.is_narrow(i)
    with counters.loop(i, Const.of(1 << 31)) as type_:
        assert type_ == "int64_t"
    with Counters(narrows=False).loop(i, Const.of(2)) as type_:
        assert type_ == "int64_t"
