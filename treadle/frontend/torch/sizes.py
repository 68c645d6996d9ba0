# SPDX-License-Identifier: Apache-2.0
"""Sizes of torch (SymInt, which are expressions of sympy) as sizes of graph types."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions

from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.expr.nodes import convert, maximum, minimum
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, normal_size
from treadle.ops import elementwise

Size = Any
"""An int or a torch.SymInt."""


def expression_of(size: Size) -> sympy.Expr:
    """Return a size as an expression of sympy."""
    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size.node.expr
    return sympy.Integer(size)


def symbols_of(size: Size) -> set[sympy.Symbol]:
    """Return the symbols that a size is made of."""
    return set() if isinstance(size, int) else set(expression_of(size).free_symbols)


def signed(size: Size, part: Callable[[str], Dim]) -> Dim:
    """Return a number that is an input, or computed, made of sizes, which are never below 0.

    It is part(""), or -1 - part("_beyond"), or part("_above") - part("_below"), one of which is 0,
    as far as torch knows its sign. (Tensors have sizes of at least 0, numbers in Python any.)
    """
    low, high = _range_of(size)
    if low >= 0:
        return part("")
    if high < 0:
        return convert(-1) - part("_beyond")
    return convert(part("_above")) - part("_below")


def _range_of(size: Size) -> tuple[Any, Any]:
    """Return the least and the largest value of a symbol, as numbers of sympy."""
    environment: Any = size.node.shape_env  # torch counts as without types
    found = environment.bound_sympy(expression_of(size))
    return found.lower, found.upper


def measured(value: Node, size: Size, measure: Callable[[Node], Dim]) -> Dim:
    """Return a number that is computed, an int64 scalar, as `signed` does; torch calls it `size`.

    `measure` returns the size that is the number in a scalar.
    """
    zero, one = Constant.of(0, "int64"), Constant.of(1, "int64")
    below = elementwise.maximum(elementwise.negative(value), zero)
    parts = {
        "": value,
        "_above": elementwise.maximum(value, zero),
        "_below": below,
        "_beyond": elementwise.subtract(below, one),
    }
    return signed(size, lambda name: measure(parts[name]))


class Symbols:
    """What the symbols of a program are in the graph: its sizes, by name."""

    def __init__(self) -> None:
        self._known: dict[sympy.Symbol, Dim] = {}

    def add_input_size(self, size: Size) -> None:
        """Let a size that an input decides by itself be a symbolic size of the same name.

        A number that may be below 0 is made of two.
        """
        expression = expression_of(size)
        if isinstance(expression, sympy.Symbol) and expression not in self._known:
            name = str(expression)
            self._known[expression] = signed(size, lambda part: SizeVar(name + part, "int64"))

    def bind(self, symbol: sympy.Symbol, dim: Dim) -> None:
        """Say what a symbol is in the graph."""
        self._known[symbol] = dim

    def is_known(self, size: Size) -> bool:
        """True where everything that a size is made of is known."""
        return symbols_of(size) <= self._known.keys()

    def is_known_symbol(self, symbol: sympy.Symbol) -> bool:
        """True where it is said what a symbol is in the graph."""
        return symbol in self._known

    def dim(self, size: Size) -> Dim:
        """Return a size of torch as one of the graph. Raises: ModelError for what it cannot be."""
        if isinstance(size, int):
            return int(size)
        if not isinstance(size, torch.SymInt):
            raise ModelError(f"the number {size}, which a run computes, is no size")
        return normal_size(self._converted(expression_of(size)))

    def _converted(self, expression: sympy.Basic) -> Dim:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            if expression in self._known:
                return self._known[expression]
            raise ModelError(
                f"the size {expression} is decided by no input",
                hint="give one input an axis of exactly this size",
            )
        power = _whole_power(expression)
        if power is not None:
            return reduce(lambda a, b: a * b, [self._converted(power[0])] * power[1])
        operation = _OPERATIONS.get(type(expression))
        if operation is None:
            raise ModelError(
                f"the size {expression} is not made of sums, products and quotients",
                hint="give fixed sizes, or mark fewer of them as dynamic",
            )
        return reduce(operation, map(self._converted, expression.args))


def _whole_power(expression: sympy.Basic) -> tuple[sympy.Basic, int] | None:
    """Return base and exponent of a power above 0."""
    if isinstance(expression, sympy.Pow) and isinstance(expression.exp, sympy.Integer):
        exponent = int(expression.exp)
        return (expression.base, exponent) if exponent > 0 else None
    if isinstance(expression, functions.PowByNatural):
        base, exponent = expression.args
        is_known = isinstance(exponent, sympy.Integer) and exponent > 0
        return (base, int(exponent)) if is_known else None
    return None


_OPERATIONS: dict[type, Callable[[Dim, Dim], Dim]] = {
    sympy.Add: lambda a, b: a + b,
    sympy.Mul: lambda a, b: a * b,
    sympy.Max: lambda a, b: maximum(convert(a), b),
    sympy.Min: lambda a, b: minimum(convert(a), b),
    functions.Max: lambda a, b: maximum(convert(a), b),
    functions.Min: lambda a, b: minimum(convert(a), b),
    functions.FloorDiv: lambda a, b: a // b,
    functions.CleanDiv: lambda a, b: a // b,
    functions.Mod: lambda a, b: a % b,
    functions.PythonMod: lambda a, b: a % b,
}
"""What sizes are made of; those of more than two operands apply from left to right."""
