# SPDX-License-Identifier: Apache-2.0
"""Cut a loop where a condition inside it changes, so that most of its iterations need no test.

before: for i in range(9): if i < 8: full(i) else: rest(i)
after:  for i in range(8): full(i)   then   rest(8)

A condition that inner loops take part in is cut where it starts to hold for all of their
iterations, or for none:

before: for i in range(9): for j in vectorized(16): if i * 16 + j < 130: f(i, j)
after:  for i in range(8): for j in vectorized(16): f(i, j)   then   for j in vectorized(2): f(8, j)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.bounds import Bounds
from treadle.expr.facts import Around, Facts, Holding, Iterating
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.traversal import substitute, uses
from treadle.limits import LOOP_PARTS
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, If, PrimFunc, Stmt, Store
from treadle.lower.simplify_loops import simplify_inside, simplify_loops

_CUTTABLE = ("serial", "unrolled", "vectorized")


def partition_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` with loops cut at the thresholds of the `If`s inside them, then simplified."""
    body = _visit(func.body, func, ())
    return func if body is func.body else simplify_loops(func.with_body(body))


def _visit(s: Stmt, func: PrimFunc, around: Around) -> Stmt:
    """Cut from outside in: what an outer cut decides is known to the inner loops of its parts."""
    if isinstance(s, For):
        vectors = _cut_vectors(s, func, around)
        if vectors is not None:
            return lp.seq(*vectors)  # with nothing inside of them to cut
        parts = _cut(s, func, around) if s.kind in _CUTTABLE else None
        if parts is not None:
            return lp.seq(*(_visit(p, func, around) for p in parts))
    return lp.map_children(s, lambda inner: _visit(inner, func, around_inner(s, inner, around)))


def around_inner(s: Stmt, inner: Stmt, around: Around) -> Around:
    """Return the loops and conditions around a statement that stands directly inside `s`."""
    if isinstance(s, For):
        return (*around, Iterating(s.var, s.extent))
    if isinstance(s, If):
        return (*around, Holding(s.cond, holds=inner is s.then))
    return around


def _cut(loop: For, func: PrimFunc, around: Around) -> list[Stmt] | None:
    n = int_value(loop.extent)
    if n is None:
        return _cut_symbolic(loop, func, around)
    inner = _inner_ranges(loop.body)
    found = (t for c in _conditions(loop.body) for t in thresholds(c, loop.var, inner))
    cuts = sorted({t for t in found if 0 < t < n})
    return None if len(cuts) >= LOOP_PARTS else cut_loop(loop, cuts, func.sizes, around)


def cut_loop(loop: For, cuts: list[int], sizes: Sequence[Var], around: Around) -> list[Stmt] | None:
    """Return the parts of a loop of known extent cut before the given iterations.

    What the cuts decide inside of the parts is decided. None where nothing is cut.
    """
    n = int_value(loop.extent)
    if not cuts or n is None:
        return None
    parts = [_part(loop, low, high) for low, high in pairwise([0, *cuts, n])]
    return simplify_inside(parts, sizes, around)


def _part(loop: For, low: int, high: int) -> Stmt:
    var = Var(loop.var.name)
    value = var + low if low else var
    body = lp.substitute(loop.body, {loop.var: value})
    return For(var, Const.of(high - low), loop.kind, body, loop.thread, loop.pragmas)


def _cut_symbolic(loop: For, func: PrimFunc, around: Around) -> list[Stmt] | None:
    """Cut at (whole // factor) when the body is one uneven split: full tiles, then the rest.

    A loop that is itself a part of a split may end before the last full tile, or begin after it:
    its cut is limited to [0, extent].
    """
    if loop.kind == "vectorized" or not isinstance(loop.body, If) or loop.body.orelse is None:
        return None
    return _tiles_and_rest(loop, loop.body, func, around)


def _tiles_and_rest(loop: For, cases: If, func: PrimFunc, around: Around) -> list[Stmt] | None:
    """Return a loop of symbolic extent as one of full tiles and one of the rest, its two cases."""
    limit = _full_tiles(cases.cond, loop.var)
    if limit is None or cases.orelse is None:
        return None
    limit = _within(limit, loop.extent, Facts(_naturals(func), around))
    full, rest = Var(loop.var.name), Var(loop.var.name)
    head = lp.substitute(cases.then, {loop.var: full})
    tail = lp.substitute(cases.orelse, {loop.var: limit + rest})
    return [
        For(full, limit, loop.kind, head, loop.thread, loop.pragmas),
        For(rest, loop.extent - limit, loop.kind, tail, loop.thread, loop.pragmas),
    ]


def _cut_vectors(loop: For, func: PrimFunc, around: Around) -> list[Stmt] | None:
    """Cut a loop of symbolic extent over vectors of which the last may be partial.

    before: for i in range((n + 15) // 16): for j in vectorized(16): if i * 16 + j < n: f(i, j)
    after:  for i in range(n // 16): for j in vectorized(16): f(i, j)   then   the rest, as it was
    """
    row = loop.body
    if int_value(loop.extent) is not None or loop.kind != "serial" or not isinstance(row, For):
        return None
    inside, lanes = row.body, int_value(row.extent)
    if row.kind != "vectorized" or lanes is None or not isinstance(inside, If):
        return None
    cond = inside.cond
    if inside.orelse is not None or not isinstance(inside.then, Store):
        return None
    if not isinstance(cond, ex.Binary) or cond.op not in ("lt", "le"):
        return None
    if decompose(cond.a - cond.b).without(row.var)[0] <= 0:
        return None
    last = substitute(cond, {row.var: Const.of(lanes - 1)})  # it holds for the others, too
    full = For(row.var, row.extent, row.kind, inside.then, row.thread, row.pragmas)
    return _tiles_and_rest(loop, If(last, full, row), func, around)


def _full_tiles(cond: Expr, var: Var) -> Expr | None:
    """Return t such that the condition (var + 1) * f <= whole is var < t = whole // f."""
    if not isinstance(cond, ex.Binary) or cond.op not in ("le", "lt", "ge", "gt"):
        return None
    left, right = (cond.a, cond.b) if cond.op in ("le", "lt") else (cond.b, cond.a)
    factor, affine = decompose(left - right).without(var)
    if factor <= 0 or any(uses(atom, var) for atom in affine.terms):
        return None
    if cond.op in ("lt", "gt"):
        affine.const += 1
    rest = affine.to_expr()
    return (Const.of(0) - rest) // factor + 1


def _naturals(func: PrimFunc) -> list[Expr]:
    """Return what is not negative: the sizes of a function and the extents of its parameters."""
    return [*func.sizes, *(d for p in func.params for d in p.shape)]


def _within(limit: Expr, extent: Expr, facts: Facts) -> Expr:
    """Return `limit`, limited to [0, extent] where it is not certain to lie there."""
    limit, extent = facts.known.run(limit), facts.known.run(extent)
    is_below = facts.are_ordered(limit, extent)
    if not facts.are_ordered(Const.of(0), limit):
        limit = ex.maximum(limit, 0)
    return limit if is_below else ex.minimum(limit, extent)


def _inner_ranges(body: Stmt) -> dict[Var, Interval]:
    """Return what the loops inside a body run over, where that is constant."""
    found: dict[Var, Interval] = {}
    for s in lp.walk_stmts(body):
        extent = int_value(s.extent) if isinstance(s, For) else None
        if isinstance(s, For) and extent is not None and extent > 0:
            found[s.var] = Interval(0, extent - 1)
    return found


def _conditions(stmt: Stmt) -> Iterator[Expr]:
    for s in lp.walk_stmts(stmt):
        pending = [s.cond] if isinstance(s, If) else []
        while pending:
            cond = pending.pop()
            if isinstance(cond, ex.Binary) and cond.op in ("and", "or"):
                pending += [cond.a, cond.b]
            else:
                yield cond


def threshold(cond: Expr, var: Var) -> int | None:
    """Return t when `cond` depends on `var` alone and changes its truth between t - 1 and t."""
    found = thresholds(cond, var, {})
    return found[0] if found else None


def thresholds(cond: Expr, var: Var, inner: Mapping[Var, Interval]) -> list[int]:
    """Return where, as `var` grows, a comparison changes between never, sometimes and always.

    Whatever else than `var` takes part must be variables of `inner`, which has their bounds.

    i * 16 + j < 130, j in [0, 15]  ->  [8, 9]: always below 8, never from 9 on
    """
    if not isinstance(cond, ex.Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return []
    factor, affine = decompose(cond.a - cond.b).without(var)
    if factor == 0 or not all(isinstance(a, Var) and a in inner for a in affine.terms):
        return []
    rest = Bounds(inner).of_sum(affine)
    if rest.lo is None or rest.hi is None:
        return []
    return sorted({_first(cond.op, factor, const) for const in (rest.lo, rest.hi)})


def _first(op: str, factor: int, const: int) -> int:
    """Return the first x at which the truth of `factor * x + const  op  0` is what it stays."""
    if op in ("gt", "ge"):
        factor, const = -factor, -const
    bound = -const - (1 if op in ("lt", "gt") else 0)
    if factor > 0:
        return bound // factor + 1
    return -(bound // -factor)
