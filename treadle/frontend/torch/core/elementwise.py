# SPDX-License-Identifier: Apache-2.0
"""Converters of element-wise operators: functions, arithmetic, comparisons, logic, activations."""

from __future__ import annotations

from collections.abc import Callable

import torch

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, element_type, operands, scalar_like
from treadle.frontend.torch.node import (
    AtenNode,
    Operand,
    aten,
    common_dtype,
    operand,
    prims,
    sum_dtype,
)
from treadle.frontend.torch.tensors import torch_dtype
from treadle.graph.nodes import Node
from treadle.ops import activation
from treadle.ops import elementwise as ew

Unary = Callable[[Node], Node]

# ---- functions of one value ----------------------------------------------------------------------

_FUNCTIONS: dict[str, Unary] = {
    "exp": ew.exp, "log": ew.log, "sqrt": ew.sqrt, "rsqrt": ew.rsqrt, "sin": ew.sin, "cos": ew.cos,
    "tan": ew.tan, "asin": ew.asin, "acos": ew.acos, "atan": ew.atan, "sinh": ew.sinh,
    "cosh": ew.cosh, "asinh": ew.asinh, "acosh": ew.acosh, "atanh": ew.atanh, "tanh": ew.tanh,
    "sigmoid": ew.sigmoid, "erf": ew.erf, "reciprocal": ew.reciprocal,
}  # fmt: skip
"""Functions of real numbers: integers become floats first."""

_NUMBERS: dict[str, Unary] = {
    "abs": ew.abs, "neg": ew.negative, "relu": ew.relu, "sign": ew.sign, "floor": ew.floor,
    "ceil": ew.ceil, "round": ew.round,
}  # fmt: skip
"""Functions that keep the element type."""


def _real(function: Unary) -> Callable[[AtenNode, Node], Node]:
    return lambda node, x: function(converted(x, node.dtype()))


def _same(function: Unary) -> Callable[[AtenNode, Node], Node]:
    return lambda node, x: x if element_type(x) == "bool" else function(x)


for _name, _function in _FUNCTIONS.items():
    aten(_name)(_real(_function))
for _name, _function in _NUMBERS.items():
    aten(_name)(_same(_function))


@aten("trunc")
def trunc(node: AtenNode, x: Node) -> Node:
    """Convert the whole part: towards zero."""
    return _truncated(x)


def _truncated(x: Node) -> Node:
    if not dt.is_float(element_type(x)):
        return x
    is_below = ew.less(x, scalar_like(0, x))
    return ew.where(is_below, ew.ceil(x), ew.floor(x))


@aten("isnan")
def isnan(node: AtenNode, x: Node) -> Node:
    """Convert the test for what is no number; integers always are."""
    return ew.isnan(x) if dt.is_float(element_type(x)) else ew.not_equal(x, x)


@aten("isinf")
def isinf(node: AtenNode, x: Node) -> Node:
    """Convert the test for infinities; integers are none."""
    return ew.isinf(x) if dt.is_float(element_type(x)) else ew.not_equal(x, x)


@aten("logical_not")
def logical_not(node: AtenNode, x: Node) -> Node:
    """Convert the test for zero."""
    return ew.not_(converted(x, "bool"))


@aten("bitwise_not")
def bitwise_not(node: AtenNode, x: Node) -> Node:
    """Convert the complement of bits, or of a truth value."""
    return ew.not_(x) if element_type(x) == "bool" else ew.bitwise_not(x)


@aten("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous")
def same(node: AtenNode, x: Node, *_layout: object) -> Node:
    """Convert what changes where elements lie, not what they are."""
    return x


@aten("_to_copy", "to.dtype")
@prims("convert_element_type")
def to_copy(node: AtenNode, x: Node, *_kind: object, dtype: str = "") -> Node:
    """Convert a change of the element type."""
    return converted(x, node.dtype())


# ---- arithmetic ----------------------------------------------------------------------------------


def pair(node: AtenNode, a: Operand, b: Operand) -> tuple[Node, ...]:
    """Return two operands in the result's type, such that they broadcast."""
    kind = node.dtype()
    return operands(operand(a, kind), operand(b, kind))


def _rounded_once(
    node: AtenNode, a: Operand, b: Operand, combine: Callable[[Node, Node], Node]
) -> Node:
    """Return combine(a, b) of halves: of two tensors, or of one and a number.

    A number, and a tensor of rank 0, is no half for torch: it computes in float32.
    """
    kind = node.dtype()
    wide = (
        sum_dtype(kind) if any(_is_number(v) and not _is_exact(v, kind) for v in (a, b)) else kind
    )
    left, right = (operand(v if _is_number(v) else operand(v, kind), wide) for v in (a, b))
    return converted(combine(*operands(left, right)), kind)


def _is_number(value: Operand) -> bool:
    return not isinstance(value, Node) or not dims_of(value)


def _is_exact(value: Operand, dtype: str) -> bool:
    """True for a number that is one of the type `dtype`."""
    if isinstance(value, Node):
        return element_type(value) in (dtype, "bool")
    if not isinstance(value, (int, float)):
        return False
    return float(torch.tensor(value, dtype=torch_dtype(dtype))) == value


def _with_alpha(
    node: AtenNode, a: Operand, b: Operand, alpha: float, combine: Callable[[Node, Node], Node]
) -> Node:
    """Return combine(a, alpha * b), rounded once."""
    left, right = pair(node, a, b)
    if alpha == 1:
        return combine(left, right)
    kind = node.dtype()
    wide = sum_dtype(kind)
    factor = converted(operand(alpha, kind), wide)
    scaled = ew.multiply(*operands(converted(right, wide), factor))
    return converted(combine(converted(left, wide), scaled), kind)


@aten("add.Tensor", "add.Scalar")
def add(node: AtenNode, a: Operand, b: Operand, alpha: float = 1) -> Node:
    """Convert a + alpha * b; of truth values whether either holds."""
    if node.dtype() == "bool":
        left, right = pair(node, a, b)
        both: Node = ew.logical_or(left, right) if alpha else left
        return both
    return _with_alpha(node, a, b, alpha, ew.add)


@aten("sub.Tensor", "sub.Scalar")
def sub(node: AtenNode, a: Operand, b: Operand, alpha: float = 1) -> Node:
    """Convert a - alpha * b."""
    return _with_alpha(node, a, b, alpha, ew.subtract)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(node: AtenNode, a: Operand, b: Operand, alpha: float = 1) -> Node:
    """Convert b - alpha * a."""
    return sub(node, b, a, alpha)


def _times(x: Node, factor: Operand) -> Node:
    if isinstance(factor, (int, float)) and factor == 1:
        return x
    return ew.multiply(x, operand(factor, element_type(x)))


@aten("mul.Tensor", "mul.Scalar")
def mul(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert a product; of truth values whether both hold."""
    if node.dtype() == "bool":
        return ew.logical_and(*pair(node, a, b))
    return _rounded_once(node, a, b, ew.multiply)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def div(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert a quotient of real numbers."""
    return _rounded_once(node, a, b, ew.divide)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(node: AtenNode, a: Operand, b: Operand, rounding_mode: str | None = None) -> Node:
    """Convert a quotient, rounded down or towards zero."""
    if rounding_mode == "floor":
        return _rounded_once(node, a, b, floor_quotient)
    if rounding_mode is None:
        return _rounded_once(node, a, b, ew.divide)
    return _rounded_once(node, a, b, lambda x, y: _truncated(ew.divide(x, y)))


@aten("floor_divide")
def floor_divide(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert a quotient rounded down."""
    return floor_quotient(*pair(node, a, b))


def floor_quotient(a: Node, b: Node) -> Node:
    """Return a quotient rounded down.

    Of floats as torch computes it: the quotient of what is left without the remainder, so that it
    agrees with the remainder.
    """
    if not dt.is_float(element_type(a)):
        quotient = ew.divide(a, b)
        rest = ew.subtract(a, ew.multiply(quotient, b))
        differ = ew.not_equal(ew.less(rest, scalar_like(0, a)), ew.less(b, scalar_like(0, b)))
        is_inexact = ew.logical_and(ew.not_equal(rest, scalar_like(0, a)), differ)
        return ew.subtract(quotient, converted(is_inexact, element_type(a)))
    quotient = ew.divide(ew.subtract(a, ew.mod(a, b)), b)
    return ew.where(ew.equal(b, scalar_like(0, b)), ew.divide(a, b), ew.round(quotient))


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert the remainder with the sign of the divisor."""
    return ew.mod(*pair(node, a, b))


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert the remainder with the sign of the dividend."""
    return ew.mod(*pair(node, a, b), fmod=True)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert a power; those of a few known exponents are products and roots."""
    if isinstance(a, Node) and isinstance(b, (int, float)):
        base = converted(a, node.dtype())
        if b == 1:
            return base
        if b == 2:
            return ew.multiply(base, base)
        if b == 3:
            return ew.multiply(ew.multiply(base, base), base)
    return ew.power(*pair(node, a, b))


@aten("maximum")
def maximum(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert the larger of two; of truth values whether either holds."""
    left, right = pair(node, a, b)
    return ew.logical_or(left, right) if node.dtype() == "bool" else ew.maximum(left, right)


@aten("minimum")
def minimum(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert the smaller of two; of truth values whether both hold."""
    left, right = pair(node, a, b)
    return ew.logical_and(left, right) if node.dtype() == "bool" else ew.minimum(left, right)


@aten("clamp", "clamp.Tensor")
def clamp(node: AtenNode, x: Node, min: Operand | None = None, max: Operand | None = None) -> Node:
    """Convert bounds; where the lower is above the upper, the upper counts."""
    made = converted(x, node.dtype())
    if min is not None:
        made = maximum(node, made, operand(min, node.dtype()))
    return made if max is None else minimum(node, made, operand(max, node.dtype()))


# ---- comparisons, logic, bits --------------------------------------------------------------------

_COMPARISONS = {
    "eq": ew.equal, "ne": ew.not_equal, "lt": ew.less, "le": ew.less_equal, "gt": ew.greater,
    "ge": ew.greater_equal,
}  # fmt: skip


def _comparison(compare: Callable[[Node, Node], Node]) -> Callable[..., Node]:
    def convert(node: AtenNode, a: Operand, b: Operand) -> Node:
        kind = common_dtype(a, b)
        if kind == "bool" and compare not in (ew.equal, ew.not_equal):
            kind = "uint8"
        return compare(*operands(operand(a, kind), operand(b, kind)))

    return convert


for _name, _compare in _COMPARISONS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_compare))

LOGIC = {"and": ew.logical_and, "or": ew.logical_or, "xor": ew.logical_xor}
_BITS = {"and": ew.bitwise_and, "or": ew.bitwise_or, "xor": ew.bitwise_xor}


def _logic(combine: Callable[[Node, Node], Node]) -> Callable[..., Node]:
    return lambda node, a, b: combine(*operands(converted(a, "bool"), converted(b, "bool")))


def _bits(name: str) -> Callable[..., Node]:
    def convert(node: AtenNode, a: Operand, b: Operand) -> Node:
        combine = LOGIC[name] if node.dtype() == "bool" else _BITS[name]
        return combine(*pair(node, a, b))

    return convert


for _name in LOGIC:
    aten(f"logical_{_name}")(_logic(LOGIC[_name]))
    aten(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar")(_bits(_name))


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(node: AtenNode, condition: Node, a: Operand, b: Operand) -> Node:
    """Convert a choice per element."""
    kind = node.dtype()
    return ew.where(*operands(converted(condition, "bool"), operand(a, kind), operand(b, kind)))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(node: AtenNode, x: Node, mask: Node, value: Operand) -> Node:
    """Convert one value where a mask holds."""
    return ew.where(*operands(mask, operand(value, node.dtype()), x))


# ---- activations ---------------------------------------------------------------------------------


@aten("gelu")
def gelu(node: AtenNode, x: Node, approximate: str = "none") -> Node:
    """Convert GELU, exact or by tanh."""
    return activation.gelu(x, approximate=approximate)


@aten("silu")
def silu(node: AtenNode, x: Node) -> Node:
    """Convert x * sigmoid(x)."""
    return ew.multiply(x, ew.sigmoid(x))


@aten("leaky_relu")
def leaky_relu(node: AtenNode, x: Node, negative_slope: float = 0.01) -> Node:
    """Convert a slope below zero."""
    return activation.leaky_relu(x, alpha=float(negative_slope))


@aten("elu")
def elu(
    node: AtenNode, x: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Node:
    """Convert the exponential unit; SELU is one with a scale."""
    if input_scale != 1:
        raise ModelError(f"elu with an input scale of {input_scale} is not supported")
    return _times(activation.elu(x, alpha=float(alpha)), scale)


@aten("hardtanh", "relu6")
def hardtanh(node: AtenNode, x: Node, min_val: float = -1, max_val: float = 1) -> Node:
    """Convert bounds that are an activation."""
    low, high = (0, 6) if node.op.startswith("aten.relu6") else (min_val, max_val)
    return clamp(node, x, low, high)


@aten("hardsigmoid")
def hardsigmoid(node: AtenNode, x: Node) -> Node:
    """Convert relu6(x + 3) / 6."""
    return activation.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@aten("hardswish")
def hardswish(node: AtenNode, x: Node) -> Node:
    """Convert x * hardsigmoid(x)."""
    return activation.hard_swish(x)


@aten("mish")
def mish(node: AtenNode, x: Node) -> Node:
    """Convert x * tanh(softplus(x))."""
    return activation.mish(x)
