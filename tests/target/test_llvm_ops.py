# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of generated code against NumPy: each operation, dtype and vector width."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.elements import FLOATS, INTS, LANES, apply, pairs, same, samples, wrapped
from tests.target.kernel import flat
from treadle.dtype import to_numpy
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr
from treadle.loop.nodes import PrimFunc, Store
from treadle.target.llvm_ir import emit
from treadle.target.parse import parse_target


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max"])
def test_float_binary(op: str, dtype: str, lanes: int) -> None:
    a, b = pairs(dtype)
    reference = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
        "min": np.minimum, "max": np.maximum,
    }[op]  # fmt: skip
    with np.errstate(all="ignore"):
        want = reference(a, b)
    same(apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes), want)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("op", ["min", "max"])
def test_float_extreme_of_a_constant_keeps_nan(op: str, first: bool, lanes: int) -> None:
    x = samples("float32")
    limit = ex.convert(2.0, "float32")

    def value(e: Expr) -> Expr:
        return ex.binary(op, limit, e) if first else ex.binary(op, e, limit)  # type: ignore[arg-type]

    reference = np.minimum if op == "min" else np.maximum
    same(apply(value, x, lanes=lanes), reference(x, np.float32(2.0)))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "bool"])
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_compare(op: str, dtype: str, lanes: int) -> None:
    a, b = pairs("uint8") if dtype == "bool" else pairs(dtype)
    a, b = (a % 2 == 1, b % 2 == 1) if dtype == "bool" else (a, b)
    reference = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }[op]  # fmt: skip
    with np.errstate(invalid="ignore"):
        want = reference(a, b)
    same(apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes), want)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [1, 8])
def test_logic(lanes: int) -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    same(apply(lambda x, y: ex.binary("and", x, y), a, b, lanes=lanes), a & b)
    same(apply(lambda x, y: ex.binary("or", x, y), a, b, lanes=lanes), a | b)
    same(apply(lambda x: ex.call("not", x), a, lanes=lanes), ~a)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["sqrt", "floor", "ceil", "trunc", "round", "abs"])
def test_float_call(name: str, dtype: str, lanes: int) -> None:
    x = samples(dtype)
    reference = {"round": np.rint}.get(name, getattr(np, name))
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64)).astype(to_numpy(dtype))
    got = apply(lambda e: ex.call(name, e), x, lanes=lanes)
    same(got, want)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(x)], np.signbit(want)[~np.isnan(x)])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_without_an_instruction(name: str, dtype: str) -> None:
    baseline = parse_target("llvm -mcpu=x86-64 -num-cores=1")
    rng = np.random.default_rng(3)
    x = np.concatenate([samples(dtype), rng.normal(0, 1e3, 400), rng.normal(0, 1e8, 100)])
    x = np.concatenate([x, [0.49999997, -0.49999997, 0.5, -0.5, 4503599627370497.5]]).astype(dtype)
    reference = {"round": np.rint}.get(name, getattr(np, name))
    got = apply(lambda e: ex.call(name, e), x, lanes=4, target=baseline)
    same(got, reference(x))
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(x)], np.signbit(x)[~np.isnan(x)])


def test_fma_rounds_once() -> None:
    a = np.array([1 + 2.0**-12, 3.0], np.float32)
    b = np.array([1 + 2.0**-12, 5.0], np.float32)
    c = np.array([-(1 + 2.0**-11), 2.0], np.float32)
    for lanes in (1, 8):
        got = apply(lambda x, y, z: ex.call("fma", x, y, z), a, b, c, lanes=lanes)
        same(got, np.array([2.0**-24, 17.0], np.float32))


def test_a_product_and_a_sum_are_not_fused() -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    got = apply(lambda x, y: x * y - (1 + 2.0**-11), a, a, lanes=8)
    same(got, np.array([0.0], np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_classes_and_signs(dtype: str) -> None:
    x, y = pairs(dtype)
    for lanes in (1, 8):
        same(apply(lambda e: ex.call("isnan", e), x, lanes=lanes), np.isnan(x))
        same(apply(lambda e: ex.call("isinf", e), x, lanes=lanes), np.isinf(x))
        same(apply(lambda e, f: ex.call("copysign", e, f), x, y, lanes=lanes), np.copysign(x, y))


@pytest.mark.parametrize("dtype", INTS)
def test_bit_counting_and_abs(dtype: str) -> None:
    x = samples(dtype)
    width = x.itemsize * 8
    bits = [int(v) & ((1 << width) - 1) for v in x]
    for lanes in (1, 8):
        same(
            apply(lambda e: ex.call("popcount", e), x, lanes=lanes),
            np.array([v.bit_count() for v in bits], dtype),
        )
        same(
            apply(lambda e: ex.call("clz", e), x, lanes=lanes),
            np.array([width - v.bit_length() for v in bits], dtype),
        )
        same(
            apply(lambda e: ex.call("abs", e), x, lanes=lanes),
            wrapped([abs(int(v)) for v in x], dtype),
        )


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "int32"), ("uint32", "float32"), ("float16", "int16"), ("int16", "bfloat16"),
     ("float64", "uint64"), ("int8", "uint8")],
)  # fmt: skip
def test_bitcast(source: str, target: str) -> None:
    x = samples(source)
    for lanes in (1, 4):
        got = apply(lambda e: ex.call("bitcast", e, dtype=target), x, lanes=lanes)
        assert got.tobytes() == x.tobytes()


def test_unexpanded_functions_are_refused() -> None:
    x, out = flat("x", "float32", 4), flat("out", "float32", 4)
    zero = Const.of(0)
    body = Store(out, (zero,), ex.call("exp", ex.load(x, [zero])))
    with pytest.raises(InternalError, match="'exp' reaches code generation unexpanded"):
        emit(PrimFunc("k", (x, out), (), body), parse_target("llvm"))
