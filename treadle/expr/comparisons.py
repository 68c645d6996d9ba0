# SPDX-License-Identifier: Apache-2.0
"""Comparisons, minima and maxima of integers, decided by bounds or brought to normal form."""

from __future__ import annotations

import math

from treadle.dtype import INDEX
from treadle.expr.affine import Affine, decompose
from treadle.expr.bounds import Bounds
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Binary, Const, Expr, binary, broadcast
from treadle.expr.vocabulary import BinaryOp


def chosen_extreme(e: Binary, bounds: Bounds) -> Expr | None:
    """Return the side that `min` or `max` always takes, None where it depends."""
    a, b = decompose(e.a), decompose(e.b)
    if not bounds.is_exact(a) or not bounds.is_exact(b):
        return None
    gap = bounds.of_sum(a.plus(b, -1))
    smaller, larger = (e.a, e.b) if e.op == "min" else (e.b, e.a)
    if gap.hi is not None and gap.hi <= 0:
        return smaller
    return larger if gap.lo is not None and gap.lo >= 0 else None


def compared(e: Binary, bounds: Bounds) -> Expr | None:
    """Return a comparison of integers decided, or in normal form; None where it stays.

    4 * i + 3 <= 4 * n  ->  i < n: terms are on the side where they are positive, without a common
    factor, and without a part that is too small to matter.
    """
    known = bounds.prove(e)
    if known is not None:
        return broadcast(Const.of(known, "bool"), e.lanes)
    if e.a.dtype != INDEX:
        return None
    if e.op in ("gt", "ge"):
        return binary("lt" if e.op == "gt" else "le", e.b, e.a)
    a, b = decompose(e.a), decompose(e.b)
    if not bounds.is_exact(a) or not bounds.is_exact(b):
        return None
    difference = a.plus(b, -1)
    if e.op == "le":
        difference = difference.plus(a.like({}, -1))
    op: BinaryOp = "lt" if e.op == "le" else e.op
    return _against_zero(op, _tightened(op, difference, bounds), bounds)


def _tightened(op: BinaryOp, d: Affine, bounds: Bounds) -> Affine:
    """Divide `d op 0` by the common factor, leaving out a part too small to matter."""
    divisor = math.gcd(*d.terms.values())
    if divisor > 1 and (op == "lt" or d.const % divisor == 0):
        d = d.like({a: k // divisor for a, k in d.terms.items()}, d.const // divisor)
    if op != "lt":
        return d
    for g in sorted({abs(k) for k in d.terms.values()}, reverse=True):
        if g == 1:
            break
        small = d.like({a: k for a, k in d.terms.items() if k % g}, d.const % g)
        if small.terms and Interval(0, g - 1).contains(bounds.plain_sum(small)):
            big = {a: k // g for a, k in d.terms.items() if k % g == 0}
            return _tightened(op, d.like(big, d.const // g), bounds)
    return d


def _against_zero(op: BinaryOp, d: Affine, bounds: Bounds) -> Expr | None:
    """Return `d op 0` with positive terms on the left and negative ones on the right."""
    left = d.like({a: k for a, k in d.terms.items() if k > 0}, 0)
    right = d.like({a: -k for a, k in d.terms.items() if k < 0}, 0)
    if op != "lt" and not left.terms:
        left, right = right, d.like({}, d.const)
    elif left.terms and (d.const <= 0 or not right.terms):
        right.const = -d.const
    else:
        left.const = d.const
    if not bounds.is_exact(left) or not bounds.is_exact(right):
        return None
    if op == "lt" and right.terms and right.const == 1:
        op, right.const = "le", 0
    return binary(op, left.to_expr(), right.to_expr())
