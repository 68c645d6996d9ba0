# SPDX-License-Identifier: Apache-2.0
"""Converters of element-wise arithmetic, comparisons, logic and choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TypeAlias

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    element_type,
    operands,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.elementwise import power
from treadle.frontend.tflite.layout import in_one_layout
from treadle.frontend.tflite.node import TfliteNode, converter
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew

Pair: TypeAlias = Callable[[Node, Node], Node]
Function: TypeAlias = Callable[[Node], Node]


def _broadcast(compute: Pair) -> Pair:
    """Return a function of two values that broadcast, at every size."""
    return lambda a, b: compute(*operands(a, b))


def _pair(op: str, compute: Pair, *, activated: bool = False) -> None:
    """Register an operator of two real numbers."""

    @converter(op)
    def convert(node: TfliteNode) -> Node:
        made = in_one_layout(_broadcast(compute), node.real(0), node.real(1))
        return node.stored(node.activated(made) if activated else made)


def _floor_divide(a: Node, b: Node) -> Node:
    quotient = ew.divide(a, b)
    if dt.is_float(element_type(a)):
        return ew.floor(quotient)
    exact = ew.equal(ew.multiply(quotient, b), a)
    zero = scalar_like(0, a)
    same_sign = ew.equal(ew.less(a, zero), ew.less(b, zero))
    below = ew.subtract(quotient, scalar_like(1, a))
    return ew.where(ew.logical_or(exact, same_sign), quotient, below)


def _floor_mod(a: Node, b: Node) -> Node:
    if dt.is_float(element_type(a)):
        return ew.subtract(a, ew.multiply(ew.floor(ew.divide(a, b)), b))
    return ew.mod(a, b)


def _squared_difference(a: Node, b: Node) -> Node:
    difference = ew.subtract(a, b)
    return ew.multiply(difference, difference)


def _atan2(y: Node, x: Node) -> Node:
    """Return the angle of (x, y): by halves of it, so that no quadrant is left out.

    atan2(y, x) = 2 atan(y / (|(x, y)| + x)), of which the divisor is 0 for y = 0 and x <= 0 alone.
    """
    length = ew.sqrt(ew.add(ew.multiply(x, x), ew.multiply(y, y)))
    zero = scalar_like(0.0, x)
    right = ew.divide(y, ew.add(length, x))
    left = ew.divide(ew.subtract(length, x), y)
    half = ew.atan(ew.where(ew.greater(x, zero), right, left))
    angle = ew.multiply(half, scalar_like(2.0, x))
    flat = ew.where(ew.less(x, zero), scalar_like(3.14159265358979, x), zero)
    return ew.where(ew.equal(y, zero), flat, angle)


_ACTIVATED: dict[str, Pair] = {
    "ADD": ew.add,
    "SUB": ew.subtract,
    "MUL": ew.multiply,
    "DIV": ew.divide,
}
_PAIRS: dict[str, Pair] = {
    "MAXIMUM": ew.maximum,
    "MINIMUM": ew.minimum,
    "POW": power,
    "FLOOR_DIV": _floor_divide,
    "FLOOR_MOD": _floor_mod,
    "SQUARED_DIFFERENCE": _squared_difference,
    "ATAN2": _atan2,
}
for _op, _compute in _ACTIVATED.items():
    _pair(_op, _compute, activated=True)
for _op, _compute in _PAIRS.items():
    _pair(_op, _compute)


def _comparison(op: str, compute: Pair) -> None:
    """Register a comparison, whose result is no quantised number."""

    @converter(op)
    def convert(node: TfliteNode) -> Node:
        return in_one_layout(_broadcast(compute), node.real(0), node.real(1))


_COMPARISONS: dict[str, Pair] = {
    "EQUAL": ew.equal,
    "NOT_EQUAL": ew.not_equal,
    "LESS": ew.less,
    "LESS_EQUAL": ew.less_equal,
    "GREATER": ew.greater,
    "GREATER_EQUAL": ew.greater_equal,
    "LOGICAL_AND": ew.logical_and,
    "LOGICAL_OR": ew.logical_or,
    "BITWISE_XOR": ew.bitwise_xor,
    "RIGHT_SHIFT": ew.shift_right,
}
for _op, _compute in _COMPARISONS.items():
    _comparison(_op, _compute)


def _function(op: str, compute: Function) -> None:
    """Register a function of one real number."""

    @converter(op)
    def convert(node: TfliteNode) -> Node:
        return node.stored(in_one_layout(compute, node.real(0)))


def _square(x: Node) -> Node:
    return ew.multiply(x, x)


_FUNCTIONS: dict[str, Function] = {
    "ABS": ew.abs,
    "NEG": ew.negative,
    "EXP": ew.exp,
    "LOG": ew.log,
    "SQRT": ew.sqrt,
    "RSQRT": ew.rsqrt,
    "SQUARE": _square,
    "SIN": ew.sin,
    "COS": ew.cos,
    "FLOOR": ew.floor,
    "CEIL": ew.ceil,
    "ROUND": ew.round,
    "SIGN": ew.sign,
    "LOGICAL_NOT": ew.not_,
    "TANH": ew.tanh,
    "LOGISTIC": ew.sigmoid,
    "RELU": ew.relu,
    "RELU6": partial(ew.clip, min=0.0, max=6.0),
    "RELU_N1_TO_1": partial(ew.clip, min=-1.0, max=1.0),
    "RELU_0_TO_1": partial(ew.clip, min=0.0, max=1.0),
}
for _name, _apply in _FUNCTIONS.items():
    _function(_name, _apply)


@converter("ADD_N")
def add_n(node: TfliteNode) -> Node:
    """Convert the sum of several tensors."""
    values = [node.real(k) for k in range(len(node.inputs))]
    if not values:
        raise ModelError("ADD_N has no inputs")
    return node.stored(in_one_layout(lambda *xs: reduce(ew.add, operands(*xs)), *values))


@converter("SELECT", "SELECT_V2")
def select(node: TfliteNode) -> Node:
    """Convert a choice per element; a condition of rank 1 chooses rows in the older operator."""
    condition = node.input(0)
    a, b = node.real(1), node.real(2)
    if node.op == "SELECT" and node.rank(0) == 1 and node.rank(1) > 1:
        condition = reshaped(condition, (*node.dims(0), *(1,) * (node.rank(1) - 1)))
    return node.stored(ew.where(*operands(condition, a, b)))


@converter("CAST")
def cast(node: TfliteNode) -> Node:
    """Convert a change of the element type, by the type of the result."""
    return in_one_layout(lambda x: converted(x, node.result().dtype), node.input(0))


@converter("ZEROS_LIKE")
def zeros_like(node: TfliteNode) -> Node:
    """Convert zeros of the shape of a tensor."""
    return broadcast(scalar_like(0, node.input(0)), node.dims(0))
