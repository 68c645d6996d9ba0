# SPDX-License-Identifier: Apache-2.0
"""Operators that work element by element, with NumPy broadcasting of their inputs.

Inputs of one operator have one element type, except where an operator says otherwise. Formulas of
half-precision elements run in float32 and are rounded once. Integer arithmetic wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import TensorType, Type, broadcast_shapes
from treadle.ops.axis_names import axes_like
from treadle.ops.elementwise_factory import (
    NumpyFunction,
    broadcast_size,
    compute_of,
    float_test,
    pair,
    pair_examples,
    unary,
)
from treadle.ops.numeric import (
    ANY,
    BOOL,
    INTEGERS,
    NUMBERS,
    SPECIAL_FLOATS,
    Attributes,
    Scalar,
    broadcast_index,
    check_elements,
    check_same_elements,
    dims_of,
    numpy_reference,
)


def _math(
    name: str,
    intrinsic: Callable[[Expr], Expr],
    function: Callable[[np.ndarray], Any],
    bounds: tuple[float, float] = (-4.0, 4.0),
    largest: float = math.inf,
    *,
    keeps_finite: bool = True,
) -> Operator[Any]:
    return unary(
        name,
        lambda a, x: intrinsic(x),
        lambda a, x: function(x),
        bounds=bounds,
        largest=largest,
        keeps_finite=keeps_finite,
    )


def vectorize(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of numbers as one of arrays, which gives float64."""
    table = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(table(x)).astype(np.float64)


_erf = vectorize(math.erf)


# Functions of one float.

exp = _math("exp", te.exp, np.exp, (-20.0, 20.0), keeps_finite=False)
log = _math("log", te.log, np.log, (0.01, 20.0), keeps_finite=False)
sqrt = _math("sqrt", te.sqrt, np.sqrt, (0.0, 20.0), keeps_finite=False)
rsqrt = _math("rsqrt", te.rsqrt, lambda x: 1.0 / np.sqrt(x), (0.01, 20.0), keeps_finite=False)
reciprocal = _math(
    "reciprocal", lambda x: 1.0 / x, lambda x: 1.0 / x, (0.1, 4.0), keeps_finite=False
)
sigmoid = _math("sigmoid", te.sigmoid, lambda x: 1.0 / (1.0 + np.exp(-x)), (-20.0, 20.0))
tanh = _math("tanh", te.tanh, np.tanh)
erf = _math("erf", te.erf, _erf)
sin = _math("sin", te.sin, np.sin, (-30.0, 30.0), largest=1e5)
cos = _math("cos", te.cos, np.cos, (-30.0, 30.0), largest=1e5)
tan = _math("tan", te.tan, np.tan, (-1.5, 1.5), largest=1e5)
asin = _math("asin", te.asin, np.arcsin, (-1.0, 1.0), keeps_finite=False)
acos = _math("acos", te.acos, np.arccos, (-1.0, 1.0), keeps_finite=False)
atan = _math("atan", te.atan, np.arctan)
sinh = _math("sinh", te.sinh, np.sinh, keeps_finite=False)
cosh = _math("cosh", te.cosh, np.cosh, keeps_finite=False)
asinh = _math("asinh", te.asinh, np.arcsinh)
acosh = _math("acosh", te.acosh, np.arccosh, (1.0, 9.0), keeps_finite=False)
atanh = _math("atanh", te.atanh, np.arctanh, (-0.99, 0.99), keeps_finite=False)


# Numbers: integers too.


def _of_floats(function: Callable[[Expr], Expr]) -> Scalar:
    return lambda a, x: function(x) if dt.is_float(x.dtype) else x


def _numpy_of_floats(function: Callable[[np.ndarray], Any]) -> NumpyFunction:
    return lambda a, x: function(x) if x.dtype.kind == "f" else x


def _sign(a: Attributes, x: Expr) -> Expr:
    one, zero = nodes.cast(1, x.dtype), nodes.cast(0, x.dtype)
    positive = nodes.select(x > zero, one, zero)
    if dt.is_unsigned(x.dtype):
        return positive
    signed = nodes.select(x < zero, nodes.cast(-1, x.dtype), positive)
    return nodes.select(te.isnan(x), x, signed) if dt.is_float(x.dtype) else signed


abs = unary(
    "abs",
    lambda a, x: x if dt.is_unsigned(x.dtype) else te.abs(x),
    lambda a, x: np.abs(x),
    NUMBERS,
)
negative = unary("negative", lambda a, x: -x, lambda a, x: -x, NUMBERS)
relu = unary("relu", lambda a, x: te.max(x, 0), lambda a, x: np.maximum(x, 0), NUMBERS)
sign = unary("sign", _sign, lambda a, x: np.sign(x), NUMBERS)
floor = unary("floor", _of_floats(te.floor), _numpy_of_floats(np.floor), NUMBERS)
ceil = unary("ceil", _of_floats(te.ceil), _numpy_of_floats(np.ceil), NUMBERS)
round = unary("round", _of_floats(te.round), _numpy_of_floats(np.rint), NUMBERS)
not_ = unary("not", lambda a, x: ~x, lambda a, x: np.logical_not(x), BOOL)
bitwise_not = unary("bitwise_not", lambda a, x: ~x, lambda a, x: np.invert(x), INTEGERS)


# clip, cast and the float tests.


@dataclass(frozen=True, slots=True)
class ClipAttrs(Attrs):
    """Bounds; None means unbounded. Where min > max the result is max. NaN stays NaN."""

    min: float | None = None
    max: float | None = None


def _check_clip(a: ClipAttrs) -> None:
    if any(bound is not None and math.isnan(bound) for bound in (a.min, a.max)):
        raise TypeMismatch(f"a bound is NaN in min={a.min}, max={a.max}")


def _integer_bounds(a: ClipAttrs, dtype: str) -> tuple[int, int]:
    """Return the bounds of an integer clip, clamped to the values of the type."""
    lo, hi = int(dt.min_value(dtype)), int(dt.max_value(dtype))
    low = lo if a.min is None or a.min <= lo else hi if a.min >= hi else math.ceil(a.min)
    high = hi if a.max is None or a.max >= hi else lo if a.max <= lo else math.floor(a.max)
    return low, high


def _clip(a: ClipAttrs, x: Expr) -> Expr:
    low, high = (a.min, a.max) if dt.is_float(x.dtype) else _integer_bounds(a, x.dtype)
    if low is not None:
        x = te.max(x, low)
    return x if high is None else te.min(x, high)


def _numpy_clip(a: ClipAttrs, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f":
        low, high = _integer_bounds(a, dt.from_numpy(x.dtype))
        return np.asarray(np.clip(x, x.dtype.type(low), x.dtype.type(high)))
    x = x if a.min is None else np.maximum(x, a.min)
    return x if a.max is None else np.minimum(x, a.max)


clip = unary(
    "clip",
    _clip,
    _numpy_clip,
    NUMBERS,
    attrs_type=ClipAttrs,
    variety=({}, {"min": 0.0, "max": 6.0}, {"max": 1.5}, {"min": -1.25}, {"min": 2.0, "max": 1.0}),
    check=_check_clip,
)


@dataclass(frozen=True, slots=True)
class CastAttrs(Attrs):
    """The element type to convert to."""

    dtype: str = "float32"


def _infer_cast(a: CastAttrs, x: Type) -> Type:
    return check_elements(x, ANY).with_dtype(dt.check_dtype(a.dtype))


def convert_elements(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return `array` converted to `dtype` by the rule of `expr.nodes.Cast`.

    Floats become integers by truncation, saturating at the type's ends, NaN as 0; integers wrap;
    anything but zero becomes True (NaN too).
    """
    target = dt.to_numpy(dtype)
    if dtype == "bool":
        return np.asarray(array != 0)
    if not (dt.is_integer(dtype) and dt.is_float(dt.from_numpy(array.dtype))):
        with np.errstate(all="ignore"):
            return array.astype(target)
    whole = np.trunc(array.astype(np.float64))
    lo, hi = int(dt.min_value(dtype)), int(dt.max_value(dtype))
    inside = (whole >= lo) & (whole < float(hi + 1))
    result = np.asarray(np.where(inside, whole, 0.0)).astype(target)
    result = np.where(whole >= float(hi + 1), np.array(hi, target), result)
    return np.asarray(np.where(whole < lo, np.array(lo, target), result))


_CASTS = (
    ("float32", "int32"), ("float32", "uint8"), ("float32", "bool"), ("float32", "float16"),
    ("float32", "bfloat16"), ("float32", "float64"), ("float64", "float32"), ("float64", "int64"),
    ("float16", "float32"), ("bfloat16", "float32"), ("int64", "float32"), ("int64", "int32"),
    ("int32", "uint8"), ("int32", "int8"), ("uint8", "float32"), ("int8", "int64"),
    ("bool", "float32"), ("bool", "int64"), ("float32", "float32"), ("uint64", "float32"),
    ("int32", "bool"), ("uint16", "uint32"), ("int16", "float16"), ("float32", "uint64"),
)  # fmt: skip

cast: Operator[CastAttrs] = register(
    Operator(
        name="cast",
        infer=_infer_cast,
        reference=lambda a, x: convert_elements(x, a.dtype),
        compute=lambda a, x: te.compute_one(
            x.shape, lambda *i: nodes.cast(x[i], a.dtype), name="cast", axes=axes_like(x.ndim, x)
        ),
        attrs_type=CastAttrs,
        fusion=Fusion.ELEMENTWISE,
        keeps_finite=True,
        examples=(
            *(Example(((4, 5),), {"dtype": b}, (a,), -300, 300) for a, b in _CASTS),
            Example(((),), {"dtype": "int32"}),
            *(
                Example(
                    SPECIAL_FLOATS.shape and (SPECIAL_FLOATS.shape,),
                    {"dtype": b},
                    inputs={0: SPECIAL_FLOATS},
                )
                for b in ("int8", "uint8", "int32", "uint32", "int64", "bool", "float16")
            ),
        ),
        flops=broadcast_size,
    )
)


@dataclass(frozen=True, slots=True)
class IsInfAttrs(Attrs):
    """Which infinities count."""

    detect_negative: bool = True
    detect_positive: bool = True


def _isinf(a: IsInfAttrs, x: Expr) -> Expr:
    found = [
        x == sign
        for sign, wanted in ((-math.inf, a.detect_negative), (math.inf, a.detect_positive))
        if wanted
    ]
    return te.any(*found)


def _numpy_isinf(a: IsInfAttrs, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return np.asarray((a.detect_negative & (x == -np.inf)) | (a.detect_positive & (x == np.inf)))


isnan = float_test(
    "isnan", lambda a, x: te.isnan(x), lambda a, x: np.asarray(np.isnan(x.astype(np.float64)))
)
isinf = float_test(
    "isinf",
    _isinf,
    _numpy_isinf,
    IsInfAttrs,
    (
        {},
        {"detect_negative": False},
        {"detect_positive": False},
        {"detect_negative": False, "detect_positive": False},
    ),
)


# Two inputs and more.


def _divisor(x: Expr, y: Expr) -> Expr:
    """Return `y` as a divisor that no machine traps on: 0 (and -1, for the smallest x) become 1."""
    bad = y == 0
    if dt.is_signed(x.dtype):
        bad = bad | (y == -1)
    return nodes.select(bad, 1, y)


def _divide(a: Attributes, x: Expr, y: Expr) -> Expr:
    if dt.is_float(x.dtype):
        return x / y
    quotient = nodes.select(y == 0, 0, nodes.truncdiv(x, _divisor(x, y)))
    return nodes.select(y == -1, -x, quotient) if dt.is_signed(x.dtype) else quotient


def _numpy_divide(a: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    below, rest = np.divmod(x, y)  # by zero: 0, 0
    return np.asarray(below + ((rest != 0) & ((x < 0) != (y < 0))).astype(x.dtype))


@dataclass(frozen=True, slots=True)
class ModAttrs(Attrs):
    """The remainder has the sign of the divisor, or with `fmod` that of the dividend."""

    fmod: bool = False


def _mod(a: ModAttrs, x: Expr, y: Expr) -> Expr:
    if not dt.is_float(x.dtype):
        divisor = _divisor(x, y)
        return nodes.truncmod(x, divisor) if a.fmod else te.floormod(x, divisor)
    rest = te.fmod(x, y)
    if a.fmod:
        return rest
    moved = nodes.select((rest < 0) == (y < 0), rest, rest + y)
    return nodes.select(rest == 0, nodes.call("copysign", rest, y), moved)


def _numpy_mod(a: ModAttrs, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(np.fmod(x, y) if a.fmod else np.mod(x, y))


add = pair("add", lambda a, x, y: x + y, lambda a, x, y: x + y)
subtract = pair("subtract", lambda a, x, y: x - y, lambda a, x, y: x - y)
multiply = pair("multiply", lambda a, x, y: x * y, lambda a, x, y: x * y)
divide = pair("divide", _divide, _numpy_divide, keeps_finite=False)
"""Integers truncate; an integer divided by zero is 0."""
mod = pair(
    "mod",
    _mod,
    _numpy_mod,
    attrs_type=ModAttrs,
    variety=({}, {"fmod": True}),
    bounds=(-9.0, 9.0),
    keeps_finite=False,
)
"""The remainder of an integer by zero is 0."""
minimum = pair("minimum", lambda a, x, y: te.min(x, y), lambda a, x, y: np.minimum(x, y))
maximum = pair("maximum", lambda a, x, y: te.max(x, y), lambda a, x, y: np.maximum(x, y))


def _power(a: Attrs, x: Expr, y: Expr) -> Expr:
    if dt.is_float(x.dtype):
        return te.power(x, nodes.cast(y, x.dtype))
    if dt.is_float(y.dtype):
        return nodes.cast(te.power(nodes.cast(x, "float64"), nodes.cast(y, "float64")), x.dtype)
    y = nodes.cast(y, x.dtype)
    if dt.is_unsigned(x.dtype):
        return te.power(x, y)
    odd = nodes.select((y & 1) == 1, -1, 1).astype(x.dtype)
    inverse = nodes.select(x == 1, 1, nodes.select(x == -1, odd, 0).astype(x.dtype))
    return nodes.select(y < 0, inverse.astype(x.dtype), te.power(x, te.max(y, 0)))


def _numpy_power(a: Attrs, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.asarray(np.power(x, y.astype(np.float64)))
    if y.dtype.kind == "f":
        real = np.power(x.astype(np.float64), y)
        return convert_elements(np.asarray(real), dt.from_numpy(x.dtype))
    y = y.astype(x.dtype)
    odd = np.where(y & 1, -1, 1)
    inverse = np.where(x == 1, 1, np.where(x == -1, odd, 0))
    return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))


def _infer_power(a: Attrs, x: Type, y: Type) -> Type:
    base = check_elements(x, NUMBERS)
    exponent = check_elements(y, NUMBERS, "the exponent")
    return base.with_shape(broadcast_shapes(base.shape, exponent.shape))


power: Operator[Attrs] = register(
    Operator(
        name="power",
        infer=_infer_power,
        reference=numpy_reference(_numpy_power),
        compute=compute_of("power", _power),
        fusion=Fusion.BROADCAST,
        examples=(
            *pair_examples(("float32", "float64"), (0.1, 4.0), {}),
            *pair_examples(("int32", "int64", "uint8"), (-5.0, 9.0), {}),
            Example(((5, 4), ()), {}, ("float32", "int64"), -3.0, 4.0),
            Example(((5, 4), (4,)), {}, ("float32", "int32"), -3.0, 4.0),
            Example(((5, 4), ()), {}, ("int32", "float32"), 0.0, 5.0),
            Example(((5, 4), ()), {}, ("int64", "int32"), -3.0, 4.0),
        ),
        flops=broadcast_size,
    )
)
"""The result has the base's type. Integer powers wrap; negative ones truncate towards zero."""


# Comparisons and logic.

equal = pair("equal", lambda a, x, y: x == y, lambda a, x, y: x == y, ANY, to_bool=True)
not_equal = pair("not_equal", lambda a, x, y: x != y, lambda a, x, y: x != y, ANY, to_bool=True)
less = pair("less", lambda a, x, y: x < y, lambda a, x, y: x < y, to_bool=True)
less_equal = pair("less_equal", lambda a, x, y: x <= y, lambda a, x, y: x <= y, to_bool=True)
greater = pair("greater", lambda a, x, y: x > y, lambda a, x, y: x > y, to_bool=True)
greater_equal = pair("greater_equal", lambda a, x, y: x >= y, lambda a, x, y: x >= y, to_bool=True)
logical_and = pair("logical_and", lambda a, x, y: x & y, lambda a, x, y: x & y, BOOL)
logical_or = pair("logical_or", lambda a, x, y: x | y, lambda a, x, y: x | y, BOOL)
logical_xor = pair("logical_xor", lambda a, x, y: x != y, lambda a, x, y: x ^ y, BOOL)


# Bits.


def _in_width(x: Expr, count: Expr) -> Expr:
    found = count < dt.bits(x.dtype)
    return found if dt.is_unsigned(x.dtype) else found & (count >= 0)


def _shift_left(a: Attributes, x: Expr, y: Expr) -> Expr:
    fits = _in_width(x, y)
    return nodes.select(fits, x << nodes.select(fits, y, 0), 0)


def _shift_right(a: Attributes, x: Expr, y: Expr) -> Expr:
    fits = _in_width(x, y)
    if dt.is_signed(x.dtype):
        return x >> nodes.select(fits, y, dt.bits(x.dtype) - 1)
    return nodes.select(fits, x >> nodes.select(fits, y, 0), 0)


bitwise_and = pair("bitwise_and", lambda a, x, y: x & y, lambda a, x, y: x & y, INTEGERS)
bitwise_or = pair("bitwise_or", lambda a, x, y: x | y, lambda a, x, y: x | y, INTEGERS)
bitwise_xor = pair("bitwise_xor", lambda a, x, y: x ^ y, lambda a, x, y: x ^ y, INTEGERS)
shift_left = pair(
    "shift_left", _shift_left, lambda a, x, y: np.left_shift(x, y), INTEGERS, bounds=(-3.0, 70.0)
)
shift_right = pair(
    "shift_right", _shift_right, lambda a, x, y: np.right_shift(x, y), INTEGERS, bounds=(-3.0, 70.0)
)
"""Shifts by the width or more (or by a negative count) leave zeros, or copies of the sign."""


def _infer_where(a: Attrs, cond: Type, x: Type, y: Type) -> Type:
    test = check_elements(cond, BOOL, "the condition")
    then, other = check_elements(x, ANY), check_elements(y, ANY)
    dtype = check_same_elements(then, other)
    return TensorType(broadcast_shapes(test.shape, then.shape, other.shape), dtype)


where: Operator[Attrs] = register(
    Operator(
        name="where",
        infer=_infer_where,
        reference=lambda a, cond, x, y: np.where(cond, x, y),
        compute=lambda a, *xs: te.compute_one(
            broadcast_shapes(*(dims_of(x) for x in xs)),
            lambda *i: nodes.select(*(x[broadcast_index(x, i)] for x in xs)),
            name="where",
        ),
        fusion=Fusion.BROADCAST,
        keeps_finite=True,
        examples=(
            Example(((3, 4), (3, 4), (3, 4)), {}, ("bool", "float32", "float32")),
            Example(((4,), (3, 1), ()), {}, ("bool", "float32", "float32")),
            Example(((), (2, 3), (3,)), {}, ("bool", "int64", "int64"), -9, 9),
            Example(((), (), ()), {}, ("bool", "float64", "float64")),
            Example(((5,), (5,), (5,)), {}, ("bool", "bool", "bool")),
            Example(((5,), (5,), (1,)), {}, ("bool", "uint8", "uint8"), 0, 200),
            Example(((5,), (5,), (1,)), {}, ("bool", "float16", "float16")),
        ),
    )
)
