# SPDX-License-Identifier: Apache-2.0
"""Integer expressions as sums of coefficient * atom: the normal form proofs and rules work on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from treadle.dtype import INDEX, is_integer
from treadle.expr.nodes import (
    Binary,
    Broadcast,
    Const,
    Expr,
    Ramp,
    binary,
    broadcast,
    ramp,
    same_typed,
)


@dataclass(slots=True)
class Affine:
    """const + sum of coefficient * atom, modulo 2**bits of `dtype`.

    Atoms are nodes that are not sums: variables, quotients, products of variables, ... In a vector
    (lanes > 1) scalar atoms stand for their broadcast and `ramp(0, s, lanes)` for lane * s.
    Sums are shared: only who has just made one may change it.
    """

    terms: dict[Expr, int] = field(default_factory=dict)
    const: int = 0
    dtype: str = INDEX
    lanes: int = 1

    def like(self, terms: dict[Expr, int], const: int) -> Affine:
        """Return another value of the same type."""
        return Affine(terms, const, self.dtype, self.lanes)

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """Return self + times * other."""
        terms = dict(self.terms)
        for atom, coef in other.terms.items():
            total = terms.get(atom, 0) + times * coef
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return self.like(terms, self.const + times * other.const)

    def times(self, factor: int) -> Affine:
        """Return self * factor."""
        if factor == 0:
            return self.like({}, 0)
        return self.like({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    def without(self, atom: Expr) -> tuple[int, Affine]:
        """Return the coefficient of an atom, 0 where it is none, and the sum of all else."""
        rest = {a: c for a, c in self.terms.items() if a is not atom}
        return self.terms.get(atom, 0), self.like(rest, self.const)

    @property
    def value(self) -> int | None:
        """The integer this is, or None where it has terms."""
        return None if self.terms else self.const

    def to_expr(self) -> Expr:
        """Return the sum as an expression; equal sums give the same node.

        Larger coefficients come first, then text order; subtractions after additions.
        """
        if self.lanes == 1:
            return self._scalar(self.terms, self.const)
        base: dict[Expr, int] = {}
        strides: dict[Expr, int] = {}
        vectors: dict[Expr, int] = {}
        stride = 0
        for atom, coef in self.terms.items():
            if atom.lanes == 1:
                base[atom] = coef
            elif not isinstance(atom, Ramp) or not is_lane_ramp(atom):
                vectors[atom] = coef
            elif isinstance(atom.stride, Const):
                stride += coef * int(atom.stride.value)
            else:
                strides[atom.stride] = coef
        start = self._scalar(base, self.const)
        if strides or stride:
            whole = ramp(start, self._scalar(strides, stride), self.lanes)
        else:
            whole = broadcast(start, self.lanes)
        if not vectors:
            return whole
        rest = _sum(_ordered(vectors), 0)
        if isinstance(whole, Ramp) or base:
            return binary("add", whole, rest)
        return binary("add", rest, whole) if self.const else rest

    def _scalar(self, terms: dict[Expr, int], const: int) -> Expr:
        if not terms:
            return Const.of(const, self.dtype)
        return _sum(_ordered(terms), const)


def is_lane_ramp(e: Ramp) -> bool:
    """True for a ramp from 0: an atom where its stride is 1 or an atom."""
    return isinstance(e.base, Const) and e.base.value == 0


def _sum(terms: list[tuple[Expr, int]], offset: int) -> Expr:
    total: Expr | None = None
    if terms[0][1] < 0 < offset:
        total, offset = Const.of(offset, terms[0][0].dtype), 0
    for atom, coef in terms:
        if total is None:
            total = _scaled(atom, coef)
        elif coef < 0:
            total = same_typed("sub", total, _scaled(atom, -coef))
        else:
            total = same_typed("add", total, _scaled(atom, coef))
    if total is None or not offset:
        return Const.of(0) if total is None else total
    if offset > 0:
        return same_typed("add", total, Const.of(offset, total.dtype))
    return same_typed("sub", total, Const.of(-offset, total.dtype))


def _scaled(atom: Expr, coef: int) -> Expr:
    return atom if coef == 1 else same_typed("mul", atom, Const.of(coef, atom.dtype))


def _ordered(terms: dict[Expr, int]) -> list[tuple[Expr, int]]:
    if len(terms) == 1:
        return list(terms.items())

    def key(term: tuple[Expr, int]) -> tuple[bool, int, str]:
        return term[1] < 0, -abs(term[1]), brief_text(term[0])

    return sorted(terms.items(), key=key)


_TEXT_DEPTH = 6


def brief_text(e: Expr) -> str:
    """Return the text of an expression cut off six levels below: a stable key for ordering."""
    if e.text_of is None:
        e.text_of = _brief_text(e, _TEXT_DEPTH)
    return e.text_of


def _brief_text(e: Expr, depth: int) -> str:
    children = e.children
    if not children:
        return str(e)
    if depth == 0:
        return "..."
    head = getattr(e, "op", None) or getattr(e, "name", None) or type(e).__name__
    inner = ", ".join(_brief_text(c, depth - 1) for c in children)
    return f"{head}({inner})"


def decompose(e: Expr) -> Affine:
    """Return an integer expression as a sum of coefficient * atom, which nobody may change.

    i * 8 + (j - 2) * 4  ->  Affine({i: 8, j: 4}, -8)
    """
    found: Affine | None = e.sum_of
    if found is not None:
        return found
    if not is_sum(e) or not is_integer(e.dtype):
        return Affine({e: 1}, 0, e.dtype, e.lanes)
    stack = [e]
    while stack:
        node = stack[-1]
        if node.sum_of is not None:
            stack.pop()
            continue
        parts = _sum_parts(node)
        waiting = [p for p, _ in parts if p.sum_of is None and is_sum(p)]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        node.sum_of = _combined(node, parts)
    return _sum_of(e)


def _sum_of(e: Expr) -> Affine:
    """Return the sum that is known of a node; itself where it is an atom."""
    found: Affine | None = e.sum_of
    return Affine({e: 1}, 0, e.dtype, e.lanes) if found is None else found


def _combined(node: Expr, parts: Parts) -> Affine:
    """Return the sum of parts times their factors; terms of the last part come last."""
    if not parts:
        assert isinstance(node, Const)
        return Affine({}, int(node.value), node.dtype, node.lanes)
    *others, (part, factor) = parts
    last = _sum_of(part)
    terms, const = _scaled_terms(last.terms, factor), last.const * factor
    for part, factor in reversed(others):
        inner = _sum_of(part)
        const += inner.const * factor
        more = inner.terms
        if not more:
            continue
        joined = {a: c * factor for a, c in more.items() if a not in terms}
        for atom, coef in terms.items():
            total = coef + more.get(atom, 0) * factor
            if total:
                joined[atom] = total
        terms = joined
    return Affine(terms, const, node.dtype, node.lanes)


def _scaled_terms(terms: dict[Expr, int], factor: int) -> dict[Expr, int]:
    if factor == 1:
        return terms
    return {a: c * factor for a, c in terms.items()} if factor else {}


Parts: TypeAlias = tuple[tuple[Expr, int], ...]


def _sum_parts(e: Expr) -> Parts:
    """Return the summands of a sum with their factors."""
    if isinstance(e, Binary):
        if e.op == "add":
            return (e.b, 1), (e.a, 1)
        if e.op == "sub":
            return (e.b, -1), (e.a, 1)
        factor = splat_value(e.b)
        return ((e.a, factor),) if factor is not None else ((e.b, splat_value(e.a) or 0),)
    if isinstance(e, Const):
        return ()
    if isinstance(e, Broadcast):
        return ((e.value, 1),)
    assert isinstance(e, Ramp)
    return _ramp_parts(e)


def splat_value(e: Expr) -> int | None:
    """Return the integer of a constant or of the broadcast of one, else None."""
    if isinstance(e, Broadcast):
        e = e.value
    return int(e.value) if isinstance(e, Const) and isinstance(e.value, int) else None


def _ramp_parts(e: Ramp) -> Parts:
    stride = decompose(e.stride)
    lanes = [(_lane_ramp(s, e), c) for s, c in stride.terms.items()]
    if stride.const:
        lanes.append((_lane_ramp(Const.of(1, e.dtype), e), stride.const))
    return (*lanes, (e.base, 1))


def _lane_ramp(stride: Expr, like: Ramp) -> Expr:
    return ramp(Const.of(0, like.dtype), stride, like.lanes)


def _is_ramp_atom(e: Ramp) -> bool:
    if not is_lane_ramp(e):
        return False
    stride = e.stride
    return stride.value == 1 if isinstance(stride, Const) else not is_sum(stride)


def is_sum(e: Expr) -> bool:
    """True when `decompose` looks inside the node: sums, multiples, constants, most ramps."""
    if isinstance(e, Binary):
        if e.op == "mul":
            return splat_value(e.b) is not None or splat_value(e.a) is not None
        return e.op == "add" or e.op == "sub"
    if isinstance(e, Ramp):
        return not _is_ramp_atom(e)
    return isinstance(e, (Const, Broadcast))


def monomial(x: Expr, y: Expr, like: Affine) -> Affine:
    """Return the product of two atoms; equal products give the same node."""
    if x.lanes == y.lanes == 1:
        return like.like({_product(x, y): 1}, 0)
    return like.like({_vector_product(x, y): 1}, 0)


@lru_cache(maxsize=1 << 12)
def _product(x: Expr, y: Expr) -> Expr:
    return _multiplied(sorted(factors(x) + factors(y), key=brief_text))


@lru_cache(maxsize=1 << 12)
def _vector_product(x: Expr, y: Expr) -> Expr:
    """Return a product of atoms of which one has lanes at least.

    All scalars in it, strides of ramps from 0 among them, are one scalar: the stride of the first
    ramp where there is one, else the last factor.
    """
    scalars: list[Expr] = []
    ramps: list[Ramp] = []
    others: list[Expr] = []
    for factor in factors(x) + factors(y):
        if factor.lanes == 1:
            scalars.append(factor)
        elif isinstance(factor, Broadcast):
            scalars += factors(factor.value)
        elif isinstance(factor, Ramp) and is_lane_ramp(factor):
            scalars += [s for s in factors(factor.stride) if splat_value(s) != 1]
            ramps.append(factor)
        else:
            others.append(factor)
    one = Const.of(1, x.dtype)
    scalar = _multiplied(sorted(scalars, key=brief_text)) if scalars else one
    lanes = [_lane_ramp(scalar if k == 0 else one, r) for k, r in enumerate(ramps)]
    vector = _multiplied([*lanes, *sorted(others, key=brief_text)])
    return vector if ramps or not scalars else binary("mul", vector, scalar)


def _multiplied(parts: list[Expr]) -> Expr:
    product = parts[0]
    for factor in parts[1:]:
        product = binary("mul", product, factor)
    return product


def factors(e: Expr) -> list[Expr]:
    """Return the factors of a product of atoms."""
    if isinstance(e, Binary) and e.op == "mul":
        return factors(e.a) + factors(e.b)
    return [e]


def divide_by(n: Affine, d: Affine) -> tuple[Affine, Affine]:
    """Return (q, r) with n = q * d + r, where whole multiples of all terms of `d` are in q.

    i*m*8 + j + m*4, m*4  ->  i*2 + 1, j
    """
    if not d.terms:
        return n.like({}, 0), n
    lead, unit = next(iter(d.terms.items()))
    quotient, rest = n.like({}, 0), n
    for atom, coef in n.terms.items():
        cofactor = _cofactor(atom, lead)
        if cofactor is None or coef % unit:
            continue
        part = decompose(cofactor)
        part = n.like(part.terms, part.const).times(coef // unit)
        left = rest.plus(product_of_sums(part, d), -1)
        if len(left.terms) <= len(rest.terms) - len(d.terms):
            quotient, rest = quotient.plus(part), left
    return quotient, rest


def product_of_sums(a: Affine, b: Affine) -> Affine:
    """Return a product multiplied out."""
    total = a.times(b.const).plus(b.like(b.terms, 0), a.const)
    for x, k in a.terms.items():
        for y, m in b.terms.items():
            total = total.plus(monomial(x, y, a), k * m)
    return total


def _cofactor(atom: Expr, of: Expr) -> Expr | None:
    """Return x where an atom is the product x * of."""
    if atom is of:
        return Const.of(1)
    if atom.lanes != 1 or of.lanes != 1:
        return None
    have = factors(atom)
    left = Counter(have)
    left.subtract(factors(of))
    if min(left.values()) < 0:
        return None
    rest: list[Expr] = list(left.elements())
    made = rest[0]
    for x in rest[1:]:
        (made,) = monomial(made, x, Affine()).terms
    return made
