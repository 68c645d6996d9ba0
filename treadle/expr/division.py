# SPDX-License-Identifier: Apache-2.0
"""Quotients and remainders of index sums by what bounds prove: (i * 8 + j) // 8 is i for j < 8."""

from __future__ import annotations

import math
from typing import Literal, cast

from treadle.expr.affine import (
    Affine,
    decompose,
    divide_by,
    factors,
    product_of_sums,
    splat_value,
)
from treadle.expr.bounds import Bounds, Ranges
from treadle.expr.intervals import Interval, fits
from treadle.expr.nodes import Binary, Expr, binary
from treadle.expr.vocabulary import BinaryOp

_MAX_DIVISOR = 1 << 62
DivisionOp = Literal["floordiv", "floormod"]


class Division:
    """Divides sums under fixed bounds of variables."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._positive: dict[Expr, Bounds] = {}

    def quotient(self, n: Affine, c: int) -> Affine:
        """Return n // c as a sum (c > 0)."""
        if c == 1:
            return n
        if not self.bounds.is_exact(n):
            return _atom("floordiv", n, c)
        whole = n.like({a: k // c for a, k in n.terms.items() if k % c == 0}, n.const // c)
        rest = n.like({a: k for a, k in n.terms.items() if k % c}, n.const % c)
        if not rest.terms:
            return whole
        span = self.bounds.plain_sum(rest)
        if not fits(span, n.dtype):
            return _atom("floordiv", n, c)
        if span.lo is not None and span.hi is not None and span.lo // c == span.hi // c:
            return whole.plus(n.like({}, span.lo // c))
        reduced = self._reduced_quotient(rest, c)
        if reduced is not None:
            return whole.plus(reduced)
        return whole.plus(_atom("floordiv", rest, c))

    def _reduced_quotient(self, rest: Affine, c: int) -> Affine | None:
        found = self._small_part(rest, c)
        if found is not None:  # (g * x + s) // c -> x // (c / g) where 0 <= s < g
            big, _, g = found
            return self.quotient(big, c // g)
        atom, coef = next(iter(rest.terms.items()))
        if len(rest.terms) > 1 or coef != 1 or not isinstance(atom, Binary):
            return None
        inner = splat_value(atom.b)
        if inner is None or inner <= 0:
            return None
        if atom.op == "floordiv" and inner * c < _MAX_DIVISOR:
            # (x // d + r) // c -> (x + r * d) // (d * c)
            top = decompose(atom.a).plus(rest.like({}, rest.const * inner))
            return self.quotient(top, inner * c) if self.bounds.is_exact(top) else None
        if atom.op == "floormod" and inner % c == 0 and rest.const == 0:
            # x % (c * d) // c -> x // c % d
            return self.remainder(self.quotient(decompose(atom.a), c), inner // c)
        return None

    def _small_part(self, n: Affine, c: int) -> tuple[Affine, Affine, int] | None:
        """Split n = g * big + small with g a divisor of c and small in [0, g)."""
        for g in sorted({math.gcd(k, c) for k in n.terms.values()}, reverse=True):
            if g == 1:
                return None
            big = n.like({a: k // g for a, k in n.terms.items() if k % g == 0}, n.const // g)
            small = n.like({a: k for a, k in n.terms.items() if k % g}, n.const % g)
            span = self.bounds.plain_sum(small)
            if Interval(0, g - 1).contains(span) and self.bounds.is_exact(big):
                return big, small, g
        return None

    def remainder(self, n: Affine, c: int) -> Affine:
        """Return n % c as a sum (c > 0)."""
        if c == 1:
            return n.like({}, 0)
        if not self.bounds.is_exact(n):
            return _atom("floormod", n, c)
        rest = self._drop_multiples(n, c)
        if not rest.terms:
            return rest
        span = self.bounds.plain_sum(rest)
        if not fits(span, n.dtype):
            return _atom("floormod", n, c)
        if span.lo is not None and span.hi is not None and span.lo // c == span.hi // c:
            return rest.plus(n.like({}, -(span.lo // c) * c))
        found = self._small_part(rest, c)
        if found is not None:  # (g * x + s) % c -> x % (c / g) * g + s where 0 <= s < g
            big, small, g = found
            return self.remainder(big, c // g).times(g).plus(small)
        return _atom("floormod", rest, c)

    def _drop_multiples(self, n: Affine, c: int) -> Affine:
        """Drop multiples of c from n, also those hidden in x % (c * d)."""
        terms: dict[Expr, int] = {}
        result = n.like(terms, n.const % c)
        hidden = n.like({}, 0)
        for atom, k in n.terms.items():
            if k % c == 0:
                continue
            inside = _dividend(atom, k, c)
            if inside is None:
                terms[atom] = k
            else:
                hidden = hidden.plus(inside, k)
        if not hidden.terms and not hidden.const:
            return result
        whole = result.plus(hidden)
        return self._drop_multiples(whole, c) if self.bounds.is_exact(whole) else n

    # ------------------------------------------------------------------ symbolic divisors

    def by_sum(self, op: DivisionOp, n: Affine, d: Affine) -> Affine | None:
        """Return n // d or n % d for a divisor that is not a number, None where nothing is gained.

        (d * x + r) // d  ->  x  and  % d  ->  r   where 0 <= r < d for every d > 0
        """
        low = self.bounds.plain_sum(d).lo
        if low is None or low < 0 or not self.bounds.is_exact(n):
            return None
        for whole, rest in ((n.like({}, 0), n), divide_by(n, d)):
            if self._is_below(rest, d):
                return whole if op == "floordiv" else rest
        reduced = self._by_part(op, rest, d)
        if reduced is None:
            if not whole.terms and not whole.const:
                return None
            reduced = _by_sum_atom(op, rest, d)
        return whole.plus(reduced) if op == "floordiv" else reduced

    def quotient_by_sum(self, n: Affine, d: Affine) -> Affine:
        """Return n // d as a sum, for a divisor that is not a number."""
        found = self.by_sum("floordiv", n, d)
        return _by_sum_atom("floordiv", n, d) if found is None else found

    def _is_below(self, r: Affine, d: Affine) -> bool:
        """True when 0 <= r < d wherever d is positive: a quotient by 0 means nothing."""
        if not r.terms and not r.const:
            return True
        bounds = self._where_positive(d)
        return bounds.is_never(r.times(-1), above=0) and bounds.is_never(r.plus(d, -1), above=-1)

    def _where_positive(self, d: Affine) -> Bounds:
        """Return the bounds that hold where a natural sum is not 0."""
        key = d.like(d.terms, d.const).to_expr()
        if key not in self._positive:
            sums = [d.like({}, d.const)] if not d.terms else [d]
            if not d.const and len(d.terms) == 1:
                (product,) = d.terms
                sums = [Affine({f: 1}) for f in factors(product)]
            facts = {s.to_expr(): self.bounds.plain_sum(s).intersect(_POSITIVE) for s in sums}
            self._positive[key] = Bounds(cast(Ranges, {**self.bounds.facts, **facts}))
        return self._positive[key]

    def _by_part(self, op: DivisionOp, n: Affine, d: Affine) -> Affine | None:
        """Take a factor p of the divisor away: (p*x + s) // (p*m)  ->  x // m where 0 <= s < p.

        The remainder is x % m * p + s.
        """
        for p in _parts_of(d):
            big, small = _split(n, p)
            if not big.terms or not self._is_small(small, p, d):
                continue
            less, _ = _split(d, p)
            found = self._divided(op, big, less)
            return found if op == "floordiv" else product_of_sums(found, p).plus(small)
        return None

    def _is_small(self, s: Affine, p: Affine, d: Affine) -> bool:
        """True when 0 <= s < p wherever d, of which p is a factor, is positive."""
        if p.terms:
            return self._is_below(s, p)
        return Interval(0, p.const - 1).contains(self._where_positive(d).plain_sum(s))

    def _divided(self, op: DivisionOp, n: Affine, d: Affine) -> Affine:
        if not d.terms:
            return self.quotient(n, d.const) if op == "floordiv" else self.remainder(n, d.const)
        found = self.by_sum(op, n, d)
        return _by_sum_atom(op, n, d) if found is None else found


_POSITIVE = Interval(1, None)


def _parts_of(d: Affine) -> list[Affine]:
    """Return the factors, a number or a symbol, that all terms of a sum share."""
    found = []
    number = math.gcd(d.const, *d.terms.values())
    if number > 1:
        found.append(d.like({}, number))
    if not d.const:
        lead = next(iter(d.terms))
        symbols = dict.fromkeys(factors(lead)) if lead.lanes == 1 else {}
        found += [p for f in symbols if not _split(d, p := d.like({f: 1}, 0))[1].terms]
    return [p for p in found if p.terms != d.terms or p.const != d.const]


def _split(n: Affine, p: Affine) -> tuple[Affine, Affine]:
    """Return (x, s) with n = p * x + s for a number or a symbol p."""
    if p.terms:
        return divide_by(n, p)
    c = p.const
    big = n.like({a: k // c for a, k in n.terms.items() if k % c == 0}, n.const // c)
    return big, n.like({a: k for a, k in n.terms.items() if k % c}, n.const % c)


def _by_sum_atom(op: DivisionOp, n: Affine, d: Affine) -> Affine:
    if all(a.lanes == 1 for a in (*n.terms, *d.terms)):
        scalars = (Affine(s.terms, s.const, s.dtype).to_expr() for s in (n, d))
        return n.like({binary(op, *scalars): 1}, 0)
    return n.like({binary(op, n.to_expr(), d.to_expr()): 1}, 0)


def _atom(op: BinaryOp, n: Affine, c: int) -> Affine:
    if all(a.lanes == 1 for a in n.terms):
        scalar = Affine(n.terms, n.const, n.dtype)
        return n.like({binary(op, scalar.to_expr(), c): 1}, 0)
    return n.like({binary(op, n.to_expr(), c): 1}, 0)


def _dividend(atom: Expr, coef: int, c: int) -> Affine | None:
    """Return x of atom = x % m where coef * m is a multiple of c."""
    if not isinstance(atom, Binary) or atom.op != "floormod":
        return None
    m = splat_value(atom.b)
    return decompose(atom.a) if m is not None and m > 0 and coef * m % c == 0 else None
