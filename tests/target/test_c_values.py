# SPDX-License-Identifier: Apache-2.0
"""Expressions printed as C mean what they mean as LLVM IR, bit by bit, for every type."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pytest

from tests.target.elements import FLOATS, INTS, pairs
from tests.target.kernel import flat, native, native_c, run
from treadle import te
from treadle.dtype import bits, is_float, to_numpy
from treadle.expr import nodes as ex
from treadle.expr.nodes import Binary, Const, Expr, Var
from treadle.loop.nodes import For, PrimFunc, Store, seq
from treadle.target.backend import backend_of
from treadle.te.intrinsics import Intrinsic, Operand

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def float_expressions(a: Expr, b: Expr) -> list[Expr]:
    found = [a + b, a - b, a * b, a / b, ex.minimum(a, b), ex.maximum(a, b)]
    found += [a < b, a <= b, a > b, a >= b, ex.binary("eq", a, b), ex.binary("ne", a, b)]
    found += [ex.call(n, a) for n in ("abs", "floor", "ceil", "trunc", "round", "isnan", "isinf")]
    found += [ex.call("sqrt", ex.call("abs", a)), ex.call("copysign", a, b)]
    found += [ex.call("fma", a, b, a)] if bits(a.dtype) > 16 else []
    found += [ex.select(a < b, a * b, b)]
    return found + [ex.cast(a, t) for t in (*INTS, *FLOATS, "bool") if t != a.dtype]


def int_expressions(a: Expr, b: Expr) -> list[Expr]:
    one = ex.select(ex.binary("eq", b, 0), Const.of(1, b.dtype), b)
    found = [a + b, a - b, a * b, a & b, a | b, a ^ b, ~a, ex.minimum(a, b), ex.maximum(a, b)]
    found += [ex.binary(op, a, one) for op in ("floordiv", "floormod", "truncdiv", "truncmod")]
    found += [ex.binary(op, a, Const.of(7, a.dtype)) for op in ("floordiv", "floormod")]
    found += [a << b, a >> b, a << 3, a >> 3, a < b, a >= b, ex.binary("eq", a, b)]
    found += [ex.call(n, a) for n in ("abs", "popcount", "clz")]
    twin = {32: "float32", 64: "float64"}.get(bits(a.dtype))
    found += [ex.call("bitcast", a, dtype=twin)] if twin else []
    return found + [ex.cast(a, t) for t in (*INTS, *FLOATS, "bool") if t != a.dtype]


def results(
    make: Callable[[Expr, Expr], list[Expr]], a: np.ndarray, b: np.ndarray, target: object
) -> list[np.ndarray]:
    """Return every expression of two arrays, computed by one kernel for the target."""
    i = Var("i")
    inputs = [flat(name, str(a.dtype), a.size) for name in ("a", "b")]
    values = make(ex.load(inputs[0], [i]), ex.load(inputs[1], [i]))
    outs = [flat(f"out{k}", v.dtype, a.size) for k, v in enumerate(values)]
    stores = [Store(o, (i,), v) for o, v in zip(outs, values, strict=True)]
    func = PrimFunc("k", (*inputs, *outs), (), For(i, Const.of(a.size), "serial", seq(*stores)))
    arrays = [np.zeros(a.size, to_numpy(v.dtype)) for v in values]
    run(func, [a, b, *arrays], target=target)  # type: ignore[arg-type]
    return arrays


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_every_operation_has_the_bits_of_llvm(dtype: str) -> None:
    a, b = pairs(dtype)
    make = float_expressions if is_float(dtype) else int_expressions
    shown = make(Var("a", dtype), Var("b", dtype))
    ours, theirs = results(make, a, b, native_c()), results(make, a, b, native())
    for e, mine, other in zip(shown, ours, theirs, strict=True):
        if is_float(e.dtype):  # the bits of a NaN are free
            nan = np.isnan(other)
            np.testing.assert_array_equal(np.isnan(mine), nan, err_msg=str(e))
            mine, other = mine[~nan], other[~nan]
        if is_float(e.dtype) and isinstance(e, Binary) and e.op in ("min", "max"):
            mine, other = mine + 0, other + 0  # either zero is the least of both
        np.testing.assert_array_equal(mine.view("u1"), other.view("u1"), err_msg=str(e))


def test_a_branch_not_taken_is_not_evaluated() -> None:
    """A lazy select guards a division by zero and a read outside, also of a shared operand."""
    x, out = flat("x", "int32", 4), flat("out", "int32", 8)
    i = Var("i")
    inside = ex.binary("lt", i, 4)
    far = ex.load(x, [i * 1_000_000_000])  # outside for every i but 0
    first = ex.select(ex.binary("eq", i, 0), far + far * far, ex.load(x, [i % 4]), lazy=True)
    quotient = ex.select(inside, Const.of(100, "int32") // ex.load(x, [i % 4]), 5, lazy=True)
    body = For(i, Const.of(8), "serial", Store(out, (i,), first + quotient))
    result = np.zeros(8, np.int32)
    values = np.array([1, 2, 3, 4], np.int32)
    run(PrimFunc("k", (x, out), (), body), [values, result], target=native_c())
    assert result.tolist() == [102, 52, 36, 29, 6, 7, 8, 9]


def test_names_that_c_reserves() -> None:
    """Buffers and variables may be called as the user likes."""
    x, out = flat("int", "float32", 4), flat("x y", "float32", 4)
    i, n = Var("for"), Var("env")
    body = For(i, n, "serial", Store(out, (i,), ex.load(x, [i]) + 1.0))
    result = np.zeros(4, np.float32)
    func = PrimFunc("main", (x, out), (n,), body)
    run(func, [np.ones(4, np.float32), result], [3], target=native_c())
    assert result.tolist() == [2, 2, 2, 0]


def test_an_intrinsic_is_its_text_or_its_meaning() -> None:
    def product(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return te.compute_one((), lambda: x[0] * y[0])

    operands = (Operand("x", "int32"), Operand("y", "int32"))
    written = Intrinsic("t.written", operands, product, c="{x} * {y} + 0")
    meant = Intrinsic("t.meant", operands, product)
    i = Var("i")
    a, b, out = (flat(n, "int32", 8) for n in ("a", "b", "out"))
    numbers = np.arange(8, dtype="int32")
    for record, text in ((written, "a[i] * b[i] + 0"), (meant, "a[i] * b[i]")):
        value = ex.apply(record, [ex.load(a, [i]), ex.load(b, [i])])
        func = PrimFunc(
            "k", (a, b, out), (), For(i, Const.of(8), "serial", Store(out, (i,), value))
        )
        lowered = backend_of(native_c()).lowering(native_c()).run(func)
        assert text in backend_of(native_c()).emit(lowered, native_c())
        got = np.zeros(8, "int32")
        run(lowered, [numbers, numbers + 1, got], target=native_c())
        np.testing.assert_array_equal(got, numbers * (numbers + 1))
