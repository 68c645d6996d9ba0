# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on constants with the exact semantics of the nodes; undefined cases stay as they are.

Floats of up to 32 bits are computed in double precision and rounded once more: for + - * / and
sqrt that gives the correctly rounded result (53 >= 2 * 24 + 2 bits).
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping

from treadle.dtype import bits, is_float, is_integer, is_signed, max_value, min_value
from treadle.expr.nodes import Binary, Call, Cast, Const
from treadle.expr.vocabulary import COMPARE_OPS

Number = int | float | bool

_COMPARE: Mapping[str, Callable[[Number, Number], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def fold_binary(e: Binary) -> Const | None:
    """Return the value of an operation on two constants, None where it is not defined."""
    if not isinstance(e.a, Const) or not isinstance(e.b, Const):
        return None
    a, b, dtype = e.a.value, e.b.value, e.a.dtype
    if e.op in COMPARE_OPS:
        return Const.of(_COMPARE[e.op](a, b), "bool")
    if is_float(dtype):
        return _constant(_float_value(e.op, float(a), float(b)), dtype)
    if dtype == "bool":
        return _constant(_bool_value(e.op, bool(a), bool(b)), dtype)
    return _constant(_int_value(e.op, int(a), int(b), bits(dtype)), dtype)


def _constant(value: Number | None, dtype: str) -> Const | None:
    return None if value is None else Const.of(value, dtype)


def _float_value(op: str, a: float, b: float) -> float | None:
    if op in ("min", "max"):
        return _float_extreme(op, a, b)
    if op == "div":
        return _float_quotient(a, b)
    rule = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}.get(op)
    return None if rule is None else float(rule(a, b))


def _float_extreme(op: str, a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if a == b:  # of two zeros, minus zero is the smaller
        negative = math.copysign(1.0, a) < 0
        return a if negative == (op == "min") else b
    return min(a, b) if op == "min" else max(a, b)


def _float_quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _bool_value(op: str, a: bool, b: bool) -> bool | None:
    if op in ("and", "bitand", "min", "mul"):
        return a and b
    if op in ("or", "bitor", "max"):
        return a or b
    return a != b if op == "bitxor" else None


def _int_value(op: str, a: int, b: int, width: int) -> int | None:
    if op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        return None if b == 0 else _DIVIDE[op](a, b)
    if op in ("shl", "shr"):
        if not 0 <= b < width:
            return None
        return a << b if op == "shl" else a >> b
    rule = _INT.get(op)
    return None if rule is None else rule(a, b)


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_DIVIDE: Mapping[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
}
_INT: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}


def fold_cast(e: Cast) -> Const | None:
    """Return the value of a converted constant: truncated and saturated from float to integer."""
    if not isinstance(e.value, Const):
        return None
    value = e.value.value
    if isinstance(value, float) and is_integer(e.dtype):
        if math.isnan(value):
            return Const.of(0, e.dtype)
        low, high = int(min_value(e.dtype)), int(max_value(e.dtype))
        whole = math.trunc(value) if math.isfinite(value) else (low if value < 0 else high)
        return Const.of(min(max(whole, low), high), e.dtype)
    return Const.of(value, e.dtype)


def fold_call(e: Call) -> Const | None:
    """Return the value of an exact intrinsic of constants; others are left to the machine."""
    values = [a.value for a in e.args if isinstance(a, Const)]
    if len(values) != len(e.args):
        return None
    dtype = e.args[0].dtype
    if e.name == "bitcast":
        return _fold_bitcast(e, values[0])
    if is_float(dtype):
        return _constant(_float_call(e.name, [float(v) for v in values]), e.dtype)
    return _constant(_int_call(e.name, int(values[0]), dtype), e.dtype)


def _float_call(name: str, args: list[float]) -> Number | None:
    x = args[0]
    if name == "isnan":
        return math.isnan(x)
    if name == "isinf":
        return math.isinf(x)
    if name == "abs":
        return abs(x)
    if name == "copysign":
        return math.copysign(x, args[1])
    if name == "sqrt":
        return math.sqrt(x) if x >= 0 else math.nan
    rule = _ROUND.get(name)
    if rule is None:
        return None
    return math.copysign(float(rule(x)), x) if math.isfinite(x) else x


_ROUND: Mapping[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
}


def _int_call(name: str, x: int, dtype: str) -> Number | None:
    if name == "not":
        return not x
    if name in ("isnan", "isinf"):
        return False
    if name == "abs":
        return abs(x)
    if name in _ROUND:
        return x
    pattern = x & ((1 << bits(dtype)) - 1)
    if name == "popcount":
        return pattern.bit_count()
    return bits(dtype) - pattern.bit_length() if name == "clz" else None


_PACK = {"float16": "<e", "float32": "<f", "float64": "<d"}


def _fold_bitcast(e: Call, value: Number) -> Const | None:
    source = e.args[0].dtype
    if bits(source) != bits(e.dtype) or "bfloat16" in (source, e.dtype) or math.isnan(value):
        return None
    width = bits(source) // 8
    if is_float(source):
        raw = struct.pack(_PACK[source], value)
    else:
        raw = (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    if is_float(e.dtype):
        result = float(struct.unpack(_PACK[e.dtype], raw)[0])
        return None if math.isnan(result) else Const.of(result, e.dtype)
    return Const.of(int.from_bytes(raw, "little", signed=is_signed(e.dtype)), e.dtype)
