# SPDX-License-Identifier: Apache-2.0
"""Converters of element-wise arithmetic, comparisons, logic and choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TypeAlias

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    operands,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.elementwise import (
    floor_divide,
    floor_mod,
    power,
    squared_difference,
)
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.tflite.node import TfliteNode, converter
from treadle.frontend.tflite.pointwise import (
    bounded_integers,
    product_of_integers,
    sigmoid_integers,
    sum_of_integers,
    tanh_integers,
)
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew
from treadle.ops import real_functions as rf

Pair: TypeAlias = Callable[[Node, Node], Node]
Function: TypeAlias = Callable[[Node], Node]
OfIntegers: TypeAlias = Callable[[TfliteNode], Node | None]
"""of_integers(node) -> its result by integers alone, None where it goes through real numbers."""


def _broadcast(compute: Pair) -> Pair:
    """Return a function of two values that broadcast, at every size."""
    return lambda a, b: compute(*operands(a, b))


def _pair(op: str, compute: Pair, *, activated: bool = False) -> None:
    """Register an operator of two real numbers."""

    @converter(op)
    def convert(node: TfliteNode) -> Node:
        integers = _INTEGER_PAIRS[op](node) if op in _INTEGER_PAIRS else None
        if integers is not None:
            return integers
        made = in_one_layout(_broadcast(compute), node.real(0), node.real(1))
        return node.stored(node.activated(made) if activated else made)


_INTEGER_PAIRS: dict[str, OfIntegers] = {
    "ADD": sum_of_integers,
    "SUB": sum_of_integers,
    "MUL": product_of_integers,
}
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
    "FLOOR_DIV": floor_divide,
    "FLOOR_MOD": floor_mod,
    "SQUARED_DIFFERENCE": squared_difference,
    "ATAN2": rf.atan2,
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
        integers = _INTEGER_FUNCTIONS[op](node) if op in _INTEGER_FUNCTIONS else None
        return node.stored(in_one_layout(compute, node.real(0))) if integers is None else integers


def _square(x: Node) -> Node:
    return ew.multiply(x, x)


_INTEGER_FUNCTIONS: dict[str, OfIntegers] = {
    "TANH": tanh_integers,
    "LOGISTIC": sigmoid_integers,
    "RELU": bounded_integers,
    "RELU6": bounded_integers,
    "RELU_N1_TO_1": bounded_integers,
    "RELU_0_TO_1": bounded_integers,
}
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
