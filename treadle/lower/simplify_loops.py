# SPDX-License-Identifier: Apache-2.0
"""Simplify every expression with the ranges of the loops around it, and drop what never runs.

before: for i in range(1): if i < 4: A[i * 1] = x   ->   after: A[0] = x
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from treadle.expr.affine import decompose
from treadle.expr.bounds import Ranges, assume
from treadle.expr.facts import Around, Iterating
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var
from treadle.expr.simplify import Simplifier
from treadle.loop import nodes as lp
from treadle.loop.nodes import (
    Allocate,
    Barrier,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    seq,
)


def simplify_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` with simplified expressions, without empty or loops of one iteration."""
    return func.with_body(Walk().stmt(func.body, scope_of(func.sizes)))


def simplify_inside(stmts: Sequence[Stmt], sizes: Sequence[Var], around: Around) -> list[Stmt]:
    """Return statements simplified as they stand inside loops and conditions."""
    known = scope_of(sizes, around)
    return [Walk().stmt(s, known) for s in stmts]


def scope_of(sizes: Sequence[Var], around: Around = ()) -> Simplifier:
    """Return what is known inside loops and conditions of a function with these sizes."""
    known = Simplifier({v: Interval(0, None) for v in sizes})
    for entry in around:
        if isinstance(entry, Iterating):
            known = known.in_loop(entry.var, entry.extent)
        else:
            known = _assuming(known, entry.cond, holds=entry.holds)
    return known


@dataclass(frozen=True, slots=True)
class Walk:
    """Simplifies statements, each under what is known where it stands.

    `on_unrolled` makes another statement of an unrolled loop, whose extent is simplified.
    """

    on_unrolled: Callable[[For, Simplifier, Walk], Stmt] | None = None

    def stmt(self, s: Stmt, known: Simplifier) -> Stmt:
        if isinstance(s, Seq):
            parts = [self.stmt(b, known) for b in s.stmts]
            return seq(*(p for p in parts if not lp.is_empty(p)))
        if isinstance(s, Store):
            at = tuple(known.run(i) for i in s.indices)
            return Store(s.buffer, at, known.run(s.value))
        if isinstance(s, Prefetch):
            return Prefetch(s.buffer, tuple(known.run(i) for i in s.indices), s.level)
        if isinstance(s, Allocate):
            body = self.stmt(s.body, known)
            return body if lp.is_empty(body) else Allocate(s.buffer, body)
        if isinstance(s, If):
            return self._if(s, known)
        if isinstance(s, Let):
            return self._let(s, known)
        if isinstance(s, Evaluate):
            return Evaluate(known.run(s.value))
        if isinstance(s, Barrier):
            return s
        return self._for(s, known)

    def _if(self, s: If, known: Simplifier) -> Stmt:
        cond = known.run(s.cond)
        truth = known.prove(cond)
        if truth is True:
            return self.stmt(s.then, known)
        if truth is False:
            return seq() if s.orelse is None else self.stmt(s.orelse, known)
        then = self.stmt(s.then, _assuming(known, cond, holds=True))
        orelse = (
            None if s.orelse is None else self.stmt(s.orelse, _assuming(known, cond, holds=False))
        )
        if orelse is not None and lp.is_empty(orelse):
            orelse = None
        if lp.is_empty(then) and orelse is None:
            return seq()
        return If(cond, then, orelse)

    def _let(self, s: Let, known: Simplifier) -> Stmt:
        value = known.run(s.value)
        if isinstance(value, (Const, Var)):
            return self.stmt(lp.substitute(s.body, {s.var: value}), known)
        inner = Simplifier({**known.ranges, s.var: known.bounds.of(value)})
        body = self.stmt(s.body, inner)
        return body if lp.is_empty(body) else Let(s.var, value, body)

    def _for(self, s: For, known: Simplifier) -> Stmt:
        extent = known.run(s.extent)
        iterations = known.bounds.of_sum(decompose(extent))
        if iterations.hi is not None and iterations.hi <= 0:
            return seq()
        if iterations.value is not None:
            extent = Const.of(iterations.value)
        if iterations.hi == 1 and s.kind != "thread":
            once = lp.substitute(s.body, {s.var: Const.of(0)})
            return self.stmt(once if iterations.lo == 1 else If(extent > 0, once), known)
        if s.kind == "unrolled" and self.on_unrolled is not None:
            return self.on_unrolled(replace(s, extent=extent), known, self)
        inner = known.in_loop(s.var, extent)
        body = self.stmt(s.body, inner)
        if lp.is_empty(body):
            return body
        return For(s.var, extent, s.kind, body, s.thread, s.pragmas)


def _assuming(known: Simplifier, cond: Expr, *, holds: bool) -> Simplifier:
    """Return what is known where a condition holds or does not: of its parts, and of itself."""
    ranges = assume(known.ranges, cond, holds=holds, bounds=known.bounds)
    facts = dict(cast(Mapping[Expr, Interval], ranges))
    facts[cond] = Interval(int(holds), int(holds))
    return Simplifier(cast(Ranges, facts))
