# SPDX-License-Identifier: Apache-2.0
"""Quotients and remainders of integers: which form of division applies to which operands."""

from __future__ import annotations

from typing import cast

from treadle.dtype import INDEX
from treadle.expr.affine import Affine, decompose, splat_value
from treadle.expr.bounds import Bounds
from treadle.expr.division import Division, DivisionOp
from treadle.expr.nodes import Binary, Const, Expr, binary, broadcast
from treadle.expr.sums import Sums


def divided(e: Binary, bounds: Bounds, sums: Sums) -> Expr | None:
    """Return a quotient or remainder of integers simplified, None where it stays.

    `sums` and `bounds` know the same of the variables.
    """
    op, division = e.op, sums.division
    if op in ("truncdiv", "truncmod"):
        if not (_is_natural(e.a, bounds) and _is_natural(e.b, bounds)):
            return None
        return binary("floordiv" if op == "truncdiv" else "floormod", e.a, e.b)
    if e.dtype != INDEX:
        return _data_division(e, bounds)
    divisor = splat_value(e.b)
    a = decompose(e.a)
    if divisor is None:
        made = division.by_sum(cast(DivisionOp, op), a, decompose(e.b))
        return None if made is None else made.to_expr()
    if divisor == 0:
        return None
    if divisor < 0:
        return _negative_division(e, a, divisor, bounds, division)
    result = division.quotient if op == "floordiv" else division.remainder
    return sums.recombine(result(a, divisor)).to_expr()


def _data_division(e: Binary, bounds: Bounds) -> Expr | None:
    """x // c and x % c of other types where every x has the same quotient."""
    divisor, x = splat_value(e.b), bounds.of(e.a)
    if divisor is None or divisor <= 0 or x.lo is None or x.hi is None:
        return None
    quotient = x.lo // divisor
    if quotient != x.hi // divisor:
        return None
    if e.op == "floordiv":
        return broadcast(Const.of(quotient, e.dtype), e.lanes)
    return e.a if quotient == 0 else None


def _negative_division(
    e: Binary, a: Affine, divisor: int, bounds: Bounds, division: Division
) -> Expr | None:
    """x // -c  ->  -x // c  and  x % -c  ->  -(-x % c)."""
    flipped = a.times(-1)
    if not bounds.is_exact(a) or not bounds.is_exact(flipped):
        return None
    if e.op == "floordiv":
        return division.quotient(flipped, -divisor).to_expr()
    return division.remainder(flipped, -divisor).times(-1).to_expr()


def _is_natural(e: Expr, bounds: Bounds) -> bool:
    lo = bounds.of(e).lo
    return lo is not None and lo >= 0
