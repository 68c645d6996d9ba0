# SPDX-License-Identifier: Apache-2.0
"""What is surely true of the values of an expression, so that shorter code is right for them."""

from __future__ import annotations

from treadle.dtype import is_float
from treadle.expr.nodes import Binary, Broadcast, Cast, Const, Expr, Select, Var


def scalar_const(e: Expr) -> int | float | bool | None:
    """Return the constant every lane of `e` holds, else None."""
    inner = e.value if isinstance(e, Broadcast) else e
    return inner.value if isinstance(inner, Const) else None


def is_never_negative(e: Expr) -> bool:
    """True when an index expression is surely >= 0 (loop variables and sizes are)."""
    if isinstance(e, Const):
        return e.value >= 0
    if isinstance(e, Var):
        return e.dtype == "int64"
    if isinstance(e, Broadcast):
        return is_never_negative(e.value)
    if isinstance(e, Binary) and e.dtype == "int64":
        if e.op in ("add", "mul", "floordiv", "floormod", "min"):
            return is_never_negative(e.a) and is_never_negative(e.b)
        if e.op == "max":
            return is_never_negative(e.a) or is_never_negative(e.b)
    return False


def is_never_nan(e: Expr) -> bool:
    """True when a float expression surely is not NaN."""
    if isinstance(e, Const):
        return e.value == e.value
    if isinstance(e, Broadcast):
        return is_never_nan(e.value)
    if isinstance(e, Cast):
        return not is_float(e.value.dtype)
    if isinstance(e, Binary) and e.op in ("min", "max"):
        return is_never_nan(e.a) and is_never_nan(e.b)
    if isinstance(e, Select):
        return is_never_nan(e.then) and is_never_nan(e.other)
    return False


def float_bounds(e: Expr) -> tuple[float, float]:
    """Return the constants a float expression surely lies between, if it is not NaN."""
    if isinstance(e, Broadcast):
        return float_bounds(e.value)
    if isinstance(e, Const):
        return float(e.value), float(e.value)
    if isinstance(e, Binary) and e.op in ("min", "max"):
        (a, b), (c, d) = float_bounds(e.a), float_bounds(e.b)
        return (min(a, c), min(b, d)) if e.op == "min" else (max(a, c), max(b, d))
    return float("-inf"), float("inf")
