# SPDX-License-Identifier: Apache-2.0
"""Make bodies of their own for the places where no read needs its guard (the inside of a padding).

A guard is a condition of a lazy select or of a statement. Loops are cut where it changes; a
parallel loop, and one of symbolic extent, stays whole and asks once per iteration. Conditions of
statements are no reason to double a loop of symbolic extent: a schedule that guards the last tile
asks for one body.

before: for i in range(8): for k in unrolled(3): s += if_then_else(i + k > 0, x[i + k - 1], 0)
after:  i = 0 with its guards   then   for i in range(1, 8): for k: s += x[i + k - 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from treadle.dtype import INDEX
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.conditions import all_of, conjuncts
from treadle.expr.facts import Around, Holding, Iterating
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.traversal import has_lazy_select, reads_memory, substitute, uses, walk
from treadle.limits import GUARDED_PARTS, GUARDS
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, If, PrimFunc, Stmt
from treadle.lower.partition_loops import around_inner, cut_loop, partition_loops, threshold
from treadle.lower.simplify_loops import scope_of, simplify_loops

_TRUE = Const.of(True, "bool")


def specialize_guards(func: PrimFunc) -> PrimFunc:
    """Return `func` with loops cut, and bodies of parallel loops doubled, at their guards."""
    body = _Guards(func.sizes).stmt(func.body, ())
    return func if body is func.body else partition_loops(simplify_loops(func.with_body(body)))


class _Guards:
    def __init__(self, sizes: Sequence[Var]) -> None:
        self.sizes = sizes

    def stmt(self, s: Stmt, around: Around) -> Stmt:
        return self._for(s, around) if isinstance(s, For) else self._inside(s, around)

    def _inside(self, s: Stmt, around: Around) -> Stmt:
        """Go on with the statements inside one that needs no more cuts."""
        return lp.map_children(s, lambda inner: self.stmt(inner, around_inner(s, inner, around)))

    def _for(self, loop: For, around: Around) -> Stmt:
        guards = _guards(loop.body, self.sizes)
        if not guards:
            return loop
        inner = _inner_ranges(loop.body)
        if loop.kind == "parallel":
            return self._ask_once(loop, guards, inner, around)
        if loop.kind == "serial" and int_value(loop.extent) is None:
            lazy = [g for s in lp.walk_stmts(loop.body) for g in _lazy_guards(s)]
            return self._ask_once(loop, lazy, inner, around)
        if loop.kind == "serial":
            parts = cut_loop(loop, _cuts(loop, guards, inner), self.sizes, around)
            if parts is not None:
                return lp.seq(*(self._inside(p, around) for p in parts))
        return self._inside(loop, around)

    def _ask_once(
        self, loop: For, guards: list[Expr], inner: Mapping[Var, int | None], around: Around
    ) -> Stmt:
        """Test per iteration whether all guards that depend on it hold everywhere inside."""
        asked: dict[Expr, Expr] = {}
        for guard in guards:
            fixed = _extreme(guard, inner, at_worst=True, besides=loop.var)
            if fixed is not None:
                asked[guard] = fixed
        if not asked:
            return self._inside(loop, around)
        within = (*around, Iterating(loop.var, loop.extent))
        cond = all_of(self._not_implied(list(dict.fromkeys(asked.values())), within))
        known = lp.substitute(loop.body, dict.fromkeys(asked, _TRUE))
        free = self.stmt(known, (*within, Holding(cond)))
        guarded = self.stmt(loop.body, (*within, Holding(cond, holds=False)))
        return replace(loop, body=If(cond, free, guarded))

    def _not_implied(self, conditions: list[Expr], around: Around) -> list[Expr]:
        """Leave out what the other conditions say already: so more is known where one fails."""
        needed = list(conditions)
        for cond in conditions if len(conditions) > 1 else ():
            others = [Holding(c) for c in needed if c is not cond]
            known = scope_of(self.sizes, (*around, *others))
            if known.prove(known.run(cond)) is True:
                needed.remove(cond)
        return needed


def _guards(body: Stmt, sizes: Sequence[Var]) -> list[Expr]:
    """Return the distinct comparisons of indices in lazy selects and conditional statements.

    What sizes alone decide guards no place.
    """
    found: dict[Expr, None] = {}
    for s in lp.walk_stmts(body):
        if isinstance(s, If):
            found.update((c, None) for c in conjuncts(s.cond) if _is_of_indices(c))
        found.update((c, None) for c in _lazy_guards(s))
    guards = [c for c in found if not c.leaves <= {*sizes}]
    return guards if len(guards) <= GUARDS else []


def _lazy_guards(s: Stmt) -> Iterator[Expr]:
    for e in filter(has_lazy_select, lp.stmt_exprs(s)):
        for n in walk(e):
            if isinstance(n, ex.Select) and n.lazy:
                yield from filter(_is_of_indices, conjuncts(n.cond))


def _is_of_indices(cond: Expr) -> bool:
    """True for a comparison of indices: it can be asked anywhere, and reads no memory."""
    if not isinstance(cond, ex.Binary) or cond.a.dtype != INDEX:
        return False
    return not reads_memory(cond)


def _inner_ranges(body: Stmt) -> dict[Var, int | None]:
    """Return the last value of every loop variable inside, None where it is not constant."""
    found: dict[Var, int | None] = {}
    for s in lp.walk_stmts(body):
        if isinstance(s, For):
            extent = int_value(s.extent)
            found[s.var] = None if extent is None else extent - 1
    return found


def _cuts(loop: For, guards: list[Expr], inner: Mapping[Var, int | None]) -> list[int]:
    """Return where guards begin or cease to hold for all values of the inner loops."""
    n = int_value(loop.extent)
    if n is None:
        return []
    found: set[int] = set()
    for guard in guards:
        for at_worst in (True, False):
            fixed = _extreme(guard, inner, at_worst=at_worst, besides=loop.var)
            place = None if fixed is None else threshold(fixed, loop.var)
            if place is not None and 0 < place < n:
                found.add(place)
    return sorted(found) if len(found) < GUARDED_PARTS else []


def _extreme(
    guard: Expr, inner: Mapping[Var, int | None], *, at_worst: bool, besides: Var
) -> Expr | None:
    """Return a guard with the values of inner variables for which it holds least (or most)."""
    if not isinstance(guard, ex.Binary) or guard.op not in ("lt", "le", "gt", "ge"):
        return None
    terms = decompose(guard.a - guard.b).terms
    values: dict[Expr, Expr] = {}
    for atom, factor in terms.items():
        if atom in inner and isinstance(atom, Var):
            last = inner[atom]
            if last is None:
                return None
            is_low = (factor > 0) == (guard.op in ("gt", "ge"))
            values[atom] = Const.of(0 if is_low == at_worst else last)
        elif not atom.leaves.isdisjoint(inner):
            return None
    if not any(uses(atom, besides) for atom in terms):
        return None
    return substitute(guard, values)
