# SPDX-License-Identifier: Apache-2.0
"""Constant folding against NumPy, for every element type."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.te_eval import convert
from treadle.dtype import NAMES, is_float, is_integer, is_signed, max_value, min_value, to_numpy
from treadle.expr.fold import fold_binary, fold_call, fold_cast
from treadle.expr.nodes import Binary, Call, Cast, Const, binary, call
from treadle.expr.simplify import simplify

pytestmark = pytest.mark.tiny

INTEGERS = [n for n in NAMES if is_integer(n)]
FLOATS = [n for n in NAMES if is_float(n)]
NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum,
    "max": np.maximum, "floordiv": np.floor_divide, "floormod": np.mod, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "truncmod": np.fmod, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
INT_OPS = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "truncmod", *COMPARE)
BIT_OPS = ("bitand", "bitor", "bitxor")
FLOAT_OPS = ("add", "sub", "mul", "div", "min", "max", *COMPARE)


def _samples(dtype: str) -> list[int | float]:
    if is_integer(dtype):
        low, high = int(min_value(dtype)), int(max_value(dtype))
        return sorted({low, low + 1, -7, -1, 0, 1, 2, 3, 100, high // 3, high - 1, high})
    small = {"float16": 6e-8, "bfloat16": 1e-40, "float32": 1e-45, "float64": 5e-324}[dtype]
    large = {"float16": 6.5e4, "bfloat16": 3e38, "float32": 3.4e38, "float64": 1.7e308}[dtype]
    values = [0.0, 1.0, 1 / 3, 0.1, 2.5, 77.7, small, large, math.inf]
    return [*values, *(-v for v in values), math.nan]


def _numpy(op: str, a: Const, b: Const) -> object:
    kind = to_numpy(a.dtype)
    with np.errstate(all="ignore"):
        return NUMPY[op](np.array(a.value, kind), np.array(b.value, kind))


def _agree(found: Const | None, expected: object) -> bool:
    assert found is not None
    want = np.asarray(expected)
    got = np.array(found.value, to_numpy(found.dtype))
    if want.dtype.name == "bool" or not is_float(want.dtype.name):
        return bool(got == want)
    if np.isnan(want) or np.isnan(got):
        return bool(np.isnan(want) and np.isnan(got))
    return bool(got == want) and bool(np.signbit(got) == np.signbit(want))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    for a, b in itertools.product(_samples(dtype), repeat=2):
        x, y = Const.of(a, dtype), Const.of(b, dtype)
        for op in (*INT_OPS, *BIT_OPS):
            e = binary(op, x, y)
            assert isinstance(e, Binary)
            if y.value == 0 and op in ("floordiv", "floormod", "truncmod"):
                assert fold_binary(e) is None
            elif x.value == min_value(dtype) and y.value == -1 and op == "floordiv":
                assert fold_binary(e) is x  # wraps
            else:
                assert _agree(fold_binary(e), _numpy(op, x, y)), e


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_rounded_once(dtype: str) -> None:
    for a, b in itertools.product(_samples(dtype), repeat=2):
        x, y = Const.of(a, dtype), Const.of(b, dtype)
        for op in FLOAT_OPS:
            if op in ("min", "max") and a == b == 0:
                continue  # which zero is up to NumPy there, and below to us
            e = binary(op, x, y)
            assert isinstance(e, Binary)
            assert _agree(fold_binary(e), _numpy(op, x, y)), e


def test_extremes_order_the_zeros() -> None:
    plus, minus = Const.of(0.0, "float32"), Const.of(-0.0, "float32")
    for a, b in ((plus, minus), (minus, plus)):
        assert simplify(binary("min", a, b)) is minus
        assert simplify(binary("max", a, b)) is plus


@pytest.mark.parametrize("dtype", INTEGERS)
def test_truncated_division_and_shifts(dtype: str) -> None:
    for a, b in itertools.product(_samples(dtype), repeat=2):
        x, y = Const.of(a, dtype), Const.of(b, dtype)
        quotient = fold_binary(binary("truncdiv", x, y))
        rest = fold_binary(binary("truncmod", x, y))
        if y.value == 0:
            assert quotient is None
        else:
            assert quotient is not None
            assert rest is not None
            whole = quotient.value * y.value + rest.value
            assert Const.of(whole, dtype) is x
            assert abs(rest.value) < abs(y.value)
    for a, count in itertools.product(_samples(dtype), (0, 1, 7)):
        x, y = Const.of(a, dtype), Const.of(count, dtype)
        kind = to_numpy(dtype)
        left = np.left_shift(np.array(x.value, kind), np.array(count, kind))
        right = np.right_shift(np.array(x.value, kind), np.array(count, kind))
        assert _agree(fold_binary(binary("shl", x, y)), left)
        assert _agree(fold_binary(binary("shr", x, y)), right)
    too_far = binary("shl", Const.of(1, dtype), Const.of(64, dtype))
    assert isinstance(too_far, Binary)
    assert fold_binary(too_far) is None


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_casts(source: str, target: str) -> None:
    for value in [False, True] if source == "bool" else _samples(source):
        x = Const.of(value, source)
        with np.errstate(all="ignore"):
            expected = convert(np.array(x.value, to_numpy(source)), target)
        found = fold_cast(Cast(x, target, 1))
        assert _agree(found, expected), f"{x} to {target}: {found}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_float_functions(dtype: str) -> None:
    functions = {
        "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
        "sqrt": np.sqrt, "isnan": np.isnan, "isinf": np.isinf,
    }  # fmt: skip
    for value in (*_samples(dtype), 0.5, 1.5, -0.5, -2.5):
        x = Const.of(value, dtype)
        for name, function in functions.items():
            e = call(name, x)
            assert isinstance(e, Call)
            with np.errstate(all="ignore"):
                assert _agree(fold_call(e), function(np.array(x.value, to_numpy(dtype)))), e


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(dtype: str) -> None:
    width = np.dtype(dtype).itemsize * 8
    for value in _samples(dtype):
        x = Const.of(value, dtype)
        pattern = int(x.value) % (1 << width)
        assert simplify(call("popcount", x)) is Const.of(bin(pattern).count("1"), dtype)
        assert simplify(call("clz", x)) is Const.of(width - pattern.bit_length(), dtype)
        if is_signed(dtype):
            assert simplify(call("abs", x)) is Const.of(abs(int(x.value)), dtype)


def test_bitcast() -> None:
    one = Const.of(1.0, "float32")
    assert simplify(call("bitcast", one, dtype="int32")) is Const.of(0x3F800000, "int32")
    word = Const.of(0xBFF0000000000000, "uint64")
    assert simplify(call("bitcast", word, dtype="float64")) is Const.of(-1.0, "float64")
    nan = Const.of(0x7FC00000, "uint32")
    left = call("bitcast", nan, dtype="float32")
    assert simplify(left) is left  # the payload of a NaN is kept


def test_transcendental_functions_are_left_to_the_machine() -> None:
    e = call("exp", Const.of(1.0, "float32"))
    assert simplify(e) is e
