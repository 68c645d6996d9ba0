# SPDX-License-Identifier: Apache-2.0
"""Every row of the rule table: an identity over all small values, and it fires."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable

import pytest

from tests.expr.evaluate import integer, wrap
from treadle.expr.nodes import Const, Expr, Var, binary, call, select
from treadle.expr.rules import RULES, apply_rules

pytestmark = pytest.mark.tiny

DOMAINS = {
    "int": [*range(-128, 128, 17), -1, 0, 1, 2, 3, 127],
    "bool": [False, True],
    "float": [-math.inf, -1.5, -1.0, -0.0, 0.0, 1.0, 3.0, math.inf, math.nan],
}
CONSTANTS = {"int": [-128, -3, 0, 1, 5, 127], "bool": [False, True], "float": [0.5, 2.0, -4.0, 3.0]}
DTYPES = {"int": "int8", "bool": "bool", "float": "float32"}
OPS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor",
    ast.LShift: "shl", ast.RShift: "shr", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt",
    ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.And: "and", ast.Or: "or",
}  # fmt: skip

ROWS = [
    (domain, *row[1:])
    for row in RULES
    for domain in (("int", "bool", "float") if row[0] == "any" else (row[0],))
    if not (domain == "bool" and row[1].startswith(("min", "max")))
]


def _float_extreme(pick: Callable[..., float]) -> Callable[[float, float], float]:
    def extreme(a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b):
            return math.nan
        return pick(a, b, key=lambda v: (v, math.copysign(1, v)))  # minus zero is the smaller

    return extreme


def _meanings(domain: str) -> dict[str, object]:
    return {
        "min": min if domain == "int" else _float_extreme(min),
        "max": max if domain == "int" else _float_extreme(max),
        "truncdiv": lambda a, b: integer("truncdiv", a, b),
        "truncmod": lambda a, b: integer("truncmod", a, b),
        "select": lambda c, a, b: a if c else b,
    }


def _names(text: str) -> list[str]:
    found = (n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name))
    return sorted({n for n in found if len(n) <= 2})


def _same(a: object, b: object, domain: str) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return bool(a) == bool(b)
    if domain == "int":
        return wrap(int(a), "int8") == wrap(int(b), "int8")
    assert isinstance(a, float)
    assert isinstance(b, float)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1, a) == math.copysign(1, b)


def _condition_holds(row: tuple, env: dict[str, object]) -> bool:
    if len(row) < 4:
        return True
    names = row[3].__code__.co_varnames[: row[3].__code__.co_argcount]
    return bool(row[3](*(env[n] for n in names)))


def _values(name: str, domain: str) -> list[object]:
    if name == "z":
        return [False, True]
    return list(CONSTANTS[domain] if name.startswith("c") else DOMAINS[domain])


@pytest.mark.parametrize("row", ROWS, ids=[f"{r[0]}: {r[1]}" for r in ROWS])
def test_is_an_identity(row: tuple) -> None:
    domain, pattern, result = row[:3]
    names = _names(pattern)
    before, after = compile(pattern, "pattern", "eval"), compile(result, "result", "eval")
    checked = 0
    for values in itertools.product(*(_values(n, domain) for n in names)):
        env = dict(zip(names, values, strict=True))
        if not _condition_holds(row, env):
            continue
        scope = {**_meanings(domain), **env}
        assert _same(eval(before, scope), eval(after, scope), domain), env
        checked += 1
    assert checked


def _expression(node: ast.expr, domain: str, leaves: dict[str, Expr]) -> Expr:
    def inner(n: ast.expr) -> Expr:
        return _expression(n, domain, leaves)

    if isinstance(node, ast.Name):
        return leaves[node.id]
    if isinstance(node, ast.BinOp):
        return binary(OPS[type(node.op)], inner(node.left), inner(node.right))
    if isinstance(node, ast.Compare):
        op = OPS[type(node.ops[0])]
        return binary(op, inner(node.left), inner(node.comparators[0]))
    if isinstance(node, ast.BoolOp):
        return binary(OPS[type(node.op)], *map(inner, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return call("not", inner(node.operand))
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        args = [inner(a) for a in node.args]
        if node.func.id == "select":
            return select(*args)
        return binary(node.func.id, *args)
    value = ast.literal_eval(node)
    return Const.of(value, "bool" if isinstance(value, bool) else DTYPES[domain])


@pytest.mark.parametrize("row", ROWS, ids=[f"{r[0]}: {r[1]}" for r in ROWS])
def test_fires(row: tuple) -> None:
    domain, pattern = row[0], row[1]
    names = _names(pattern)
    leaves: dict[str, Expr] = {
        n: Var(n, "bool" if n == "z" else DTYPES[domain]) for n in names if not n.startswith("c")
    }
    constants = [n for n in names if n.startswith("c")]
    for values in itertools.product(*(CONSTANTS[domain] for _ in constants)):
        env = dict(zip(constants, values, strict=True))
        if _condition_holds(row, env):
            chosen = {n: Const.of(v, DTYPES[domain]) for n, v in env.items()}
            e = _expression(ast.parse(pattern, mode="eval").body, domain, {**leaves, **chosen})
            fresh = apply_rules(e)
            assert fresh is not None, e
            assert fresh is not e
            assert fresh.dtype == e.dtype
            return
    pytest.fail("no constants meet the condition")
