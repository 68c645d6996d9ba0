# SPDX-License-Identifier: Apache-2.0
"""Numbers that torch computes of sizes: SymInt as sizes of graph types, SymFloat as scalars.

Both are expressions of sympy. A whole number that is rounded from a fraction is a quotient where
that is exact, int(1.5 * n) = 3 * n // 2; else the model itself computes it, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions

from treadle.errors import ModelError
from treadle.expr.nodes import Expr, convert, maximum, minimum
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.basic import converted
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_true, normal_size
from treadle.limits import SCALE_DENOMINATOR
from treadle.ops import elementwise

Size = Any
"""An int or a torch.SymInt."""

_LONGEST = 1 << 20
"""The largest numerator of a factor whose products with sizes floats hold exactly."""


def expression_of(size: Size) -> sympy.Expr:
    """Return a size as an expression of sympy."""
    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size.node.expr
    return sympy.Integer(size)


def symbols_of(size: Size) -> set[sympy.Symbol]:
    """Return the symbols that a size, or another number, is made of."""
    return set() if isinstance(size, (int, float)) else set(expression_of(size).free_symbols)


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
    """Return the least and the largest value of a number, as numbers of sympy."""
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
    """What the symbols of a program are in the graph: its sizes, by name.

    `computed` are sizes that the model itself computes of others.
    """

    def __init__(self) -> None:
        self._known: dict[sympy.Basic, Dim] = {}
        self._fractions: dict[sympy.Basic, Node] = {}
        self.computed = MeasuredSizes("rounded_size")

    def add_input_size(self, size: Size) -> None:
        """Let a size that an input decides by itself be a symbolic size of the same name.

        A number that may be below 0 is made of two.
        """
        expression = expression_of(size)
        if expression in self._known:
            return
        if isinstance(expression, sympy.Symbol):
            name = str(expression)
            self._known[expression] = signed(size, lambda part: SizeVar(name + part, "int64"))
        elif _is_rounded(expression) and _quotient(expression.args[0]) is None:
            self._known[expression] = SizeVar(f"rounded_input_{len(self._known)}", "int64")

    def bind(self, symbol: sympy.Symbol, dim: Dim) -> None:
        """Say what a symbol is in the graph."""
        self._known[symbol] = dim

    def bind_fraction(self, symbol: sympy.Symbol, value: Node) -> None:
        """Say which float64 scalar a symbol is that stands for no whole number."""
        self._fractions[symbol] = value

    def is_known(self, size: Size) -> bool:
        """True where everything that a size is made of is known."""
        return symbols_of(size) <= self._known.keys() | self._fractions.keys()

    def is_known_symbol(self, symbol: sympy.Symbol) -> bool:
        """True where it is said what a symbol is in the graph."""
        return symbol in self._known

    def number(self, value: Size | float | torch.SymFloat) -> Dim | float | Node:
        """Return a number; one that a run tells is a size, or a float64 scalar if it is not whole.

        Raises: ModelError for what it cannot be.
        """
        if isinstance(value, torch.SymFloat):
            return converted(self._scalar(expression_of(value)), "float64")
        return self.dim(value) if isinstance(value, torch.SymInt) else value

    def dim(self, size: Size) -> Dim:
        """Return a size of torch as one of the graph. Raises: ModelError for what it cannot be."""
        if isinstance(size, int):
            return int(size)
        if not isinstance(size, torch.SymInt):
            raise ModelError(f"the number {size}, which a run computes, is no size")
        return self.dim_of(expression_of(size))

    def dim_of(self, expression: sympy.Basic) -> Dim:
        """Return an expression of sizes as one of the graph. Raises: ModelError as `dim`."""
        return normal_size(self._converted(expression))

    def _converted(self, expression: sympy.Basic) -> Dim:
        if expression in self._known:
            return self._known[expression]
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            raise ModelError(
                f"the size {expression} is decided by no input",
                hint="give one input an axis of exactly this size",
            )
        if _is_rounded(expression):
            return self._rounded(expression)
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

    def _rounded(self, expression: sympy.Basic) -> Dim:
        """Return a fraction of sizes, rounded."""
        (fraction,) = expression.args
        quotient = _quotient(fraction)
        if quotient is not None and type(expression) in _EXACTLY:
            above = normal_size(self._converted(quotient[0]))
            return _EXACTLY[type(expression)](convert(above), quotient[1])
        value = converted(self._scalar(fraction), "float64")
        whole = converted(_ROUNDED[type(expression)](value), "int64")
        self._known[expression] = self._measured(whole, _is_nonnegative(fraction))
        return self._known[expression]

    def _measured(self, whole: Node, is_size: bool) -> Dim:
        """Return the number in an int64 scalar; one that may be below 0 is made of two sizes."""
        if is_size:
            return self.computed.measure(whole)
        above, below = (
            self.computed.measure(elementwise.maximum(v, Constant.of(0, "int64")))
            for v in (whole, elementwise.negative(whole))
        )
        return convert(above) - below

    # ---- scalars ---------------------------------------------------------------------------------

    def _scalar(self, expression: sympy.Basic) -> Node:
        """Return a number that a run computes: int64 if it is a whole one, else float64."""
        if expression in self._fractions:
            return self._fractions[expression]
        if expression.is_integer:
            return sizes_node((normal_size(self._converted(expression)),), ())
        if expression.is_Number:
            return Constant.of(float(expression), "float64")
        name = type(expression).__name__
        parts = [converted(self._scalar(e), "float64") for e in expression.args]
        if name in _OF_ONE:
            return _OF_ONE[name](*parts)
        if name in _OF_TWO:
            return reduce(_OF_TWO[name], parts)
        raise ModelError(f"the number {expression} of sizes is not supported")


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

_ROUNDED: dict[type, Callable[[Node], Node]] = {
    functions.TruncToInt: lambda a: a,  # as the type is cast
    functions.FloorToInt: elementwise.floor,
    functions.CeilToInt: elementwise.ceil,
    functions.RoundToInt: elementwise.round,
}
"""Whole numbers made of others."""

_EXACTLY: dict[type, Callable[[Expr, int], Dim]] = {
    functions.TruncToInt: lambda a, b: _towards_zero(a, b),
    functions.FloorToInt: lambda a, b: a // b,
    functions.CeilToInt: lambda a, b: (a + (b - 1)) // b,
}
"""The same of a / b."""


def _towards_zero(a: Expr, b: int) -> Dim:
    if known_true(a >= 0):
        return a // b
    return maximum(a, 0) // b - maximum(-a, 0) // b


_OF_TWO: dict[str, Callable[[Node, Node], Node]] = {
    "Add": elementwise.add,
    "Mul": elementwise.multiply,
    "Max": elementwise.maximum,
    "Min": elementwise.minimum,
    "IntTrueDiv": elementwise.divide,
    "FloatTrueDiv": elementwise.divide,
    "FloatPow": elementwise.power,
    "Pow": elementwise.power,
}
"""By function, what fractions are made of; those of more than two apply from left to right."""

_OF_ONE: dict[str, Callable[[Node], Node]] = {
    "ToFloat": lambda a: a,
    "OpaqueUnaryFn_sqrt": elementwise.sqrt,
    "OpaqueUnaryFn_exp": elementwise.exp,
    "OpaqueUnaryFn_log": elementwise.log,
    "OpaqueUnaryFn_sin": elementwise.sin,
    "OpaqueUnaryFn_cos": elementwise.cos,
    "OpaqueUnaryFn_tanh": elementwise.tanh,
}


def _is_rounded(expression: sympy.Basic) -> bool:
    """True for a whole number that is rounded from another."""
    return type(expression) in _ROUNDED


def _is_nonnegative(expression: sympy.Basic) -> bool:
    """True for a number that is certainly not below 0."""
    if expression.is_nonnegative:
        return True
    name = type(expression).__name__
    if name not in _OF_TWO and name not in ("ToFloat", "OpaqueUnaryFn_sqrt"):
        return False
    return all(map(_is_nonnegative, expression.args))


def _quotient(expression: sympy.Basic) -> tuple[sympy.Basic, int] | None:
    """Return a and b of a fraction that floats hold as a / b, or come next to: a, b whole numbers.

    1.5 * n is 3 * n / 2. Rounding it down or up gives what rounding the float does.
    """
    if isinstance(expression, functions.ToFloat):
        return expression.args[0], 1
    if isinstance(expression, functions.IntTrueDiv):
        above, below = expression.args
        is_known = isinstance(below, sympy.Integer) and below > 0
        return (above, int(below)) if is_known else None
    if isinstance(expression, sympy.Mul) and len(expression.args) == 2:
        factor, number = expression.args
        if isinstance(factor, sympy.Float) and isinstance(number, functions.ToFloat):
            above, below = float(factor).as_integer_ratio()
            is_short = 0 < above <= _LONGEST and below <= SCALE_DENOMINATOR
            return (number.args[0] * above, below) if is_short else None
    return None
