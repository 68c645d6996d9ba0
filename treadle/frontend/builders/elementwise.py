# SPDX-License-Identifier: Apache-2.0
"""Builders of element-wise arithmetic with rules of its own on types, bounds or broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
)
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise


def aligned_at(a: Node, b: Node, axis: int) -> Node:
    """Return `b` so that its first axis meets the axis `axis` of `a` when both broadcast."""
    trailing = len(dims_of(a)) - axis - len(dims_of(b))
    if axis < 0 or trailing < 0:
        raise ModelError(
            f"the shape {list(dims_of(b))} does not fit into {list(dims_of(a))} at axis {axis}"
        )
    return reshaped(b, (*dims_of(b), *(1,) * trailing))


def mean_of(values: Sequence[Node]) -> Node:
    """Return the mean of several tensors, which broadcast."""
    total: Node = reduce(elementwise.add, operands(*values))
    return elementwise.divide(total, scalar_like(len(values), total))


def power(base: Node, exponent: Node) -> Node:
    """Return a power of operands that broadcast; it has the base's type whatever the exponent's."""
    kind, other = element_type(base), element_type(exponent)
    if dt.is_integer(kind) and dt.is_float(other):
        wide = "float64" if dt.bits(kind) == 64 else other
        result = elementwise.power(converted(base, wide), converted(exponent, wide))
        return converted(result, kind)
    return elementwise.power(base, converted(exponent, kind))


def clipped(x: Node, low: Node | None, high: Node | None) -> Node:
    """Return x within bounds of one element; constant float bounds become attributes."""
    bounds = [b for b in (low, high) if b is not None]
    if dt.is_float(element_type(x)) and all(isinstance(b, Constant) for b in bounds):
        return elementwise.clip(x, min=_bound(low), max=_bound(high))
    result = x if low is None else elementwise.maximum(x, reshaped(low, ()))
    return result if high is None else elementwise.minimum(result, reshaped(high, ()))


def _bound(value: Node | None) -> float | None:
    if not isinstance(value, Constant):
        return None
    if value.value.size != 1:
        raise ModelError(f"a bound of a clip must be one number, not {value.type}")
    return float(value.value.reshape(()))


def shrunk(x: Node, lambd: float, bias: float) -> Node:
    """Return x + bias below -lambd, x - bias above lambd, 0 between."""
    dtype = element_type(x)
    wide = x
    if not dt.is_float(dtype):
        wide = converted(x, "float64" if dt.bits(dtype) > 32 else "float32")
    above = elementwise.subtract(wide, scalar_like(bias, wide))
    below = elementwise.add(wide, scalar_like(bias, wide))
    is_above = elementwise.greater(wide, scalar_like(lambd, wide))
    is_below = elementwise.less(wide, scalar_like(-lambd, wide))
    rest = elementwise.where(is_above, above, scalar_like(0, wide))
    return converted(elementwise.where(is_below, below, rest), dtype)


def floor_divide(a: Node, b: Node) -> Node:
    """Return the quotient rounded down; of integers that of those it lies between."""
    quotient = elementwise.divide(a, b)
    if dt.is_float(element_type(a)):
        return elementwise.floor(quotient)
    exact = elementwise.equal(elementwise.multiply(quotient, b), a)
    zero = scalar_like(0, a)
    same_sign = elementwise.equal(elementwise.less(a, zero), elementwise.less(b, zero))
    below = elementwise.subtract(quotient, scalar_like(1, a))
    return elementwise.where(elementwise.logical_or(exact, same_sign), quotient, below)


def floor_mod(a: Node, b: Node) -> Node:
    """Return what is left of a division that rounds down: it has the sign of the divisor."""
    if dt.is_float(element_type(a)):
        return elementwise.subtract(
            a, elementwise.multiply(elementwise.floor(elementwise.divide(a, b)), b)
        )
    return elementwise.mod(a, b)


def squared_difference(a: Node, b: Node) -> Node:
    """Return (a - b)^2."""
    difference = elementwise.subtract(a, b)
    return elementwise.multiply(difference, difference)
