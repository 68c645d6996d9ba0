# SPDX-License-Identifier: Apache-2.0
"""Conditions that are made of several, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.dtype import is_integer
from treadle.expr.nodes import Binary, Call, Const, Expr, binary, maximum, minimum


def conjuncts(e: Expr) -> list[Expr]:
    """Return the conditions that `e` is the conjunction of."""
    if isinstance(e, Binary) and e.op == "and":
        return conjuncts(e.a) + conjuncts(e.b)
    return [e]


def all_of(conditions: Iterable[Expr]) -> Expr:
    """Return the conjunction of bool expressions (true when there are none)."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else binary("and", result, condition)
    return Const.of(True, "bool") if result is None else result


def any_of(conditions: Iterable[Expr]) -> Expr:
    """Return the disjunction of bool expressions (false when there are none)."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else binary("or", result, condition)
    return Const.of(False, "bool") if result is None else result


def as_number(cond: Expr) -> Expr | None:
    """Return 1 or 0 as arithmetic for a condition on integers; None where it is no comparison.

    n < 9 and m < 17  ->  min(max(9 - n, 0), 1) * min(max(17 - m, 0), 1)
    """
    if isinstance(cond, Const):
        return Const.of(int(bool(cond.value)))
    if isinstance(cond, Call) and cond.name == "not":
        inner = as_number(cond.args[0])
        return None if inner is None else 1 - inner
    if not isinstance(cond, Binary):
        return None
    if cond.op in ("and", "or"):
        a, b = as_number(cond.a), as_number(cond.b)
        if a is None or b is None:
            return None
        return a * b if cond.op == "and" else maximum(a, b)
    if not is_integer(cond.a.dtype):
        return None
    if cond.op in ("eq", "ne"):
        differ = minimum(maximum(cond.a - cond.b, cond.b - cond.a), 1)
        return differ if cond.op == "ne" else 1 - differ
    if cond.op not in ("lt", "le", "gt", "ge"):
        return None
    low, high = (cond.a, cond.b) if cond.op in ("lt", "le") else (cond.b, cond.a)
    room = high - low + (1 if cond.op in ("le", "ge") else 0)
    return minimum(maximum(room, 0), 1)
