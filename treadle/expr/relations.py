# SPDX-License-Identifier: Apache-2.0
"""Bounds of sums that follow from inequalities between variables: i < n in a loop of n iterations.

A relation is a sum that is never positive, such as i - n + 1. What is left of a sum after taking
away a multiple of a relation is no smaller than the sum, and may have a known bound:

    i + j*n - m*n  where i < n, j < m, n >= 0
    <=  (n - 1) + j*n - m*n  <=  (n - 1) + (m - 1)*n - m*n  =  -1

Minima, maxima, quotients and remainders bring their own relations along: min(a, b) <= a.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from treadle.dtype import INDEX
from treadle.expr.affine import (
    Affine,
    decompose,
    factors,
    monomial,
    product_of_sums,
    splat_value,
)
from treadle.expr.nodes import Binary, Expr, Select

_MOST_STEPS = 7
"""Relations that are added up at most."""
_MOST_SUMS = 24
"""Sums looked at for one bound at most."""
_COST_OF_MORE = 4
"""Sums that one with a bound already counts for: a better one is worth less than the first."""


class Relations:
    """Finds upper bounds of index sums from sums that are never positive."""

    def __init__(
        self,
        facts: Iterable[tuple[Affine, int | None, int | None]],
        plain_bound: Callable[[Affine], int | None],
        limits: Callable[[Expr], tuple[int | None, int | None]],
    ) -> None:
        """`facts` are sums with the least and the largest value of each.

        `limits` are those of an atom, `plain_bound` is the upper bound of a sum by them alone.
        """
        self.plain_bound = plain_bound
        self._limits = limits
        self._known: dict[tuple[Expr, bool], list[Affine]] = {}
        stated = _never_positive(facts)
        for relation in (*reversed(stated), *_dividends(stated)):  # those of inner loops first
            for atom, coef in relation.terms.items():
                self._known.setdefault((atom, coef > 0), []).append(relation)
        self._related: dict[tuple[Expr, bool], bool] = {}
        self._replacing: dict[tuple[Expr, bool], list[tuple[Affine, int]]] = {}

    def upper_bound(self, s: Affine) -> int | None:
        """Return a number that the exact value of an index sum never exceeds, None if unknown.

        Where no bound of the sum is found it is that of a multiple of it.
        A quotient x // c has relations as c times it: c * (x // c) <= x.
        """
        found = _Search(self, _MOST_SUMS).bound(s, _MOST_STEPS)
        if found is not None:
            return found
        for c in _number_divisors(s):
            multiple = _Search(self, _MOST_SUMS).bound(s.times(c), _MOST_STEPS)
            if multiple is not None:
                return multiple // c
        return None

    def has_relations(self, product: Expr, from_above: bool) -> bool:
        """True for a term that relations may replace."""
        key = (product, from_above)
        if key not in self._related:
            self._related[key] = self._has_relations(product, from_above)
        return self._related[key]

    def _has_relations(self, product: Expr, from_above: bool) -> bool:
        parts = factors(product) if product.lanes == 1 else [product]
        related = ((p, from_above) in self._known or _has_implied(p) for p in (product, *parts))
        return len(parts) > 1 or any(related)

    def is_known(self, term: Expr, from_above: bool) -> bool:
        """True for a term that facts speak of, or one of two sums by what it is."""
        is_extreme = isinstance(term, Binary) and term.op in ("min", "max")
        return is_extreme or (term, from_above) in self._known

    def is_unbounded(self, product: Expr, from_above: bool) -> bool:
        """True for a term without a number that it never passes."""
        low, high = self._limits(product)
        return (high if from_above else low) is None

    def smaller_sums(self, s: Affine, product: Expr) -> Iterator[Affine]:
        """Return sums that are never below `s`, with a term replaced by its bound."""
        coef = s.terms[product]
        key = (product, coef > 0)
        if key not in self._replacing:
            self._replacing[key] = list(self._replacements(*key))
        for relation, unit in self._replacing[key]:
            times, remainder = divmod(coef, unit)
            if not remainder:
                yield s.plus(relation, -times)

    def _replacements(self, product: Expr, from_above: bool) -> Iterator[tuple[Affine, int]]:
        """Return relations that bound a term, each with its coefficient of the term."""
        for atom, rest in _splits(product):
            if rest and not all(map(self.is_natural, rest)):
                continue
            known = list(self._known.get((atom, from_above), ()))
            known += self._limit(atom, from_above) if rest else ()
            for relation in (*known, *self._implied(atom, from_above)):
                yield _scaled(relation, rest), relation.terms[atom]

    def is_natural(self, e: Expr) -> bool:
        """True for an atom that is never negative."""
        low, _ = self._limits(e)
        return low is not None and low >= 0

    def _limit(self, atom: Expr, from_above: bool) -> Iterable[Affine]:
        """Return the relation of an atom with the number it never passes."""
        low, high = self._limits(atom)
        limit = high if from_above else low
        if limit is None:
            return ()
        sign = 1 if from_above else -1
        return (Affine({atom: sign}, -sign * limit),)

    def _implied(self, atom: Expr, from_above: bool) -> Iterable[Affine]:
        """Return relations that an atom fulfils by what it is, with its sign as asked for."""
        if not isinstance(atom, Binary) or atom.dtype != INDEX or atom.lanes != 1:
            return ()
        sign = 1 if from_above else -1
        this = Affine({atom: sign})
        a, b = decompose(atom.a), decompose(atom.b)
        if atom.op == ("min" if from_above else "max"):
            return (this.plus(a, -sign), this.plus(b, -sign))
        if atom.op == "floormod" and from_above and self.is_natural(atom.b):
            below = this.plus(b, -1).plus(Affine({}, 1))
            return (below, this.plus(a, -1)) if self.is_natural(atom.a) else (below,)
        if atom.op == "floordiv":
            return self._quotient(atom, sign)
        return ()

    def _quotient(self, atom: Binary, sign: int) -> Iterable[Affine]:
        """x // c * c <= x <= x // c * c + c - 1, and x // n <= x where both are natural."""
        x, c = decompose(atom.a), splat_value(atom.b)
        if c is not None and c > 0:
            slack = Affine({}, 0 if sign > 0 else 1 - c)
            return (Affine({atom: sign * c}).plus(x, -sign).plus(slack),)
        if sign > 0 and self.is_natural(atom.a) and self.is_natural(atom.b):
            return (Affine({atom: 1}).plus(x, -1),)
        return ()


def _dividends(relations: Iterable[Affine]) -> Iterator[Affine]:
    """Yield what bounds the dividends of quotients in relations: x <= x // c * c + c - 1.

    What is known of the quotient says something of the dividend so.
    """
    quotients = dict.fromkeys(a for r in relations for a in r.terms)
    for atom in quotients:
        c = splat_value(atom.b) if isinstance(atom, Binary) and atom.op == "floordiv" else None
        if isinstance(atom, Binary) and c is not None and c > 0:
            yield decompose(atom.a).plus(Affine({atom: -c}, 1 - c))


def _number_divisors(s: Affine) -> list[int]:
    """Return the numbers by which terms of a sum are quotients."""
    found = (splat_value(a.b) for a in s.terms if isinstance(a, Binary) and a.op == "floordiv")
    return list(dict.fromkeys(c for c in found if c is not None and c > 1))


def _never_positive(facts: Iterable[tuple[Affine, int | None, int | None]]) -> list[Affine]:
    found = []
    for s, low, high in facts:
        if high is not None:
            found.append(s.plus(Affine({}, high), -1))
        if low is not None:
            found.append(Affine({}, low).plus(s, -1))
    return found


class _Search:
    """One search for the bound of a sum: depth first, each sum once."""

    def __init__(self, relations: Relations, budget: int) -> None:
        self.relations = relations
        self.budget = budget
        self.seen: set[frozenset[tuple[Expr, int]]] = set()

    def bound(self, s: Affine, steps: int) -> int | None:
        """Return the least bound of a sum that is found with so many relations."""
        best = self.relations.plain_bound(s)
        key = frozenset(s.terms.items())
        if steps == 0 or not s.terms or key in self.seen or self.budget <= 0:
            return best
        self.seen.add(key)
        self.budget -= 1 if best is None else _COST_OF_MORE
        for term in self._terms(s, best is None):
            for found in self._by_term(s, term, steps - 1):
                best = _least(best, found)
        return best

    def _terms(self, s: Affine, is_unbounded: bool) -> list[Expr]:
        """Return the terms to replace: where there is no bound yet, first what stands in its way.

        Every term without a bound has to go, so one of them is enough to start with. Where no
        fact speaks of any, a quotient or remainder may still take it along: n goes with n // 2.
        """
        of = self.relations
        terms = [t for t, coef in s.terms.items() if of.has_relations(t, coef > 0)]
        if not is_unbounded:
            return terms
        first = [t for t in terms if of.is_unbounded(t, s.terms[t] > 0)][:1]
        known = [t for t in terms if t not in first and of.is_known(t, s.terms[t] > 0)]
        return [*first, *known] or terms

    def _by_term(self, s: Affine, term: Expr, steps: int) -> Iterator[int | None]:
        """Return bounds of a sum by way of what bounds one of its terms."""
        coef = s.terms[term]
        for smaller in self.relations.smaller_sums(s, term):
            yield self.bound(smaller, steps)
        if choices := _choices(term, coef > 0):  # whichever it is: below the larger bound
            rest = s.plus(Affine({term: 1}), -coef)
            found = [self.bound(rest.plus(c, coef), steps) for c in choices]
            known = [f for f in found if f is not None]
            yield max(known) if len(known) == len(found) else None
        if abs(coef) == 1 and isinstance(term, Binary) and term.op == "floordiv":
            yield self._of_quotient(s, term, coef, steps)

    def _of_quotient(self, s: Affine, atom: Binary, sign: int, steps: int) -> int | None:
        """x // d + r is (x + r * d) // d, and r - x // d is (r * d - x) / d, rounded up."""
        c, d = splat_value(atom.b), decompose(atom.b)
        if c is not None and c <= 0:
            return None
        if atom.lanes != 1 or not (c is not None or self.relations.is_natural(atom.b)):
            return None
        rest = s.plus(Affine({atom: sign}), -1)
        whole = product_of_sums(rest, d).plus(decompose(atom.a), sign)
        found = self.bound(whole, steps)
        if found is None:
            return None
        if c is not None:
            return found // c if sign > 0 else -(-found // c)
        return max(found, -1 if sign > 0 else 0)


def has_extreme(affine: Affine) -> bool:
    """True for a sum that a minimum or maximum may bound by what it is: n - max(n, 1)."""
    terms = affine.terms
    return len(terms) > 1 and any(isinstance(t, Binary) and t.op in ("min", "max") for t in terms)


def _has_implied(atom: Expr) -> bool:
    if isinstance(atom, Select):
        return not atom.lazy
    return isinstance(atom, Binary) and atom.op in ("min", "max", "floordiv", "floormod")


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _choices(atom: Expr, from_above: bool) -> list[Affine]:
    """Return sums one of which an atom equals, where all of them have to be bounded."""
    if atom.dtype != INDEX or atom.lanes != 1:
        return []
    if isinstance(atom, Binary) and atom.op == ("max" if from_above else "min"):
        return [decompose(atom.a), decompose(atom.b)]
    if isinstance(atom, Select) and not atom.lazy:
        return [decompose(atom.then), decompose(atom.other)]
    return []


def _splits(product: Expr) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    """Return each way to see a product of atoms as one of them times the rest."""
    parts = factors(product) if product.lanes == 1 else [product]
    yield product, ()
    if len(parts) > 1:
        for k, part in enumerate(parts):
            yield part, (*parts[:k], *parts[k + 1 :])


def _scaled(relation: Affine, by: tuple[Expr, ...]) -> Affine:
    """Return a relation times atoms that are never negative."""
    for factor in by:
        total = Affine({factor: relation.const} if relation.const else {})
        for atom, coef in relation.terms.items():
            total = total.plus(monomial(atom, factor, relation), coef)
        relation = total
    return relation
