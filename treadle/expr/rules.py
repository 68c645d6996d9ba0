# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules of single nodes as a table of identities, and the matcher that applies them.

A row is (domain, pattern, result, condition). In a pattern `x`, `y`, `z` stand for any operand,
`c1`, `c2` for constants, numbers for themselves; a repeated name means the same node. Python's
operators stand for the nodes printed that way; min, max, truncdiv, truncmod and select are calls.
The domain says for which operand types the identity holds; the condition is on the constants.
What needs value ranges or sums of more than two terms is in simplify.py.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from treadle.dtype import is_integer
from treadle.expr.fold import fold_binary, fold_call
from treadle.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Const,
    Expr,
    Select,
    binary,
    broadcast,
    call,
    select,
)
from treadle.expr.vocabulary import BinaryOp

Domain = Literal["any", "int", "float", "bool"]
Row = tuple[Domain, str, str] | tuple[Domain, str, str, Callable[..., bool]]


def _has_exact_reciprocal(c1: float) -> bool:
    mantissa, exponent = math.frexp(c1) if math.isfinite(c1) else (0.0, 0)
    return abs(mantissa) == 0.5 and -10 < exponent < 12  # 1 / c1 is normal in every float type


RULES: tuple[Row, ...] = (
    # Integers: arithmetic modulo 2**bits.
    ("int", "x + 0", "x"),
    ("int", "x - 0", "x"),
    ("int", "x - x", "0"),
    ("int", "x * 1", "x"),
    ("int", "x * 0", "0"),
    ("int", "(x + c1) + c2", "x + (c1 + c2)"),
    ("int", "(x - c1) + c2", "x + (c2 - c1)"),
    ("int", "(x + c1) - c2", "x + (c1 - c2)"),
    ("int", "(x - c1) - c2", "x - (c1 + c2)"),
    ("int", "(c1 - x) + c2", "(c1 + c2) - x"),
    ("int", "(c1 - x) - c2", "(c1 - c2) - x"),
    ("int", "c1 - (x + c2)", "(c1 - c2) - x"),
    ("int", "c1 - (x - c2)", "(c1 + c2) - x"),
    ("int", "(x + y) - x", "y"),
    ("int", "(x + y) - y", "x"),
    ("int", "(x - y) + y", "x"),
    ("int", "y + (x - y)", "x"),
    ("int", "(x * c1) * c2", "x * (c1 * c2)"),
    ("int", "x // 1", "x"),
    ("int", "x % 1", "0"),
    ("int", "truncdiv(x, 1)", "x"),
    ("int", "truncmod(x, 1)", "0"),
    # Integers: bits.
    ("int", "x & 0", "0"),
    ("int", "x & x", "x"),
    ("int", "(x & c1) & c2", "x & (c1 & c2)"),
    ("int", "x | 0", "x"),
    ("int", "x | x", "x"),
    ("int", "(x | c1) | c2", "x | (c1 | c2)"),
    ("int", "x ^ 0", "x"),
    ("int", "x ^ x", "0"),
    ("int", "(x ^ c1) ^ c2", "x ^ (c1 ^ c2)"),
    ("int", "x << 0", "x"),
    ("int", "x >> 0", "x"),
    # Integers: the lattice of min and max (with floats, NaN breaks absorption).
    ("int", "min(min(x, c1), c2)", "min(x, min(c1, c2))"),
    ("int", "max(max(x, c1), c2)", "max(x, max(c1, c2))"),
    ("int", "max(min(x, c1), c2)", "c2", lambda c1, c2: c1 <= c2),
    ("int", "min(max(x, c1), c2)", "c2", lambda c1, c2: c1 >= c2),
    ("int", "min(x, max(x, y))", "x"),
    ("int", "min(x, max(y, x))", "x"),
    ("int", "min(max(x, y), x)", "x"),
    ("int", "min(max(x, y), y)", "y"),
    ("int", "max(x, min(x, y))", "x"),
    ("int", "max(x, min(y, x))", "x"),
    ("int", "max(min(x, y), x)", "x"),
    ("int", "max(min(x, y), y)", "y"),
    ("int", "c1 < max(x, c2)", "c1 < x", lambda c1, c2: c1 >= c2),
    ("any", "min(x, x)", "x"),
    ("any", "max(x, x)", "x"),
    ("any", "min(min(x, y), x)", "min(x, y)"),
    ("any", "min(min(x, y), y)", "min(x, y)"),
    ("any", "min(x, min(x, y))", "min(x, y)"),
    ("any", "min(y, min(x, y))", "min(x, y)"),
    ("any", "max(max(x, y), x)", "max(x, y)"),
    ("any", "max(max(x, y), y)", "max(x, y)"),
    ("any", "max(x, max(x, y))", "max(x, y)"),
    ("any", "max(y, max(x, y))", "max(x, y)"),
    # Floats: x + 0.0 is not x for -0.0, x * 0.0 is not 0.0 for infinities and NaN.
    ("float", "x * 1.0", "x"),
    ("float", "x / 1.0", "x"),
    ("float", "x - 0.0", "x"),
    ("float", "x + -0.0", "x"),
    ("float", "x / c1", "x * (1.0 / c1)", _has_exact_reciprocal),
    # Logic.
    ("bool", "x and True", "x"),
    ("bool", "x and False", "False"),
    ("bool", "x or False", "x"),
    ("bool", "x or True", "True"),
    ("bool", "x and x", "x"),
    ("bool", "x or x", "x"),
    ("bool", "x and (not x)", "False"),
    ("bool", "(not x) and x", "False"),
    ("bool", "x or (not x)", "True"),
    ("bool", "(not x) or x", "True"),
    ("bool", "x and (x and y)", "x and y"),
    ("bool", "x and (y and x)", "y and x"),
    ("bool", "(x and y) and x", "x and y"),
    ("bool", "(x and y) and y", "x and y"),
    ("bool", "x or (x or y)", "x or y"),
    ("bool", "x or (y or x)", "y or x"),
    ("bool", "(x or y) or x", "x or y"),
    ("bool", "(x or y) or y", "x or y"),
    ("bool", "x and (x or y)", "x"),
    ("bool", "x and (y or x)", "x"),
    ("bool", "(x or y) and x", "x"),
    ("bool", "(x or y) and y", "y"),
    ("bool", "x or (x and y)", "x"),
    ("bool", "x or (y and x)", "x"),
    ("bool", "(x and y) or x", "x"),
    ("bool", "(x and y) or y", "y"),
    ("bool", "x == True", "x"),
    ("bool", "x == False", "not x"),
    ("bool", "x != True", "not x"),
    ("bool", "x != False", "x"),
    ("bool", "x == x", "True"),
    ("bool", "x != x", "False"),
    ("bool", "not (not x)", "x"),
    ("any", "not (x == y)", "x != y"),
    ("any", "not (x != y)", "x == y"),
    ("int", "not (x < y)", "y <= x"),
    ("int", "not (x <= y)", "y < x"),
    ("int", "not (x > y)", "x <= y"),
    ("int", "not (x >= y)", "x < y"),
    # Choice.
    ("any", "select(True, x, y)", "x"),
    ("any", "select(False, x, y)", "y"),
    ("any", "select(z, x, x)", "x"),
    ("any", "select(not z, x, y)", "select(z, y, x)"),
    ("any", "select(z, select(z, x, y), w)", "select(z, x, w)"),
    ("any", "select(z, w, select(z, x, y))", "select(z, w, y)"),
    ("bool", "select(z, True, False)", "z"),
    ("bool", "select(z, False, True)", "not z"),
)
"""The identities, tried from top to bottom among those of the same operator."""


Env = dict[str, Expr]
Matcher = Callable[[Expr, Env], bool]
Builder = Callable[[Env, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled row; `text` is what debugging prints."""

    text: str
    domain: Domain
    matches: Matcher
    build: Builder
    condition: Callable[..., bool] | None

    def apply(self, e: Expr) -> Expr | None:
        """Return the result of this rule at `e`, None where it does not apply."""
        env: Env = {}
        if not self.matches(e, env) or not self._holds(env):
            return None
        result = self.build(env, e)
        return broadcast(result, e.lanes) if result.lanes == 1 else result

    def _holds(self, env: Env) -> bool:
        if self.condition is None:
            return True
        names = self.condition.__code__.co_varnames[: self.condition.__code__.co_argcount]
        return self.condition(*(_constant_of(env[n]) for n in names))


def apply_rules(e: Expr) -> Expr | None:
    """Return the node the first fitting rule makes of `e` (operands done), None where none fits."""
    head = e.op if isinstance(e, Binary) else e.name if isinstance(e, Call) else _head(e)
    table = _INDEX.get((head, _domain(e)))
    for rule in table or ():
        result = rule.apply(e)
        if result is not None:
            return result
    return None


def _head(e: Expr) -> str:
    return "select" if isinstance(e, Select) else ""


def _domain(e: Expr) -> Domain:
    """Return the kind of values an identity at this node is about."""
    first = e
    if isinstance(e, Binary):
        first = e.a
    elif isinstance(e, Call):
        inner = e.args[0]
        first = inner.a if isinstance(inner, Binary) else inner
    dtype = first.dtype
    return "int" if is_integer(dtype) else "bool" if dtype == "bool" else "float"


def _constant_of(e: Expr) -> int | float | bool | None:
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, Const) else None


_OPERATORS: Mapping[type, BinaryOp] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.And: "and",
    ast.Or: "or",
}


def _parse(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Return the head and the operands of a pattern: ("name", []), ("number", []), ("add", ...)."""
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.Compare):
        return _OPERATORS[type(node.ops[0])], [node.left, node.comparators[0]]
    if isinstance(node, ast.BoolOp):
        return _OPERATORS[type(node.op)], node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return "not", [node.operand]
    if isinstance(node, ast.Call):
        return cast(ast.Name, node.func).id, node.args
    return ("name" if isinstance(node, ast.Name) else "number"), []


def _matcher(node: ast.expr) -> Matcher:
    head, operands = _parse(node)
    if head == "name":
        return _match_name(cast(ast.Name, node).id)
    if head == "number":
        return _match_number(ast.literal_eval(node))
    parts = [_matcher(o) for o in operands]
    if head == "select":
        return _match_select(parts)
    if head == "not":
        return lambda e, env: isinstance(e, Call) and e.name == "not" and parts[0](e.args[0], env)
    left, right = parts
    return lambda e, env: (
        isinstance(e, Binary) and e.op == head and left(e.a, env) and right(e.b, env)
    )


def _match_select(parts: list[Matcher]) -> Matcher:
    def match(e: Expr, env: Env) -> bool:
        if not isinstance(e, Select):
            return False
        outer = cast(Select | None, env.setdefault("select", e))
        same = isinstance(outer, Select) and outer.lazy == e.lazy  # strict must not become lazy
        return same and all(
            p(c, env) for p, c in zip(parts, (e.cond, e.then, e.other), strict=True)
        )

    return match


def _match_name(name: str) -> Matcher:
    constant = name.startswith("c")

    def match(e: Expr, env: Env) -> bool:
        if constant and _constant_of(e) is None:
            return False
        return env.setdefault(name, e) is e

    return match


def _match_number(number: float | bool) -> Matcher:
    def match(e: Expr, env: Env) -> bool:
        value = _constant_of(e)
        if value is None or value != number:
            return False
        return not isinstance(value, float) or math.copysign(1, value) == math.copysign(1, number)

    return match


def _builder(node: ast.expr) -> Builder:
    head, operands = _parse(node)
    if head == "name":
        name = cast(ast.Name, node).id
        return lambda env, e: env[name]
    if head == "number":
        number = ast.literal_eval(node)
        return lambda env, e: Const.of(number, e.dtype)
    parts = [_builder(o) for o in operands]
    return lambda env, e: _fold(head, [p(env, e) for p in parts], e)


def _fold(head: str, args: list[Expr], e: Expr) -> Expr:
    if head == "select":
        return select(args[0], args[1], args[2], lazy=isinstance(e, Select) and e.lazy)
    if head == "not":
        made = call("not", args[0])
        return (isinstance(made, Call) and fold_call(made)) or made
    scalars = [a.value if isinstance(a, Broadcast) else a for a in args]
    if all(isinstance(s, Const) for s in scalars):
        made = binary(cast(BinaryOp, head), scalars[0], scalars[1])
        folded = fold_binary(made) if isinstance(made, Binary) else None
        if folded is not None:
            return broadcast(folded, max(a.lanes for a in args))
    return binary(cast(BinaryOp, head), args[0], args[1])


def _compile() -> Iterator[tuple[str, Rule]]:
    for row in RULES:
        domain, pattern, result = row[:3]
        tree = ast.parse(pattern, mode="eval").body
        condition = row[3] if len(row) == 4 else None
        build = _builder(ast.parse(result, mode="eval").body)
        text = f"{pattern} -> {result}"
        yield _parse(tree)[0], Rule(text, domain, _matcher(tree), build, condition)


def _index() -> dict[tuple[str, Domain], list[Rule]]:
    table: dict[tuple[str, Domain], list[Rule]] = {}
    every: tuple[Domain, ...] = ("int", "float", "bool")
    for head, rule in _compile():
        for domain in every if rule.domain == "any" else (rule.domain,):
            table.setdefault((head, domain), []).append(rule)
    return table


_INDEX = _index()
