# SPDX-License-Identifier: Apache-2.0
"""Which conversions lose nothing, and what that makes of chains of them."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.dtype import bits, is_float, is_integer, is_signed
from treadle.expr.fold import fold_cast
from treadle.expr.nodes import Broadcast, Cast, Expr, broadcast, cast


def shorten_cast(e: Cast) -> Expr | None:
    """Fold constants, lift broadcasts, and drop a widening that a second cast makes invisible."""
    folded = fold_cast(e)
    if folded is not None:
        return folded
    value = e.value
    if isinstance(value, Broadcast):
        inner = cast(value.value, e.dtype)
        fresh = shorten_cast(inner) if isinstance(inner, Cast) else None
        return broadcast(inner if fresh is None else fresh, e.lanes)
    if not isinstance(value, Cast):
        return None
    source, middle, target = value.value.dtype, value.dtype, e.dtype
    if _is_invisible(source, middle, target) or _is_truncation(source, middle, target):
        return cast(value.value, target)
    return None


def _is_invisible(source: str, middle: str, target: str) -> bool:
    """True where going through `middle` is the same as going straight to `target`."""
    if not _is_exact_cast(source, middle):
        return False
    saturates = is_integer(source) and is_float(middle) and is_integer(target)
    return not saturates or _is_exact_cast(source, target)


_FLOAT_SHAPE: Mapping[str, tuple[int, int]] = {
    "float16": (11, 5),
    "bfloat16": (8, 8),
    "float32": (24, 8),
    "float64": (53, 11),
}
"""Significant bits and exponent bits."""


def _is_exact_cast(source: str, target: str) -> bool:
    """True when every value of `source` is one of `target`."""
    if source == target or source == "bool":
        return True
    if target == "bool" or (is_float(source) and not is_float(target)):
        return False
    if is_float(source):
        (p, x), (q, y) = _FLOAT_SHAPE[source], _FLOAT_SHAPE[target]
        return p <= q and x <= y
    value_bits = bits(source) - is_signed(source)
    if is_float(target):
        return value_bits <= _FLOAT_SHAPE[target][0]
    if is_signed(source) and not is_signed(target):
        return False
    return value_bits <= bits(target) - is_signed(target)


def _is_truncation(source: str, middle: str, target: str) -> bool:
    """True for integers cut down twice: only the last cut counts."""
    integers = is_integer(source) and is_integer(middle) and is_integer(target)
    return integers and bits(target) <= bits(middle)
