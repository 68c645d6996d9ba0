# SPDX-License-Identifier: Apache-2.0
"""Formulas of graph nodes and numbers, for functions that are long formulas."""

from __future__ import annotations

import math

from treadle.frontend.builders.basic import operands, scalar_like
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew

Value = Node | float


def _pair(a: Value, b: Value) -> tuple[Node, Node]:
    if not isinstance(a, Node):
        assert isinstance(b, Node)  # one of them is
        return scalar_like(a, b), b
    return a, b if isinstance(b, Node) else scalar_like(b, a)


def plus(a: Value, b: Value) -> Node:
    """Return a + b."""
    return ew.add(*_pair(a, b))


def minus(a: Value, b: Value) -> Node:
    """Return a - b."""
    return ew.subtract(*_pair(a, b))


def times(a: Value, b: Value) -> Node:
    """Return a * b."""
    return ew.multiply(*_pair(a, b))


def over(a: Value, b: Value) -> Node:
    """Return a / b."""
    return ew.divide(*_pair(a, b))


def below(a: Node, b: float) -> Node:
    """Return whether a < b."""
    return ew.less(*_pair(a, b))


def is_equal(a: Node, b: float) -> Node:
    """Return whether a = b."""
    return ew.equal(*_pair(a, b))


def choose(condition: Node, a: Value, b: Value) -> Node:
    """Return `a` where a condition holds, else `b`."""
    return ew.where(*operands(condition, *_pair(a, b)))


def total(first: Node, *others: Value) -> Node:
    """Return a sum."""
    made = first
    for value in others:
        made = plus(made, value)
    return made


def polynomial(x: Node, *values: float) -> Node:
    """Return c(0) + c(1) x + c(2) x^2 + ..., by Horner's rule."""
    made = scalar_like(values[-1], x)
    result: Node = made
    for c in reversed(values[:-1]):
        result = plus(times(result, x), c)
    return result


def exact_pi_times(x: Node) -> Node:
    """Return pi times what `x` is more or less than the nearest whole number."""
    return times(minus(x, ew.round(x)), math.pi)
