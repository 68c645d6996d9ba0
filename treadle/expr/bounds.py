# SPDX-License-Identifier: Apache-2.0
"""What can be proved of integer expressions: intervals of values, truth of conditions.

Exactness: an affine form holds modulo 2**bits of the type; an interval is of the exact value, and
falls back to the range of the type wherever arithmetic could wrap. Values without a known bound
(`None`) are those of indices and sizes, which are assumed not to overflow.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

from treadle.dtype import INDEX, bits, is_integer, max_value, min_value
from treadle.expr.affine import Affine, decompose, is_sum
from treadle.expr.intervals import (
    ANY,
    BOOL,
    FAR,
    OF_BINARY,
    TRUE,
    ZERO,
    Interval,
    absolute,
    add,
    decide,
    dtype_interval,
    excludes_zero,
    fits,
    multiply,
    subtract,
    truth,
)
from treadle.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Var,
    binary,
    int_value,
)
from treadle.expr.relations import Relations, has_extreme
from treadle.expr.scope import Scope
from treadle.expr.vocabulary import COMPARE_OPS, BinaryOp

_LEAST_INDEX, _LARGEST_INDEX = int(min_value(INDEX)), int(max_value(INDEX))

Ranges: TypeAlias = Mapping[Var, Interval]
"""Known bounds of variables. Bounds of other nodes are honoured too (facts from conditions)."""


def interval(e: Expr, ranges: Ranges, memo: dict[Expr, Interval] | None = None) -> Interval:
    """Return bounds of an integer or bool expression (every lane of a vector).

    `memo` may be shared between calls with the same `ranges`.
    """
    return Bounds(ranges, memo).of(e)


def prove(cond: Expr, ranges: Ranges) -> bool | None:
    """Return whether a condition always (True) or never (False) holds, None where unknown.

    Comparisons are decided on the difference of their sides: i + 1 > i holds for any i.
    """
    return Bounds(ranges).prove(cond)


def assume(
    ranges: Ranges, cond: Expr, *, holds: bool = True, bounds: Bounds | None = None
) -> Ranges:
    """Return `ranges` narrowed by what a condition says where it holds (or does not).

    i < n with n in [1, 8] narrows i to at most 7 and n to at least the least i plus 1. Returns
    `ranges` itself when nothing is learnt. `bounds` are those of `ranges`, where somebody has them.
    """
    facts: dict[Expr, Interval] = dict(cast(Mapping[Expr, Interval], ranges))
    learnt = False
    if bounds is not None and bounds.has_relations:
        bounds = None  # what is learnt of one atom is news of others
    pending = [(cond, holds)]
    while pending:
        c, true = pending.pop()
        if isinstance(c, Binary) and c.op == ("and" if true else "or"):
            pending += [(c.b, true), (c.a, true)]
        elif isinstance(c, Call) and c.name == "not":
            pending.append((c.args[0], not true))
        elif isinstance(c, Binary) and c.op in COMPARE_OPS and c.a.dtype == INDEX and c.lanes == 1:
            if bounds is None:
                bounds = Bounds(cast(Ranges, facts))
            if _learn(facts, c if true else _negated(c), bounds):
                learnt, bounds = True, None
    return cast(Ranges, facts) if learnt else ranges


def ranges_when(when: Expr | None, sizes: Sequence[Var]) -> Ranges:
    """Return what is known of sizes, of their sums too, where a condition holds."""
    ranges: Ranges = {v: Interval(0, None) for v in sizes}
    if when is None:
        return ranges
    facts = dict(cast(Mapping[Expr, Interval], assume(ranges, when)))
    pending = [when]
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op == "and":
            pending += [part.a, part.b]
        elif isinstance(part, Binary) and part.op == "le" and int_value(part.b) is not None:
            facts[part.a] = Interval(0, int_value(part.b))
    return cast(Ranges, facts)


_OPPOSITE: Mapping[str, BinaryOp] = {
    "lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq",
}  # fmt: skip


def _negated(c: Binary) -> Binary:
    return cast(Binary, binary(_OPPOSITE[c.op], c.a, c.b))


def _learn(facts: dict[Expr, Interval], c: Binary, bounds: Bounds) -> bool:
    """Put what a true comparison says of each atom into `facts`; return whether it is news."""
    a, b = decompose(c.a), decompose(c.b)
    if c.op == "ne" or not bounds.is_exact(a) or not bounds.is_exact(b):
        return False
    difference = a.plus(b, -1)
    sides = [difference] if c.op in ("lt", "le") else [difference.times(-1)]
    if c.op == "eq":
        sides.append(difference)
    limit = -1 if c.op in ("lt", "gt") else 0
    found = [_limits(side, limit, bounds) for side in sides]
    news = _relate(facts, sides, limit, bounds)
    for atom, fresh in (pair for limits in found for pair in limits):
        old = bounds.of(atom).intersect(facts.get(atom, ANY))
        both = old.intersect(fresh)
        if both != old:
            facts[atom] = both
            news = True
    return news


def _relate(
    facts: dict[Expr, Interval], sides: Iterable[Affine], limit: int, bounds: Bounds
) -> bool:
    """Note side <= limit itself where a part has no bound: i < n; return whether it is news."""
    news = False
    for side in sides:
        is_open = bounds.has_relations or any(bounds.of(a).hi is None for a in side.terms)
        if len(side.terms) < 2 or not (is_open or _counts_one_loop(side, limit, bounds)):
            continue
        step = math.gcd(*side.terms.values())
        key = side.like({a: k // step for a, k in side.terms.items()}, 0).to_expr()
        old = facts.get(key, ANY)
        both = old.intersect(Interval(None, (limit - side.const) // step))
        if both != old:
            facts[key] = both
            news = True
    return news


def _counts_one_loop(side: Affine, limit: int, bounds: Bounds) -> bool:
    """True where parts of one index say less than their sum: (t // 6) * 2 + t % 2 < 7, t < 24.

    That is how many tiles there are, where a loop goes over blocks of them: the last is not full.
    """
    if not all(isinstance(a, Binary) and a.op in ("floordiv", "floormod") for a in side.terms):
        return False
    high = bounds.plain_sum(side).hi
    return high is None or high > limit


def _limits(side: Affine, limit: int, bounds: Bounds) -> list[tuple[Expr, Interval]]:
    """Return the bounds of each atom that follow from side <= limit."""
    result: list[tuple[Expr, Interval]] = []
    for atom, k in side.terms.items():
        rest = side.like({x: c for x, c in side.terms.items() if x is not atom}, side.const)
        low = bounds.of_sum(rest).lo
        if low is not None:
            room = (limit - low) // abs(k)
            if abs(room) < FAR:
                result.append((atom, Interval(None, room) if k > 0 else Interval(-room, None)))
    return result


class Bounds:
    """Intervals of expressions under fixed bounds of variables, remembered per node."""

    def __init__(
        self, ranges: Ranges, memo: dict[Expr, Interval] | None = None, *, is_plain: bool = False
    ) -> None:
        """Take what is known of variables and sums; `is_plain` looks at single variables alone."""
        self.facts = cast(Mapping[Expr, Interval], ranges)
        self.memo: dict[Expr, Interval] = {} if memo is None else memo
        self._relations: Relations | None = None
        self.is_plain = is_plain
        self.others = [fact for fact in self.facts.items() if not isinstance(fact[0], Var)]
        """What is known of other nodes than variables."""
        self.has_relations = any(_is_relation(e) for e, _ in self.others)
        self.scope = Scope(self.facts, self.others, has_relations=self.has_relations)
        """What of this decides about an expression."""

    def prove(self, cond: Expr) -> bool | None:
        """Return True or False where the condition is certain, else None."""
        found = self.of(cond)
        return True if found.lo == 1 else False if found.hi == 0 else None

    def of(self, e: Expr) -> Interval:
        """Return the interval of an expression."""
        memo, facts = self.memo, self.facts
        known = memo.get(e)
        if known is not None:
            return known
        stack = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            waiting = [p for p in self._needs(node) if p not in memo]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            found = self._evaluate(node)
            fact = facts.get(node)
            memo[node] = found if fact is None else found.intersect(fact)
        return memo[e]

    def reach(self, e: Expr) -> Interval:
        """Return the interval of an index expression by relations between its atoms too.

        It takes longer than `of`, which looks at the intervals of atoms alone.
        """
        found = self.of(e)
        if e.dtype != INDEX or e.lanes != 1:
            return found
        if isinstance(e, Binary) and e.op in ("min", "max"):
            return found.intersect(OF_BINARY[e.op](self.reach(e.a), self.reach(e.b)))
        return found.intersect(self.of_sum(decompose(e)))

    def of_sum(self, affine: Affine) -> Interval:
        """Return the interval of the exact value of a sum (which may not fit its dtype)."""
        plain = self.plain_sum(affine)
        if affine.dtype != INDEX or plain.value is not None:
            return plain
        if plain.lo is not None and plain.hi is not None and not self.has_relations:
            return plain
        lo = self._upper(affine.times(-1))
        return plain.intersect(Interval(None if lo is None else -lo, self._upper(affine)))

    def is_never(self, affine: Affine, *, above: int) -> bool:
        """True when an index sum is at most a number for certain."""
        plain = self.plain_sum(affine).hi
        found = plain if plain is not None and plain <= above else self._upper(affine)
        return found is not None and found <= above

    def _upper(self, affine: Affine) -> int | None:
        """Return the upper bound of an index sum that relations give."""
        if self.is_plain:
            return None
        if not self.has_relations and not (
            has_extreme(affine) and self.plain_sum(affine).hi is None
        ):
            return None
        terms = affine.terms
        inside = frozenset().union(*[atom.leaves for atom in terms])
        known, key = _upper_bounds(self.scope.of(inside)), tuple(terms.items())
        if key not in known:
            known[key] = self._searched(affine.like(terms, 0))
        found = known[key]
        return None if found is None else found + affine.const

    def _searched(self, affine: Affine) -> int | None:
        if self._relations is None:
            self._relations = _relations_of(tuple(self.facts.items()))
        return self._relations.upper_bound(affine)

    def limits(self, e: Expr) -> tuple[int | None, int | None]:
        """Return the least and the largest value of an atom."""
        found = self.of(e)
        return found.lo, found.hi

    def plain_sum(self, affine: Affine) -> Interval:
        """Return the interval of a sum by those of its atoms alone."""
        return Interval(*self._span(affine))

    def _span(self, affine: Affine) -> tuple[int | None, int | None]:
        lo: int | None = affine.const
        hi: int | None = affine.const
        memo = self.memo
        for atom, coef in affine.terms.items():
            low, high = memo.get(atom) or self.of(atom)
            if coef < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + low * coef
            hi = None if hi is None or high is None else hi + high * coef
        return lo, hi

    def is_exact(self, affine: Affine) -> bool:
        """True when the sum cannot wrap in its dtype."""
        if affine.dtype != INDEX:
            return fits(self.plain_sum(affine), affine.dtype)
        lo, hi = self._span(affine)
        return (lo is None or lo >= _LEAST_INDEX) and (hi is None or hi <= _LARGEST_INDEX)

    def _needs(self, e: Expr) -> Iterable[Expr]:
        """Return the nodes whose intervals `_evaluate` reads."""
        if isinstance(e, Binary) and e.op in COMPARE_OPS:
            if not is_integer(e.a.dtype):
                return e.children if e.a.dtype == "bool" else ()
            a, b = decompose(e.a), decompose(e.b)
            return (e.a, e.b, *a.terms, *b.terms)
        if is_integer(e.dtype) and is_sum(e):
            return decompose(e).terms
        if not isinstance(e, Load) and (e.dtype == "bool" or is_integer(e.dtype)):
            return [c for c in e.children if c.dtype == "bool" or is_integer(c.dtype)]
        return ()

    def _evaluate(self, e: Expr) -> Interval:
        if isinstance(e, Const):
            return ANY if isinstance(e.value, float) else Interval(int(e.value), int(e.value))
        if isinstance(e, Var):
            return ANY if e.dtype == INDEX else dtype_interval(e.dtype)
        if not is_integer(e.dtype) and e.dtype != "bool":
            return ANY
        if isinstance(e, Binary) and e.op in COMPARE_OPS:
            return self._compare(e)
        is_number_sum = is_integer(e.dtype) and is_sum(e)
        found = self.plain_sum(decompose(e)) if is_number_sum else self._node(e)
        return found if fits(found, e.dtype) else dtype_interval(e.dtype)

    def _node(self, e: Expr) -> Interval:
        """Return the interval of a node that is not a sum from those of its operands."""
        memo = self.memo
        if isinstance(e, Binary):
            rule = OF_BINARY.get(e.op)
            return rule(memo[e.a], memo[e.b]) if rule else dtype_interval(e.dtype)
        if isinstance(e, Select):
            cond = memo[e.cond]
            if cond.value is not None:
                return memo[e.then if cond.value else e.other]
            return memo[e.then].union(memo[e.other])
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, Broadcast):
            return memo[e.value]
        if isinstance(e, Ramp):
            lanes = multiply(memo[e.stride], Interval(0, e.lanes - 1))
            return add(memo[e.base], lanes)
        return self._call(e) if isinstance(e, Call) else dtype_interval(e.dtype)

    def _cast(self, e: Cast) -> Interval:
        source = e.value.dtype
        if not is_integer(source) and source != "bool":
            return dtype_interval(e.dtype)
        found = self.memo[e.value]
        if e.dtype != "bool":
            return found
        if found == ZERO:
            return ZERO
        return TRUE if excludes_zero(found) else BOOL

    def _call(self, e: Call) -> Interval:
        if e.name in ("popcount", "clz"):
            return Interval(0, bits(e.args[0].dtype))
        if e.name == "not":
            return self.memo[e.args[0]].scale(-1).shift(1)
        if e.name == "abs" and is_integer(e.dtype):
            return absolute(self.memo[e.args[0]])
        return dtype_interval(e.dtype)

    def _compare(self, e: Binary) -> Interval:
        if not is_integer(e.a.dtype):
            if e.a.dtype != "bool":
                return BOOL
            return truth(decide(e.op, subtract(self.memo[e.a], self.memo[e.b])))
        a, b = decompose(e.a), decompose(e.b)
        if not self.is_exact(a) or not self.is_exact(b):
            return truth(decide(e.op, subtract(self.memo[e.a], self.memo[e.b])))
        difference = a.plus(b, -1)
        if e.op in ("eq", "ne") and _never_zero(difference):
            return truth(e.op == "ne")
        return truth(decide(e.op, self.of_sum(difference)))


def _is_relation(fact: Expr) -> bool:
    """True for a sum of more than one atom."""
    return isinstance(fact, Binary) and fact.dtype == INDEX and fact.op in ("add", "sub")


def _never_zero(sum_: Affine) -> bool:
    divisor = math.gcd(*sum_.terms.values())
    return divisor > 1 and sum_.const % divisor != 0


@lru_cache(maxsize=1 << 14)
def _upper_bounds(_scope: Hashable) -> dict[tuple[tuple[Expr, int], ...], int | None]:
    """Return the upper bounds found so far, by the terms of sums, where a scope is known."""
    return {}


@lru_cache(maxsize=1024)
def _relations_of(facts: tuple[tuple[Expr, Interval], ...]) -> Relations:
    """Return the relations between atoms among facts, with the bounds found so far by them.

    The same loops and conditions are met by pass after pass, and by each of the parts of a loop.
    """
    plain = Bounds(cast(Ranges, dict(facts)), is_plain=True)
    related = [(decompose(fact), span.lo, span.hi) for fact, span in facts if _is_relation(fact)]
    return Relations(related, lambda s: plain.plain_sum(s).hi, plain.limits)
