# SPDX-License-Identifier: Apache-2.0
"""What the loops and conditions around a statement say of its index expressions.

Intervals of single variables cannot tell that the tiles of a symbolic extent end inside it:
o < (n + f - 1) // f means o * f < n, which relates o to n. Here such inequalities are kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from treadle.dtype import INDEX
from treadle.expr import nodes as ex
from treadle.expr.affine import Affine, decompose
from treadle.expr.bounds import Ranges, assume
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier

_DEPTH = 5
"""Quotients and minima looked through in one proof."""
_MOST_GOALS = 48
"""Sums looked at in one proof at most: looked through in another order, they are others."""
_MOST_FACTS = 8
"""Inequalities taken from one loop or condition."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A condition that holds around a statement, or its contrary."""

    cond: Expr
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Iterating:
    """A loop around a statement: `var` runs over [0, extent)."""

    var: Var
    extent: Expr


Around = Sequence[Iterating | Holding]
"""The loops and conditions that a statement stands in, outermost first."""


class Facts:
    """Inequalities that hold inside loops and conditions."""

    def __init__(self, naturals: Iterable[Expr], around: Around) -> None:
        """`naturals` are sizes and extents that are not negative."""
        fixed = [e for e in dict.fromkeys(naturals) if not isinstance(e, Const)]
        ranges: Ranges = {e: Interval(0, None) for e in fixed if isinstance(e, Var)}
        self.sums = [decompose(e) for e in fixed if not isinstance(e, Var)]
        """Sums that are not negative."""
        for entry in around:
            known = Simplifier(ranges)
            if isinstance(entry, Iterating):
                extent = known.run(entry.extent)
                high = known.bounds.of(extent).hi
                ranges = {**ranges, entry.var: Interval(0, None if high is None else high - 1)}
                found = [extent - 1 - entry.var]
            else:
                ranges = assume(ranges, entry.cond, holds=entry.holds)
                found = _naturals(entry.cond, holds=entry.holds)
            for natural in found:
                self.sums += _consequences(natural, known)
        self.known = Simplifier(ranges)

    def are_ordered(self, a: Expr, b: Expr) -> bool:
        """True when a <= b is certain."""
        return self._is_natural(b - a, _DEPTH, {})

    def _is_natural(self, e: Expr, depth: int, tried: dict[Expr, int]) -> bool:
        """True when `e` is certainly not negative.

        `tried` are the sums that this proof could not tell of, and how deep it looked through each.
        """
        e = self.known.run(e)
        if tried.get(e, -1) >= depth or len(tried) >= _MOST_GOALS:
            return False
        if self.known.prove(e >= 0) is True:
            return True
        tried[e] = depth
        total = decompose(e)
        if depth and any(self._covers(total, fact) for fact in self.sums):
            return True
        return depth > 0 and any(
            all(self._is_natural(p, depth - 1, tried) for p in parts) for parts in _ways(total)
        )

    def _covers(self, total: Affine, fact: Affine) -> bool:
        """True when a sum is at least as large as one that is not negative."""
        low = self.known.bounds.of_sum(total.plus(fact, -1)).lo
        return low is not None and low >= 0


def _ways(total: Affine) -> Iterator[list[Expr]]:
    """Yield lists of expressions: where all of one are not negative, neither is the sum.

    Of a quotient a // d and integers r: a // d + r >= 0 is a + r * d >= 0, and r - a // d >= 0 is
    r * d + d - 1 - a >= 0; a - d + 1 <= a // d * d <= a.
    """
    for atom, factor, rest in _binary_terms(total):
        d = int_value(atom.b)
        if atom.op in ("min", "max"):
            sides = [rest + atom.a * factor, rest + atom.b * factor]
            is_least = (atom.op == "min") == (factor > 0)
            yield from [sides] if is_least else [[side] for side in sides]
        elif atom.op == "floordiv" and d is not None and d > 0:
            if factor == 1:
                yield [atom.a + rest * d]
            elif factor == -1:
                yield [rest * d + (d - 1) - atom.a]
            elif factor == d:
                yield [rest + atom.a - (d - 1)]
            elif factor == -d:
                yield [rest - atom.a]


def _binary_terms(total: Affine) -> Iterator[tuple[ex.Binary, int, Expr]]:
    """Yield the terms of a sum that may be looked into: (atom, factor, what else is added)."""
    for atom, factor in total.terms.items():
        if isinstance(atom, ex.Binary) and atom.op in ("min", "max", "floordiv"):
            terms = {t: k for t, k in total.terms.items() if t is not atom}
            yield atom, factor, total.like(terms, total.const).to_expr()


def _consequences(natural: Expr, known: Simplifier) -> list[Affine]:
    """Return sums that are not negative because `natural` is not, itself first.

    min(a, b) + r >= 0  ->  a + r >= 0, b + r >= 0;   a // d + r >= 0  ->  a + r * d >= 0
    """
    found: list[Affine] = []
    queue = [natural]
    while queue and len(found) < _MOST_FACTS:
        total = decompose(known.run(queue.pop(0)))
        found.append(total)
        for atom, factor, rest in _binary_terms(total):
            d = int_value(atom.b)
            if atom.op == "min" and factor > 0:
                queue += [rest + atom.a * factor, rest + atom.b * factor]
            elif atom.op == "floordiv" and factor == 1 and d is not None and d > 0:
                queue.append(atom.a + rest * d)
    return found


def _naturals(cond: Expr, *, holds: bool) -> list[Expr]:
    """Return what is not negative where a condition holds (or does not)."""
    if not isinstance(cond, ex.Binary):
        return []
    if cond.op == ("and" if holds else "or"):
        return [*_naturals(cond.a, holds=holds), *_naturals(cond.b, holds=holds)]
    if cond.a.dtype != INDEX:
        return []
    low, high = (cond.a, cond.b) if cond.op in ("lt", "le") else (cond.b, cond.a)
    if cond.op in ("lt", "gt"):
        return [high - low - 1 if holds else low - high]
    if cond.op in ("le", "ge"):
        return [high - low if holds else low - high - 1]
    return (
        [low - high, high - low] if (cond.op == "eq") == holds and cond.op in ("eq", "ne") else []
    )
