# SPDX-License-Identifier: Apache-2.0
"""A second, direct reading of what expressions mean, on Python numbers: the oracle of this folder.

Vectors are tuples. A value that the law of the nodes leaves undefined (division by zero) is None,
and so is everything that uses it, but for the branch a select does not choose.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from treadle.dtype import bits, is_float
from treadle.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Ramp,
    Select,
    Var,
    binary,
    broadcast,
    call,
    ramp,
    select,
)
from treadle.expr.traversal import walk
from treadle.expr.vocabulary import COMPARE_OPS

Scalar = int | float | bool
Value = Scalar | tuple[Scalar, ...] | None


def evaluate(e: Expr, variables: Mapping[Var, Scalar]) -> Value:
    """Return the value of an expression."""
    values: dict[Expr, Value] = {}
    for node in walk(e):
        values[node] = _node(node, values, variables)
    return values[e]


def wrap(value: int, dtype: str) -> int:
    """Return the integer of `dtype` congruent to `value`."""
    value &= (1 << bits(dtype)) - 1
    signed = dtype.startswith("int") and value >> (bits(dtype) - 1)
    return value - (1 << bits(dtype)) if signed else value


def _node(e: Expr, values: Mapping[Expr, Value], variables: Mapping[Var, Scalar]) -> Value:
    if isinstance(e, Var):
        return variables[e]
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Select):
        return _select(e, values)
    operands = [values[c] for c in e.children]
    if any(o is None or (isinstance(o, tuple) and None in o) for o in operands):
        return None
    if isinstance(e, Broadcast):
        return (operands[0],) * e.lanes
    if isinstance(e, Ramp):
        return tuple(operands[0] + lane * operands[1] for lane in range(e.lanes))
    if e.lanes == 1:
        return _scalar(e, operands)
    lanes = [_scalar(e, list(lane)) for lane in zip(*operands, strict=True)]
    return None if None in lanes else tuple(lanes)


def _select(e: Select, values: Mapping[Expr, Value]) -> Value:
    cond, then, other = values[e.cond], values[e.then], values[e.other]
    if cond is None:
        return None
    if not isinstance(cond, tuple):
        return then if cond else other
    lanes = [(then if c else other) for c in cond]
    if None in lanes:
        return None
    return tuple(v[k] for k, v in enumerate(lanes))


def _scalar(e: Expr, operands: list[Scalar]) -> Scalar | None:
    if isinstance(e, Cast):
        return wrap(int(operands[0]), e.dtype) if e.dtype != "bool" else operands[0] != 0
    if isinstance(e, Call):
        assert e.name == "not", f"no meaning for {e}"
        return not operands[0]
    assert isinstance(e, Binary)
    a, b = operands
    if e.op in COMPARE_OPS:
        return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[
            e.op
        ]
    if e.op in ("and", "or"):
        return (a and b) if e.op == "and" else (a or b)
    assert not is_float(e.dtype)
    result = integer(e.op, int(a), int(b))
    return None if result is None else wrap(result, e.dtype)


def integer(op: str, a: int, b: int) -> int | None:
    """Return the exact result of an integer operation, None for a zero divisor."""
    if op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        if b == 0:
            return None
        quotient = a // b if op.startswith("floor") else abs(a) // abs(b) * _sign(a * b)
        return quotient if op.endswith("div") else a - b * quotient
    return {
        "add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b),
        "bitand": a & b, "bitor": a | b, "bitxor": a ^ b,
    }[op]  # fmt: skip


def _sign(x: int) -> int:
    return -1 if x < 0 else 1


class Generator:
    """Random expressions of one dtype and lane count over given variables."""

    def __init__(
        self, chance: random.Random, variables: list[Var], dtype: str = "int64", lanes: int = 1
    ) -> None:
        self.chance, self.variables, self.dtype, self.lanes = chance, variables, dtype, lanes

    def number(self, depth: int) -> Expr:
        """Return an integer expression."""
        if depth == 0 or self.chance.random() < 0.1:
            return self._leaf()
        a, b = self.number(depth - 1), self.number(depth - 1)
        kind = self.chance.randrange(8)
        if kind <= 1:
            return binary(self.chance.choice(("add", "sub")), a, b)
        if kind == 2:
            return a * self.chance.choice((2, 3, 4, 8, 16, -1, -4))
        if kind == 3:
            return a * b
        if kind == 4:
            divisor = self.chance.choice((1, 2, 3, 4, 6, 8, 16, -4))
            return binary(self.chance.choice(("floordiv", "floormod")), a, divisor)
        if kind == 5:
            op = self.chance.choice(("floordiv", "floormod", "truncdiv", "truncmod"))
            return binary(op, a, b)
        if kind == 6:
            return binary(self.chance.choice(("min", "max")), a, b)
        lazy = self.lanes == 1 and self.chance.random() < 0.5
        return select(self.condition(depth - 1), a, b, lazy=lazy)

    def condition(self, depth: int) -> Expr:
        """Return a bool expression."""
        if depth <= 0 or self.chance.random() < 0.6:
            op = self.chance.choice(("lt", "le", "gt", "ge", "eq", "ne"))
            return binary(op, self.number(max(depth - 1, 0)), self.number(max(depth - 1, 0)))
        if self.chance.random() < 0.2:
            return call("not", self.condition(depth - 1))
        op = self.chance.choice(("and", "or"))
        return binary(op, self.condition(depth - 1), self.condition(depth - 1))

    def _leaf(self) -> Expr:
        if self.chance.random() < 0.35:
            value = self.chance.choice((0, 1, 2, 3, 4, 5, 7, 8, 12, 16, -1, -2, -4))
            return broadcast(Const.of(value, self.dtype), self.lanes)
        variable = self.chance.choice(self.variables)
        if self.lanes > 1 and self.chance.random() < 0.5:
            base = variable if self.chance.random() < 0.5 else self.chance.randint(-3, 8)
            return ramp(base, self.chance.choice((1, 1, 2, 4, 8, -1)), self.lanes)
        return broadcast(variable, self.lanes)
