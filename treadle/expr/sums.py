# SPDX-License-Identifier: Apache-2.0
"""Sums of index arithmetic in normal form: quotients and remainders that belong together merge."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.expr.affine import Affine, decompose, product_of_sums, splat_value
from treadle.expr.division import Division
from treadle.expr.nodes import Binary, Expr

_MAX_PRODUCT_TERMS = 8


class Sums:
    """Brings sums to normal form under fixed bounds of variables."""

    def __init__(self, division: Division) -> None:
        self.division = division
        self._partners: dict[Expr, tuple[Expr, int] | None] = {}

    def normal(self, node: Expr, memo: Mapping[Expr, Expr]) -> Expr:
        """Return a maximal sum in normal form; `memo` has its atoms simplified."""
        total = decompose(node)
        for changed in total.terms:
            if memo.get(changed, changed) is not changed:
                source, total = total, total.like({}, total.const)
                for atom, coef in source.terms.items():
                    total = total.plus(decompose(memo.get(atom, atom)), coef)
                break
        return self.recombine(total).to_expr()

    def recombine(self, s: Affine) -> Affine:
        """(x // c) * c + x % c  ->  x, and the same for x // c * c * k + x % c * k.

        The divisor is a number or a size.
        """
        changed = True
        while changed:
            changed = False
            for atom, coef in s.terms.items():
                if not isinstance(atom, Binary) or atom.op != "floormod":
                    continue
                merged = self._merge_remainder(s, atom, coef)
                if merged is not None:
                    s, changed = merged, True
                    break
        return s

    def _merge_remainder(self, s: Affine, atom: Binary, coef: int) -> Affine | None:
        divisor = splat_value(atom.b)
        if divisor is None:
            return self._merge_symbolic(s, atom, coef)
        step = coef * divisor
        if divisor <= 0 or all(k % step for k in s.terms.values()):
            return None  # no term is a multiple of what the quotient would be
        if atom not in self._partners:
            self._partners[atom] = self._partner(atom, divisor)
        partner = self._partners[atom]
        found = None if partner is None else self._merge_pair(s, atom, coef, *partner, divisor)
        return self._merge_equal(s, atom, coef, divisor) if found is None else found

    def _partner(self, atom: Binary, divisor: int) -> tuple[Expr, int] | None:
        """Return (q, k) where the quotient that belongs to a remainder is k * q."""
        quotient = self.division.quotient(decompose(atom.a), divisor)
        if quotient.const or len(quotient.terms) != 1:
            return None
        ((partner, inner),) = quotient.terms.items()
        return partner, inner

    def _merge_symbolic(self, s: Affine, atom: Binary, coef: int) -> Affine | None:
        """x // n * n + x % n  ->  x: a remainder by 0 means nothing."""
        x, n = decompose(atom.a), decompose(atom.b)
        whole = product_of_sums(self.division.quotient_by_sum(x, n), n).times(coef)
        if not whole.terms or any(s.terms.get(a) != k for a, k in whole.terms.items()):
            return None
        return s.plus(whole, -1).plus(s.like({atom: coef}, 0), -1).plus(x, coef)

    def _merge_pair(
        self,
        s: Affine,
        atom: Binary,
        coef: int,
        partner: Expr,
        inner: int,
        divisor: int,
    ) -> Affine | None:
        """Merge atom = x % divisor with a term of x // divisor = partner * inner."""
        have = s.terms.get(partner)
        if have is not None and have == coef * divisor * inner:
            return _without(s, atom, partner).plus(decompose(atom.a), coef)
        if inner != 1:
            return None
        for other, have in s.terms.items():
            if have != coef * divisor or not isinstance(other, Binary) or other.op != "floormod":
                continue
            outer = splat_value(other.b)
            if other.a is partner and outer is not None and outer > 0:
                whole = self.division.remainder(decompose(atom.a), divisor * outer)
                return _without(s, atom, other).plus(whole, coef)
        return None

    def _merge_equal(self, s: Affine, atom: Binary, coef: int, divisor: int) -> Affine | None:
        """y // c * c + x % c  ->  y where y % c is x % c: multiples of c were dropped from x."""
        for other, have in s.terms.items():
            if have != coef * divisor or not isinstance(other, Binary) or other.op != "floordiv":
                continue
            if splat_value(other.b) != divisor:
                continue
            whole = decompose(other.a)
            remainder = self.division.remainder(whole, divisor)
            if remainder.terms == {atom: 1} and not remainder.const:
                return _without(s, atom, other).plus(whole, coef)
        return None


def _without(s: Affine, a: Expr, b: Expr) -> Affine:
    return s.like({x: k for x, k in s.terms.items() if x is not a and x is not b}, s.const)


def multiplied_out(e: Binary) -> Expr | None:
    """Multiply out a product of short sums: (i + 1) * n  ->  i * n + n."""
    a, b = decompose(e.a), decompose(e.b)
    if (len(a.terms) + bool(a.const)) * (len(b.terms) + bool(b.const)) > _MAX_PRODUCT_TERMS:
        return None
    return product_of_sums(a, b).to_expr()
