# SPDX-License-Identifier: Apache-2.0
"""The simplifier: sums, quotients and comparisons in normal form, and the table of rules.py.

Index arithmetic (int64) is brought to the affine form of bounds.py at every maximal sum, which
makes equal index expressions one node. Other types keep the order their author wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from treadle.dtype import INDEX, is_integer
from treadle.expr.affine import (
    decompose,
    is_sum,
    splat_value,
)
from treadle.expr.bounds import Bounds, Ranges, assume, prove
from treadle.expr.casts import shorten_cast
from treadle.expr.comparisons import chosen_extreme, compared
from treadle.expr.division import Division
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
from treadle.expr.quotients import divided
from treadle.expr.rules import apply_rules
from treadle.expr.sums import Sums, multiplied_out
from treadle.expr.vocabulary import COMPARE_OPS, HAS_LAZY, LOGIC_OPS

_NO_RANGES: Ranges = {}
_COMMUTATIVE = frozenset(
    {"add", "mul", "min", "max", "bitand", "bitor", "bitxor", "eq", "ne", "and", "or"}
)


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
        self._sums = Sums(Division(self.bounds))
        self.memo: dict[Expr, Expr] = {}
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
        more decides it than that: how many conditions were looked at before.
        """
        keys[node] = None
        if node.traits & HAS_LAZY:
            return False
        key = keys[node] = self.bounds.scope.of(node.leaves)
        results = node.simple_of
        if results is None or key not in results:
            return False
        found = results[key]
        result = node if found is None else found
        self.memo[node] = result
        self.memo.setdefault(result, result)
        return True

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
        return (
            self._sums.normal(node, self.memo)
            if node.dtype == INDEX and is_sum(node)
            else self._rules(node)
        )

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
            return self._sums.normal(node, self.memo)
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
        are_apart = not self.bounds.has_relations and e.a.leaves.isdisjoint(e.b.leaves)
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
            return compared(e, self.bounds)
        if e.op in ("min", "max"):
            return chosen_extreme(e, self.bounds)
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            return divided(e, self.bounds, self._sums)
        if e.dtype == INDEX and e.op in ("add", "sub", "mul"):
            return self._sums.normal(e, self.memo) if is_sum(e) else multiplied_out(e)
        return None

    def _select(self, e: Select) -> Expr | None:
        parts = (e.cond, e.then, e.other)
        if e.lanes > 1 and all(isinstance(p, Broadcast) for p in parts):
            values = tuple(cast(Broadcast, p).value for p in parts)
            return broadcast(self._rules(e.with_children(values)), e.lanes)
        return apply_rules(e)


def _is_constant(e: Expr) -> bool:
    return isinstance(e, Const) or (isinstance(e, Broadcast) and isinstance(e.value, Const))
