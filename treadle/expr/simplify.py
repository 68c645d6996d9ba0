# SPDX-License-Identifier: Apache-2.0
"""The simplifier: sums in normal form, division by ranges, and the table of rules.py.

Index arithmetic (int64) is brought to the affine form of bounds.py at every maximal sum, which
makes equal index expressions one node. Other types keep the order their author wrote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

from treadle.dtype import INDEX, is_integer
from treadle.expr.affine import (
    Affine,
    decompose,
    is_sum,
    product_of_sums,
    splat_value,
)
from treadle.expr.bounds import Bounds, Ranges, assume, prove
from treadle.expr.casts import shorten_cast
from treadle.expr.division import Division, DivisionOp
from treadle.expr.fold import fold_binary, fold_call
from treadle.expr.intervals import Interval
from treadle.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Ramp,
    Select,
    Var,
    binary,
    broadcast,
    call,
    int_value,
)
from treadle.expr.rules import apply_rules
from treadle.expr.vocabulary import COMPARE_OPS, HAS_LAZY, LOGIC_OPS, BinaryOp

_NO_RANGES: Ranges = {}
_COMMUTATIVE = frozenset(
    {"add", "mul", "min", "max", "bitand", "bitor", "bitxor", "eq", "ne", "and", "or"}
)
_MAX_PRODUCT_TERMS = 8
_MAX_DIVISOR = 1 << 62


def simplify(e: Expr, ranges: Ranges = _NO_RANGES) -> Expr:
    """Return an expression with the same value for all variables within `ranges`.

    (i * 8 + j) // 8  ->  i        where j is in [0, 7]
    """
    return Simplifier(ranges).run(e)


class Simplifier:
    """Simplifies expressions under fixed bounds of variables; results are remembered per node."""

    def __init__(self, ranges: Ranges = _NO_RANGES, *, contexts: int = 64) -> None:
        """`contexts` limits how many conditions of lazy selects narrow the ranges below them."""
        self.ranges = ranges
        self.bounds = Bounds(ranges)
        self.division = Division(self.bounds)
        self.memo: dict[Expr, Expr] = {}
        self._scope: _Scope | None = None if self.bounds.has_relations else self.bounds.others
        """What is known of other nodes than variables; None where relations are among it."""
        self._scopes: dict[frozenset[object], _Scope] = {}
        self._partners: dict[Expr, tuple[Expr, int] | None] = {}
        self._contexts = contexts
        self._branches: dict[tuple[Expr, bool], Simplifier | None] = {}

    def in_loop(self, var: Var, extent: Expr) -> Simplifier:
        """Return the simplifier for inside a loop: 0 <= var < extent there."""
        high = self.bounds.of(extent).hi
        facts: dict[Expr, Interval] = dict(self.bounds.facts)
        facts[var] = Interval(0, None if high is None else high - 1)
        if int_value(extent) is None:
            below = decompose(var).plus(decompose(extent), -1)
            facts[below.to_expr()] = Interval(None, -1)
        return Simplifier(cast(Ranges, facts))

    def run(self, e: Expr) -> Expr:
        """Return the simplified expression."""
        if not e.children:
            return e
        memo = self.memo
        found = memo.get(e)
        if found is not None:
            return found
        keys: dict[Expr, object] = {}
        stack = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            if node not in keys and self._is_remembered(node, keys):
                stack.pop()
                continue
            waiting = [o for o in self._needs(node) if o.children and o not in memo]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            result = self._node(node)
            memo[node] = result
            memo.setdefault(result, result)
            self._remember(node, keys[node], result)
        return memo[e]

    def _is_remembered(self, node: Expr, keys: dict[Expr, object]) -> bool:
        """True where a node was simplified before under the same bounds of all that is in it.

        Its result is in the memo then; else `keys` says under what to remember it, None where
        more decides it than that: relations, or how many conditions were looked at before.
        """
        keys[node] = None
        if self._scope is None or node.traits & HAS_LAZY:
            return False
        inside = node.leaves
        facts = self.bounds.facts
        key = keys[node] = (tuple([facts.get(v) for v in inside]), self._known_of(inside))  # type: ignore[call-overload]
        results = node.simple_of
        if results is None or key not in results:
            return False
        found = results[key]
        result = node if found is None else found
        self.memo[node] = result
        self.memo.setdefault(result, result)
        return True

    def _known_of(self, inside: frozenset[object]) -> _Scope:
        """Return what is known of other nodes than variables, of those made of these leaves."""
        if not self._scope:
            return ()
        found = self._scopes.get(inside)
        if found is None:
            found = tuple([fact for fact in self._scope if fact[0].leaves <= inside])
            self._scopes[inside] = found
        return found

    def _remember(self, node: Expr, key: object, result: Expr) -> None:
        """Keep a result with its node; `None` for the node itself, which must not hold itself."""
        if key is None:
            return
        kept = None if result is node else result
        if node.simple_of is None:
            node.simple_of = {key: kept}
        else:
            node.simple_of[key] = kept

    def outermost(self, node: Expr) -> Expr:
        """Return a node whose operands are simplified, simplified."""
        return self._sum(node) if node.dtype == INDEX and is_sum(node) else self._rules(node)

    def prove(self, cond: Expr) -> bool | None:
        """Return True or False where the condition is certain under the ranges, else None."""
        return self.bounds.prove(cond)

    def _needs(self, node: Expr) -> Iterable[Expr]:
        """Return what must be in the memo before a node, if it has operands: the atoms of a sum, of
        a lazy select what may be chosen.
        """
        if node.dtype == INDEX and is_sum(node):
            return decompose(node).terms
        if not node.traits & HAS_LAZY or not isinstance(node, Select) or not node.lazy:
            return node.children
        cond = self.memo.get(node.cond) if node.cond.children else node.cond
        if cond is None:
            return (node.cond,)
        if isinstance(cond, Const):
            return (node.then if cond.value else node.other,)
        branches = ((node.then, self._under(cond, True)), (node.other, self._under(cond, False)))
        return [value for value, context in branches if context is None]

    def _under(self, cond: Expr, holds: bool) -> Simplifier | None:
        """Return the simplifier for where a condition holds (or not), None if it tells nothing."""
        key = (cond, holds)
        if key not in self._branches:
            narrowed = self.ranges
            if self._contexts:
                narrowed = assume(self.ranges, cond, holds=holds, bounds=self.bounds)
            fresh = narrowed is not self.ranges
            self._contexts -= fresh
            share = self._contexts // 4
            self._branches[key] = Simplifier(narrowed, contexts=share) if fresh else None
        return self._branches[key]

    def _lazy_select(self, node: Select) -> Expr:
        """Simplify each branch knowing that it is chosen."""
        memo = self.memo
        cond, then, other = [memo.get(c, c) for c in node.children]
        if isinstance(cond, Const):
            return then if cond.value else other
        inside, outside = self._under(cond, True), self._under(cond, False)
        then = then if inside is None else inside.run(node.then)
        other = other if outside is None else outside.run(node.other)
        return self._rules(node.with_children((cond, then, other)))

    def _node(self, node: Expr) -> Expr:
        """Return the simplified form of a node whose operands are in the memo."""
        if node.dtype == INDEX and is_sum(node):
            return self._sum(node)
        if isinstance(node, Select) and node.lazy:
            return self._lazy_select(node)
        memo = self.memo
        for child in node.children:
            if memo.get(child, child) is not child:
                node = node.with_children(tuple([memo.get(c, c) for c in node.children]))
                break
        return self._rules(node)

    def _rules(self, node: Expr) -> Expr:
        """Apply rules at a node with simplified operands until none fits."""
        for _ in range(16):
            fresh = self._once(node)
            if fresh is None or fresh is node:
                return node
            node = fresh
            if not node.children:
                return node
        return node

    def _once(self, node: Expr) -> Expr | None:
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Cast):
            return shorten_cast(node)
        if isinstance(node, Ramp) and splat_value(node.stride) == 0:
            return broadcast(node.base, node.lanes)
        return None

    def _call(self, e: Call) -> Expr | None:
        folded = fold_call(e)
        if folded is not None:
            return folded
        if e.lanes > 1 and all(isinstance(a, Broadcast) for a in e.args):
            values = [cast(Broadcast, a).value for a in e.args]
            return broadcast(self._rules(call(e.name, *values, dtype=e.dtype)), e.lanes)
        return apply_rules(e)

    def _binary(self, e: Binary) -> Expr | None:
        folded = fold_binary(e)
        if folded is not None:
            return folded
        if isinstance(e.a, Broadcast) and isinstance(e.b, Broadcast):
            return broadcast(self._rules(binary(e.op, e.a.value, e.b.value)), e.lanes)
        in_sum = e.dtype == INDEX and e.op in ("add", "mul")  # ordered by the affine form
        if e.op in _COMMUTATIVE and not in_sum and _is_constant(e.a) and not _is_constant(e.b):
            return binary(e.op, e.b, e.a)
        fresh: Expr | None = None
        if is_integer(e.a.dtype):
            fresh = self._integer(e)
        elif e.op in LOGIC_OPS and e.lanes == 1:
            fresh = self._logic(e)
        return apply_rules(e) if fresh is None or fresh is e else fresh

    def _logic(self, e: Binary) -> Expr | None:
        """Drop a side that the other decides: i < 4 and i < 8  ->  i < 4."""
        holds = e.op == "and"  # the other side matters only where this one is `holds`
        are_apart = self._scope is not None and e.a.leaves.isdisjoint(e.b.leaves)
        for side, rest in ((e.a, e.b), (e.b, e.a)):
            if are_apart:  # neither says anything of the other
                known = self.bounds.prove(rest)
            else:
                ranges = assume(self.ranges, side, holds=holds, bounds=self.bounds)
                known = None if ranges is self.ranges else prove(rest, ranges)
            if known is not None:
                return side if known is holds else Const.of(not holds, "bool")
        return None

    def _integer(self, e: Binary) -> Expr | None:
        if e.op in COMPARE_OPS:
            return self._compare(e)
        if e.op in ("min", "max"):
            return self._extreme(e)
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            return self._division(e)
        if e.dtype == INDEX and e.op in ("add", "sub", "mul"):
            return self._sum(e) if is_sum(e) else self._product(e)
        return None

    # ------------------------------------------------------------------ sums

    def _sum(self, node: Expr) -> Expr:
        """Return a maximal sum in normal form; its atoms are simplified first."""
        total, memo = decompose(node), self.memo
        for changed in total.terms:
            if memo.get(changed, changed) is not changed:
                source, total = total, total.like({}, total.const)
                for atom, coef in source.terms.items():
                    total = total.plus(decompose(memo.get(atom, atom)), coef)
                break
        return self._recombine(total).to_expr()

    def _recombine(self, s: Affine) -> Affine:
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
        return None if partner is None else self._merge_pair(s, atom, coef, *partner, divisor)

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
            rest = {a: c for a, c in s.terms.items() if a is not atom and a is not partner}
            return s.like(rest, s.const).plus(decompose(atom.a), coef)
        if inner != 1:
            return None
        for other, have in s.terms.items():
            if have != coef * divisor or not isinstance(other, Binary) or other.op != "floormod":
                continue
            outer = splat_value(other.b)
            if other.a is partner and outer is not None and outer > 0:
                rest = {a: c for a, c in s.terms.items() if a is not atom and a is not other}
                whole = self.division.remainder(decompose(atom.a), divisor * outer)
                return s.like(rest, s.const).plus(whole, coef)
        return None

    def _product(self, e: Binary) -> Expr | None:
        """Multiply out a product of short sums: (i + 1) * n  ->  i * n + n."""
        a, b = decompose(e.a), decompose(e.b)
        if (len(a.terms) + bool(a.const)) * (len(b.terms) + bool(b.const)) > _MAX_PRODUCT_TERMS:
            return None
        return product_of_sums(a, b).to_expr()

    # ------------------------------------------------------------------ division

    def _division(self, e: Binary) -> Expr | None:
        op = e.op
        if op in ("truncdiv", "truncmod"):
            if not (self._is_natural(e.a) and self._is_natural(e.b)):
                return None
            return binary("floordiv" if op == "truncdiv" else "floormod", e.a, e.b)
        if e.dtype != INDEX:
            return self._data_division(e)
        divisor = splat_value(e.b)
        a = decompose(e.a)
        if divisor is None:
            made = self.division.by_sum(cast(DivisionOp, op), a, decompose(e.b))
            return None if made is None else made.to_expr()
        if divisor == 0:
            return None
        if divisor < 0:
            return self._negative_division(e, a, divisor)
        result = self.division.quotient if op == "floordiv" else self.division.remainder
        return self._recombine(result(a, divisor)).to_expr()

    def _data_division(self, e: Binary) -> Expr | None:
        """x // c and x % c of other types where every x has the same quotient."""
        divisor, x = splat_value(e.b), self.bounds.of(e.a)
        if divisor is None or divisor <= 0 or x.lo is None or x.hi is None:
            return None
        quotient = x.lo // divisor
        if quotient != x.hi // divisor:
            return None
        if e.op == "floordiv":
            return broadcast(Const.of(quotient, e.dtype), e.lanes)
        return e.a if quotient == 0 else None

    def _negative_division(self, e: Binary, a: Affine, divisor: int) -> Expr | None:
        """x // -c  ->  -x // c  and  x % -c  ->  -(-x % c)."""
        flipped = a.times(-1)
        if not self.bounds.is_exact(a) or not self.bounds.is_exact(flipped):
            return None
        if e.op == "floordiv":
            return self.division.quotient(flipped, -divisor).to_expr()
        return self.division.remainder(flipped, -divisor).times(-1).to_expr()

    def _is_natural(self, e: Expr) -> bool:
        lo = self.bounds.of(e).lo
        return lo is not None and lo >= 0

    # ------------------------------------------------------------------ comparisons, min, max

    def _extreme(self, e: Binary) -> Expr | None:
        a, b = decompose(e.a), decompose(e.b)
        if not self.bounds.is_exact(a) or not self.bounds.is_exact(b):
            return None
        gap = self.bounds.of_sum(a.plus(b, -1))
        smaller, larger = (e.a, e.b) if e.op == "min" else (e.b, e.a)
        if gap.hi is not None and gap.hi <= 0:
            return smaller
        return larger if gap.lo is not None and gap.lo >= 0 else None

    def _compare(self, e: Binary) -> Expr | None:
        known = self.bounds.prove(e)
        if known is not None:
            return broadcast(Const.of(known, "bool"), e.lanes)
        if e.a.dtype != INDEX:
            return None
        if e.op in ("gt", "ge"):
            return binary("lt" if e.op == "gt" else "le", e.b, e.a)
        a, b = decompose(e.a), decompose(e.b)
        if not self.bounds.is_exact(a) or not self.bounds.is_exact(b):
            return None
        difference = a.plus(b, -1)
        if e.op == "le":
            difference = difference.plus(a.like({}, -1))
        op: BinaryOp = "lt" if e.op == "le" else e.op
        return self._against_zero(op, self._tightened(op, difference))

    def _tightened(self, op: BinaryOp, d: Affine) -> Affine:
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
            if small.terms and Interval(0, g - 1).contains(self.bounds.plain_sum(small)):
                big = {a: k // g for a, k in d.terms.items() if k % g == 0}
                return self._tightened(op, d.like(big, d.const // g))
        return d

    def _against_zero(self, op: BinaryOp, d: Affine) -> Expr | None:
        """Return `d op 0` with positive terms on the left and negative ones on the right."""
        left = d.like({a: k for a, k in d.terms.items() if k > 0}, 0)
        right = d.like({a: -k for a, k in d.terms.items() if k < 0}, 0)
        if op != "lt" and not left.terms:
            left, right = right, d.like({}, d.const)
        elif left.terms and (d.const <= 0 or not right.terms):
            right.const = -d.const
        else:
            left.const = d.const
        if not self.bounds.is_exact(left) or not self.bounds.is_exact(right):
            return None
        if op == "lt" and right.terms and right.const == 1:
            op, right.const = "le", 0
        return binary(op, left.to_expr(), right.to_expr())

    # ------------------------------------------------------------------ choice

    def _select(self, e: Select) -> Expr | None:
        parts = (e.cond, e.then, e.other)
        if e.lanes > 1 and all(isinstance(p, Broadcast) for p in parts):
            values = tuple(cast(Broadcast, p).value for p in parts)
            return broadcast(self._rules(e.with_children(values)), e.lanes)
        return apply_rules(e)


_Scope = Sequence[tuple[Expr, Interval]]


def _is_constant(e: Expr) -> bool:
    return isinstance(e, Const) or (isinstance(e, Broadcast) and isinstance(e.value, Const))
