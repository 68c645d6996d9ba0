# SPDX-License-Identifier: Apache-2.0
"""Rules about element-wise arithmetic; all of them are exact, signs of zero and NaNs included.

1. x * 1, x / 1, x ** 1            -> x
2. x + (-0.0); integers: x + 0, x - 0 -> x      (x + 0.0 is not x where x is -0.0)
3. x ** 2                          -> x * x
4. x / c, c a power of two         -> x * (1/c)
5. cast to the type it has         -> its operand
6. cast of a cast that loses nothing -> one cast
7. a constant operand with equal elements -> one element, broadcast
8. where(c, x, y), c the same everywhere -> x or y
"""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import Fusion, Operator
from treadle.graph.types import tensor_type
from treadle.ops import elementwise
from treadle.ops.elementwise import add, cast, divide, multiply, power, subtract, where
from treadle.optimize.rule import Rule, Uses, with_arguments


def _uniform_value(node: Node) -> np.generic | None:
    """Return the one value all elements of a constant have, bit by bit; None if they differ."""
    if not isinstance(node, Constant) or node.type.size == 0:
        return None
    array = node.value
    value: np.generic = array.flat[0]
    if array.size > 1:
        if value != array.flat[-1]:
            return None
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1)
        if not (raw == raw[0]).all():
            return None
    return value


def _is_number(node: Node, number: float) -> bool:
    value = _uniform_value(node)
    return value is not None and bool(value == number)


def _is_negative_zero(node: Node) -> bool:
    value = _uniform_value(node)
    return value is not None and bool(value == 0) and bool(np.signbit(value))


def _kept(value: Node, call: Call) -> Node | None:
    return value if value.type == call.type else None


def _drop_multiply(call: Call, uses: Uses) -> Node | None:
    for value, other in (call.args, call.args[::-1]):
        if _is_number(other, 1):
            return _kept(value, call)
    return None


def _drop_divide(call: Call, uses: Uses) -> Node | None:
    return _kept(call.args[0], call) if _is_number(call.args[1], 1) else None


def _drop_add(call: Call, uses: Uses) -> Node | None:
    exact = dt.is_float(tensor_type(call.type).dtype)
    for value, other in (call.args, call.args[::-1]):
        if _is_negative_zero(other) if exact else _is_number(other, 0):
            return _kept(value, call)
    return None


def _drop_subtract(call: Call, uses: Uses) -> Node | None:
    if dt.is_float(tensor_type(call.type).dtype) or not _is_number(call.args[1], 0):
        return None
    return _kept(call.args[0], call)


def _power_to_multiply(call: Call, uses: Uses) -> Node | None:
    value, exponent = call.args
    if value.type != call.type:
        return None
    if _is_number(exponent, 1):
        return value
    if _is_number(exponent, 2):
        return multiply(value, value, origin=call.origin)
    return None


def _divide_to_multiply(call: Call, uses: Uses) -> Node | None:
    value, divisor = call.args
    if not isinstance(divisor, Constant) or not dt.is_float(divisor.type.dtype):
        return None
    array = divisor.value.astype(np.float64)
    mantissa, exponent = np.frexp(np.abs(array))
    inverse_fits = np.abs(exponent) < _exponent_limit(divisor.type.dtype)
    if not ((mantissa == 0.5) & inverse_fits).all():
        return None
    inverse = (1.0 / array).astype(divisor.value.dtype)
    return multiply(value, Constant.of(inverse, origin=divisor.origin), origin=call.origin)


def _exponent_limit(dtype: str) -> int:
    """Return a bound below which 2**k and 2**-k are both normal numbers of the type."""
    return {"float16": 13, "float64": 1000}.get(dtype, 120)


def _drop_where(call: Call, uses: Uses) -> Node | None:
    condition = _uniform_value(call.args[0])
    return None if condition is None else _kept(call.args[1 if condition else 2], call)


def _drop_cast(call: Call, uses: Uses) -> Node | None:
    return _kept(call.args[0], call)


def _merge_casts(call: Call, uses: Uses) -> Node | None:
    inner = call.args[0]
    if not isinstance(inner, Call) or inner.op is not cast:
        return None
    source = tensor_type(inner.args[0].type).dtype
    if not _holds(tensor_type(inner.type).dtype, source):
        return None
    return cast(inner.args[0], dtype=tensor_type(call.type).dtype, origin=call.origin)


_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Bits of the whole numbers that a type holds exactly."""


def _holds(wide: str, narrow: str) -> bool:
    """True when every value of `narrow` is a value of `wide`, and converts onwards alike."""
    if wide == narrow:
        return True
    if dt.is_float(narrow):
        return {"float32": {"float16", "bfloat16"}, "float64": _MANTISSA.keys()}.get(
            wide, set()
        ) >= {narrow}
    if wide == "bool":
        return False
    digits = 1 if narrow == "bool" else dt.bits(narrow) - dt.is_signed(narrow)
    if dt.is_float(wide):
        return digits <= _MANTISSA[wide] and narrow != "bool"
    return dt.bits(wide) - dt.is_signed(wide) >= digits and (
        dt.is_signed(wide) or not dt.is_signed(narrow)
    )


def _shrink_constant(call: Call, uses: Uses) -> Node | None:
    for k, arg in enumerate(call.args):
        if not isinstance(arg, Constant) or arg.type.size <= 1 or _uniform_value(arg) is None:
            continue
        one = arg.value.reshape(-1)[:1].reshape((1,) * arg.value.ndim)
        args = (*call.args[:k], Constant.of(one.copy(), origin=arg.origin), *call.args[k + 1 :])
        fresh = with_arguments(call, args)
        if fresh is not None:
            return fresh
    return None


_BROADCASTING = tuple(
    op
    for op in vars(elementwise).values()
    if isinstance(op, Operator) and op.fusion is Fusion.BROADCAST
)

RULES = (
    Rule("drop_multiply", (multiply,), _drop_multiply),
    Rule("drop_divide", (divide,), _drop_divide),
    Rule("drop_add", (add,), _drop_add),
    Rule("drop_subtract", (subtract,), _drop_subtract),
    Rule("power_to_multiply", (power,), _power_to_multiply),
    Rule("divide_to_multiply", (divide,), _divide_to_multiply),
    Rule("drop_where", (where,), _drop_where),
    Rule("drop_cast", (cast,), _drop_cast),
    Rule("merge_casts", (cast,), _merge_casts),
    Rule("shrink_constant", _BROADCASTING, _shrink_constant),
)
