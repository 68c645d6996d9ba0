# SPDX-License-Identifier: Apache-2.0
"""Conditions that are made of several, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.expr.nodes import Binary, Const, Expr, binary


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
