# SPDX-License-Identifier: Apache-2.0
"""Converters of functions of real numbers beyond those of `elementwise`: logs, angles, signs."""

from __future__ import annotations

import math
from collections.abc import Callable

from treadle import dtype as dt
from treadle.frontend.builders.basic import converted, element_type, operands, scalar_like
from treadle.frontend.builders.complex_numbers import length_of_two
from treadle.frontend.torch.core.elementwise import pair
from treadle.frontend.torch.node import AtenNode, Operand, aten, prims, sum_dtype
from treadle.graph.nodes import Constant, Node
from treadle.ops import activation, bits
from treadle.ops import elementwise as ew
from treadle.ops import real_functions as rf

Unary = Callable[[Node], Node]


def _erfc(x: Node) -> Node:
    """Return 1 - erf(x) = 2 P(normal < -sqrt(2) x), which does not cancel."""
    below = rf.normal_cdf(ew.multiply(x, scalar_like(-math.sqrt(2), x)))
    return ew.multiply(below, scalar_like(2, x))


def _scaled(function: Unary, before: float, after: float) -> Unary:
    def convert(x: Node) -> Node:
        made = function(x if before == 1 else ew.multiply(x, scalar_like(before, x)))
        return made if after == 1 else ew.multiply(made, scalar_like(after, made))

    return convert


_FUNCTIONS: dict[str, Unary] = {
    "log1p": rf.log1p, "expm1": rf.expm1, "log2": rf.log2, "erfc": _erfc,
    "log10": _scaled(ew.log, 1, 1 / math.log(10)),
    "exp2": _scaled(ew.exp, math.log(2), 1),
    "special_ndtr": rf.normal_cdf,
}  # fmt: skip
"""Functions of real numbers: integers become floats first, half precision is widened."""


def _wide(dtype: str) -> str:
    """Return the type that functions of several steps are computed in."""
    return "float64" if dtype in ("float32", "float64") else "float32"


def _real(function: Unary) -> Callable[[AtenNode, Node], Node]:
    def convert(node: AtenNode, x: Node) -> Node:
        return converted(function(converted(x, _wide(node.dtype()))), node.dtype())

    return convert


for _name, _function in _FUNCTIONS.items():
    aten(_name)(_real(_function))


@aten("atan2")
@prims("atan2")
def atan2(node: AtenNode, y: Operand, x: Operand) -> Node:
    """Convert the angle of a point."""
    return rf.atan2(*pair(node, y, x))


@aten("angle")
def angle(node: AtenNode, x: Node) -> Node:
    """Convert the angle of real numbers: 0, or pi for those below 0; of a NaN a NaN."""
    data = converted(x, node.dtype())
    zero = scalar_like(0, data)
    made = ew.where(ew.less(data, zero), scalar_like(math.pi, data), zero)
    return ew.where(ew.isnan(data), data, made)


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(node: AtenNode, x: Operand, sign: Operand) -> Node:
    """Convert the size of one number with the sign of another."""
    return rf.copysign(*pair(node, x, sign))


@aten("signbit")
@prims("signbit")
def signbit(node: AtenNode, x: Node) -> Node:
    """Convert whether the sign is a minus, that of a zero too."""
    kind = element_type(x)
    if not dt.is_float(kind):
        return ew.less(x, scalar_like(0, x)) if dt.is_signed(kind) else ew.not_equal(x, x)
    held = bits.bitcast(x, dtype=f"int{dt.bits(kind)}")
    return ew.less(held, scalar_like(0, held))


@aten("nextafter")
@prims("nextafter")
def nextafter(node: AtenNode, x: Node, goal: Node) -> Node:
    """Convert the next number towards another one: its bits, read as an integer, are one apart."""
    a, b = pair(node, x, goal)
    kind = node.dtype()
    whole = f"int{dt.bits(kind)}"
    held = bits.bitcast(a, dtype=whole)
    one = scalar_like(1, held)
    is_outwards = ew.equal(ew.less(a, b), ew.greater(a, scalar_like(0, a)))
    moved = ew.where(is_outwards, ew.add(held, one), ew.subtract(held, one))
    smallest = bits.bitcast(Constant.of(1, whole), dtype=kind)
    from_zero = rf.copysign(*operands(smallest, b))
    stepped = ew.where(
        *operands(ew.equal(a, scalar_like(0, a)), from_zero, bits.bitcast(moved, dtype=kind))
    )
    is_nan = ew.logical_or(ew.isnan(a), ew.isnan(b))
    return ew.where(ew.equal(a, b), b, ew.where(is_nan, ew.add(a, b), stepped))


@aten("fmax", "fmin")
@prims("fmax", "fmin")
def number_of_two(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert the larger or smaller of two; of a number and NaN the number."""
    left, right = operands(*pair(node, a, b))
    is_larger = node.op.partition(".")[2].startswith("fmax")
    if not dt.is_float(node.dtype()):
        return _extreme(left, right, is_larger)
    chosen = ew.where(ew.isnan(right), left, _extreme(left, right, is_larger))
    return ew.where(ew.isnan(left), right, chosen)


def _extreme(a: Node, b: Node, is_larger: bool) -> Node:
    if element_type(a) == "bool":
        both: Node = ew.logical_or(a, b) if is_larger else ew.logical_and(a, b)
        return both
    return ew.maximum(a, b) if is_larger else ew.minimum(a, b)


@aten("hypot")
@prims("hypot")
def hypot(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert the length of a vector of two, which cannot overflow on the way."""
    kind = _wide(node.dtype())
    length = length_of_two(*operands(*(converted(v, kind) for v in (a, b))))
    return converted(length, node.dtype())


@aten("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar",
      "bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Tensor",
      "bitwise_right_shift.Tensor_Scalar", "bitwise_right_shift.Scalar_Tensor",
      "__lshift__.Tensor", "__lshift__.Scalar", "__rshift__.Tensor",
      "__rshift__.Scalar")  # fmt: skip
@prims("shift_left", "shift_right_arithmetic")
def shift(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert a shift; by the type's bits or more nothing is left but copies of the sign."""
    is_right = "right" in node.op or "rshift" in node.op
    return (ew.shift_right if is_right else ew.shift_left)(*operands(*pair(node, a, b)))


@aten("isfinite", "isposinf", "isneginf")
@prims("isfinite")
def is_of_kind(node: AtenNode, x: Node) -> Node:
    """Convert a test for what is finite, or infinite with a sign."""
    name = node.op.split(".")[1]
    if not dt.is_float(element_type(x)):
        return ew.equal(x, x) if name == "isfinite" else ew.not_equal(x, x)
    if name == "isfinite":
        return ew.not_(ew.logical_or(ew.isnan(x), ew.isinf(x)))
    return ew.isinf(x, detect_negative=name == "isneginf", detect_positive=name == "isposinf")


@aten("ldexp.Tensor")
def ldexp(node: AtenNode, x: Node, exponent: Node) -> Node:
    """Convert x * 2^exponent."""
    kind = node.dtype()
    wide = _wide(kind)
    power = ew.power(Constant.of(2, wide), converted(exponent, wide))
    return converted(ew.multiply(*operands(converted(x, wide), power)), kind)


@aten("frexp.Tensor")
@prims("frexp")
def frexp(node: AtenNode, x: Node) -> list[Node]:
    """Convert numbers to a part of 0.5 to below 1 and an exponent of 2, both read off their bits.

    A number below the normal ones is made larger first. Zeros, infinities and NaN stay themselves.
    """
    kind = node.dtype()
    wide = "float64" if kind == "float64" else "float32"
    digits, bias = (52, 1022) if wide == "float64" else (23, 126)
    data = converted(x, wide)
    whole = f"int{dt.bits(wide)}"
    is_small = ew.less(ew.abs(data), scalar_like(2.0 ** (1 - bias), data))
    scale = ew.where(*operands(is_small, scalar_like(2.0**64, data), scalar_like(1, data)))
    held = bits.bitcast(ew.multiply(data, scale), dtype=whole)
    field = ew.bitwise_and(
        ew.shift_right(held, scalar_like(digits, held)), scalar_like(2 * bias + 3, held)
    )
    lost = ew.where(*operands(is_small, scalar_like(64, field), scalar_like(0, field)))
    exponent = ew.subtract(ew.subtract(field, scalar_like(bias, field)), lost)
    kept = ew.bitwise_and(held, scalar_like(~((2 * bias + 3) << digits), held))
    part = bits.bitcast(ew.bitwise_or(kept, scalar_like(bias << digits, held)), dtype=wide)
    is_plain = ew.less(ew.abs(data), scalar_like(math.inf, data))
    is_split = ew.logical_and(is_plain, ew.not_equal(data, scalar_like(0, data)))
    whole_part = ew.where(is_split, part, data)
    power = ew.where(*operands(is_split, exponent, scalar_like(0, exponent)))
    return [converted(whole_part, kind), converted(power, node.dtype(1))]


@aten("addcmul", "addcdiv")
def scaled_and_added(node: AtenNode, x: Node, a: Node, b: Node, value: float = 1) -> Node:
    """Convert x + value * a * b, or x + value * a / b, rounded once where elements are halves."""
    kind = sum_dtype(node.dtype())
    total, left, right = operands(*(converted(v, kind) for v in (x, a, b)))
    scaled = left if value == 1 else ew.multiply(left, scalar_like(value, left))
    combine = ew.multiply if node.op.startswith("aten.addcmul") else ew.divide
    return converted(ew.add(total, combine(scaled, right)), node.dtype())


@aten("softplus")
def softplus(node: AtenNode, x: Node, beta: float = 1, threshold: float = 20) -> Node:
    """Convert log(1 + exp(beta x)) / beta, x itself above the threshold."""
    wide = converted(x, sum_dtype(node.dtype()))
    scaled = ew.multiply(wide, scalar_like(beta, wide))
    made = ew.divide(activation.softplus(scaled), scalar_like(beta, wide))
    is_above = ew.greater(scaled, scalar_like(threshold, wide))
    return converted(ew.where(*operands(is_above, wide, made)), node.dtype())
