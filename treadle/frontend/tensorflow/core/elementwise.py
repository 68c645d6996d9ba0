# SPDX-License-Identifier: Apache-2.0
"""Converters of element-wise arithmetic, comparisons, logic and choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from treadle import dtype as dt
from treadle.frontend.builders.activations import swish
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.elementwise import (
    clipped,
    floor_divide,
    floor_mod,
    power,
    squared_difference,
)
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.builders.reduce import sum_of_squares, total
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import activation
from treadle.ops import elementwise as ew
from treadle.ops import real_functions as rf

Pair: TypeAlias = Callable[[Node, Node], Node]
Function: TypeAlias = Callable[[Node], Node]


def _unless_zero(compute: Pair) -> Pair:
    """Return a division that gives 0 where the divisor, or the factor, is 0."""

    def safe(a: Node, b: Node) -> Node:
        zero = scalar_like(0, b)
        return ew.where(ew.equal(b, zero), zero, compute(a, b))

    return safe


def _true_division(a: Node, b: Node) -> Node:
    """Return a quotient as a real number."""
    if dt.is_float(element_type(a)):
        return ew.divide(a, b)
    wide = "float64" if dt.bits(element_type(a)) >= 32 else "float32"
    return ew.divide(converted(a, wide), converted(b, wide))


def _zero_times(a: Node, b: Node, compute: Pair) -> Node:
    """Return a function of both that is 0 where the first is."""
    zero = scalar_like(0, a)
    return ew.where(ew.equal(a, zero), zero, compute(a, b))


def _truncated_mod(a: Node, b: Node) -> Node:
    """Return what is left of a division that rounds to zero: it has the sign of the dividend."""
    if dt.is_float(element_type(a)):
        quotient = ew.divide(a, b)
        is_below = ew.less(quotient, scalar_like(0, a))
        whole = ew.where(is_below, ew.ceil(quotient), ew.floor(quotient))
        return ew.subtract(a, ew.multiply(whole, b))
    return ew.subtract(a, ew.multiply(ew.divide(a, b), b))


_PAIRS: dict[str, Pair] = {
    "Add": ew.add,
    "AddV2": ew.add,
    "Sub": ew.subtract,
    "Mul": ew.multiply,
    "Div": ew.divide,
    "RealDiv": _true_division,
    "TruncateDiv": ew.divide,
    "TruncateMod": _truncated_mod,
    "DivNoNan": _unless_zero(ew.divide),
    "MulNoNan": _unless_zero(ew.multiply),
    "Xdivy": partial(_zero_times, compute=ew.divide),
    "Xlogy": partial(_zero_times, compute=lambda a, b: ew.multiply(a, ew.log(b))),
    "Maximum": ew.maximum,
    "Minimum": ew.minimum,
    "Pow": power,
    "FloorDiv": floor_divide,
    "FloorMod": floor_mod,
    "SquaredDifference": squared_difference,
    "Atan2": rf.atan2,
    "Less": ew.less,
    "LessEqual": ew.less_equal,
    "Greater": ew.greater,
    "GreaterEqual": ew.greater_equal,
    "LogicalAnd": ew.logical_and,
    "LogicalOr": ew.logical_or,
    "BitwiseAnd": ew.bitwise_and,
    "BitwiseOr": ew.bitwise_or,
    "BitwiseXor": ew.bitwise_xor,
    "LeftShift": ew.shift_left,
    "RightShift": ew.shift_right,
    "Equal": ew.equal,
    "NotEqual": ew.not_equal,
}


def _register_pair(op: str, compute: Pair) -> None:
    """Register an operator of two values that broadcast, at every size."""

    @converter(op)
    def convert(node: TfNode) -> Node:
        return in_one_layout(lambda a, b: compute(*operands(a, b)), node.input(0), node.input(1))


for _op, _pair in _PAIRS.items():
    _register_pair(_op, _pair)


def _square(x: Node) -> Node:
    return ew.multiply(x, x)


def _is_finite(x: Node) -> Node:
    return ew.not_(ew.logical_or(ew.isnan(x), ew.isinf(x)))


def _erfc(x: Node) -> Node:
    """Return 1 - erf(x) = 2 P(normal < -sqrt(2) x), which does not cancel."""
    below = rf.normal_cdf(ew.multiply(x, scalar_like(-math.sqrt(2), x)))
    return ew.multiply(below, scalar_like(2, x))


def _reciprocal(x: Node) -> Node:
    return ew.divide(scalar_like(1, x), x)


_FUNCTIONS: dict[str, Function] = {
    "Abs": ew.abs,
    "Neg": ew.negative,
    "Exp": ew.exp,
    "Expm1": rf.expm1,
    "Log": ew.log,
    "Log1p": rf.log1p,
    "Sqrt": ew.sqrt,
    "Rsqrt": ew.rsqrt,
    "Square": _square,
    "Reciprocal": _reciprocal,
    "Inv": _reciprocal,
    "Sin": ew.sin,
    "Cos": ew.cos,
    "Tan": ew.tan,
    "Asin": ew.asin,
    "Acos": ew.acos,
    "Atan": ew.atan,
    "Sinh": ew.sinh,
    "Cosh": ew.cosh,
    "Asinh": ew.asinh,
    "Acosh": ew.acosh,
    "Atanh": ew.atanh,
    "Erf": ew.erf,
    "Erfc": _erfc,
    "Floor": ew.floor,
    "Ceil": ew.ceil,
    "Round": ew.round,
    "Rint": ew.round,
    "Sign": ew.sign,
    "LogicalNot": ew.not_,
    "Invert": ew.bitwise_not,
    "IsNan": ew.isnan,
    "IsInf": ew.isinf,
    "IsFinite": _is_finite,
    "Tanh": ew.tanh,
    "Sigmoid": ew.sigmoid,
    "Softplus": activation.softplus,
    "Softsign": activation.softsign,
    "Relu": ew.relu,
    "Relu6": partial(ew.clip, min=0.0, max=6.0),
    "Elu": lambda x: activation.elu(x, alpha=1.0),
    "Selu": activation.selu,
    "Swish": swish,
}


def _register_function(op: str, compute: Function) -> None:
    """Register a function of one value."""

    @converter(op)
    def convert(node: TfNode) -> Node:
        return in_one_layout(compute, node.input(0))


for _op, _function in _FUNCTIONS.items():
    _register_function(_op, _function)


@converter("LeakyRelu")
def leaky_relu(node: TfNode) -> Node:
    """Convert a line with a smaller slope below 0."""
    alpha = node.attributes.number("alpha", 0.2)
    return in_one_layout(lambda x: activation.leaky_relu(x, alpha=alpha), node.input(0))


@converter("ClipByValue")
def clip_by_value(node: TfNode) -> Node:
    """Convert a limit to a range."""
    low, high = node.input(1), node.input(2)
    if all(isinstance(b, Constant) and b.value.size == 1 for b in (low, high)):
        return in_one_layout(lambda x: clipped(x, low, high), node.input(0))
    x, low, high = operands(node.input(0), low, high)
    return ew.maximum(ew.minimum(x, high), low)


@converter("AddN")
def add_n(node: TfNode) -> Node:
    """Convert the sum of several tensors."""
    return in_one_layout(lambda *xs: reduce(ew.add, operands(*xs)), *node.all_inputs())


@converter("Select", "SelectV2")
def select(node: TfNode) -> Node:
    """Convert a choice per element; a condition of rank 1 chooses rows in the older operator."""
    condition = node.input(0)
    if node.op == "Select" and node.rank(0) == 1 and node.rank(1) > 1:
        condition = reshaped(condition, (*node.dims(0), *(1,) * (node.rank(1) - 1)))
    return ew.where(*operands(condition, node.input(1), node.input(2)))


@converter("Cast")
def cast(node: TfNode) -> Node:
    """Convert a change of the element type."""
    dtype = node.dtype("DstT")
    return in_one_layout(lambda x: converted(x, dtype), node.input(0))


@converter("ZerosLike", "OnesLike")
def filled_like(node: TfNode) -> Node:
    """Convert zeros or ones of the shape of a tensor."""
    value = scalar_like(0 if node.op == "ZerosLike" else 1, node.input(0))
    return broadcast(value, node.dims(0))


@converter("StopGradient", "PreventGradient", "CheckNumerics", "Snapshot", "EnsureShape",
           "PlaceholderWithDefault", "DebugIdentity", "DebugIdentityV2", "XlaSharding",
           "DebugGradientIdentity", "OptimizationBarrier")  # fmt: skip
def same(node: TfNode) -> Node:
    """Convert what gives its input as it is."""
    return node.input(0)


@converter("ApproximateEqual")
def approximately_equal(node: TfNode) -> Node:
    """Convert whether two numbers are closer to each other than a tolerance."""
    a, b = operands(node.input(0), node.input(1))
    tolerance = scalar_like(node.attributes.number("tolerance", 1e-5), a)
    return ew.less(ew.abs(ew.subtract(a, b)), tolerance)


@converter("L2Loss")
def l2_loss(node: TfNode) -> Node:
    """Convert half of the sum of squares."""
    squares = sum_of_squares(node.input(0), tuple(range(node.rank(0))), False)
    return ew.multiply(squares, scalar_like(0.5, squares))


@converter("Const")
def constant(node: TfNode) -> Node:
    """Convert a stored tensor."""
    value = node.attributes.tensor("value", f"the constant {node.origin!r}")
    return Constant.of(np.asarray(value), origin=node.origin)


@converter("Bucketize")
def bucketize(node: TfNode) -> Node:
    """Convert the number of boundaries that an element reaches."""
    found = node.attributes.values.get("boundaries")
    items = None if found is None else found.message(1)
    edges = np.zeros(0, "float32") if items is None else items.array(4, "float32")
    x = converted(node.input(0), "float32")
    spread = reshaped(x, (*dims_of(x), 1))
    reached = converted(ew.greater_equal(spread, Constant.of(edges)), "int32")
    return total(reached, (len(dims_of(x)),), False)
