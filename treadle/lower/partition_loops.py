# SPDX-License-Identifier: Apache-2.0
"""Cut a serial loop where a condition on its variable changes, so that its body needs no test.

before: for i in range(9): if i < 8: full(i) else: rest(i)
after:  for i in range(8): full(i)   then   rest(8)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, If, PrimFunc, Stmt
from treadle.lower.simplify_loops import simplify_loops

_MAX_PARTS = 4


def partition_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` with serial loops cut at the thresholds of the `If`s inside them."""

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, For) and s.kind in ("serial", "unrolled"):
            return _cut(s)
        return None

    return simplify_loops(func.with_body(lp.map_stmt(func.body, None, on_stmt)))


def _cut(loop: For) -> Stmt | None:
    n = int_value(loop.extent)
    if n is None:
        return _cut_symbolic(loop)
    thresholds = (threshold(c, loop.var) for c in _conditions(loop.body))
    cuts = sorted({t for t in thresholds if t is not None and 0 < t < n})
    if len(cuts) >= _MAX_PARTS:
        return None
    parts = cut_loop(loop, cuts)
    return None if parts is None else lp.seq(*parts)


def cut_loop(loop: For, cuts: list[int]) -> list[Stmt] | None:
    """Return the parts of a loop of known extent cut before the given turns; None for no cut."""
    n = int_value(loop.extent)
    if not cuts or n is None:
        return None
    edges = [0, *cuts, n]
    return [_part(loop, low, high) for low, high in pairwise(edges)]


def _part(loop: For, low: int, high: int) -> Stmt:
    var = Var(loop.var.name)
    value = var + low if low else var
    body = lp.substitute(loop.body, {loop.var: value})
    part = For(var, Const.of(high - low), loop.kind, body, loop.thread, loop.pragmas)
    decided = simplify_loops(PrimFunc("part", (), tuple(_free(part)), part))
    return decided.body


def _free(stmt: Stmt) -> list[Var]:
    bound = {s.var for s in lp.walk_stmts(stmt) if isinstance(s, For)}
    found: dict[Var, None] = {}
    for s in lp.walk_stmts(stmt):
        for e in lp.stmt_exprs(s):
            found.update((v, None) for v in ex.free_vars(e) if v not in bound)
    return list(found)


def _cut_symbolic(loop: For) -> Stmt | None:
    """Cut at (whole // factor) when the body is one uneven split: full tiles, then the rest."""
    if not isinstance(loop.body, If) or loop.body.orelse is None:
        return None
    limit = _full_tiles(loop.body.cond, loop.var)
    if limit is None:
        return None
    full, rest = Var(loop.var.name), Var(loop.var.name)
    head = lp.substitute(loop.body.then, {loop.var: full})
    tail = lp.substitute(loop.body.orelse, {loop.var: limit + rest})
    return lp.seq(
        For(full, limit, loop.kind, head, loop.thread, loop.pragmas),
        For(rest, loop.extent - limit, loop.kind, tail, loop.thread, loop.pragmas),
    )


def _full_tiles(cond: Expr, var: Var) -> Expr | None:
    """Return t such that the condition (var + 1) * f <= whole is var < t = whole // f."""
    if not isinstance(cond, ex.Binary) or cond.op not in ("le", "lt", "ge", "gt"):
        return None
    left, right = (cond.a, cond.b) if cond.op in ("le", "lt") else (cond.b, cond.a)
    affine = decompose(left - right)
    factor = affine.terms.pop(var, 0)
    if factor <= 0 or any(var in ex.walk(atom) for atom in affine.terms):
        return None
    if cond.op in ("lt", "gt"):
        affine.const += 1
    rest = affine.to_expr()
    return (Const.of(0) - rest) // factor + 1


def _conditions(stmt: Stmt) -> Iterator[Expr]:
    for s in lp.walk_stmts(stmt):
        if isinstance(s, If):
            yield s.cond


def threshold(cond: Expr, var: Var) -> int | None:
    """Return t when `cond` depends on `var` alone and changes its truth between t - 1 and t."""
    if not isinstance(cond, ex.Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return None
    affine = decompose(cond.a - cond.b)
    if list(affine.terms) != [var]:
        return None
    factor, const = affine.terms[var], affine.const
    if cond.op in ("gt", "ge"):
        factor, const = -factor, -const
    strict = cond.op in ("lt", "gt")
    bound = -const - (1 if strict else 0)
    if factor > 0:
        return bound // factor + 1
    return -(bound // -factor)
