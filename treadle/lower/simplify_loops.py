# SPDX-License-Identifier: Apache-2.0
"""Simplify every expression with the ranges of the loops around it, and drop what never runs.

before: for i in range(1): if i < 4: A[i * 1] = x   ->   after: A[0] = x
"""

from __future__ import annotations

from treadle.expr.bounds import Interval, Ranges, assume, interval, prove
from treadle.expr.nodes import Const, int_value
from treadle.expr.simplify import simplify
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, For, If, PrimFunc, Seq, Stmt, Store, seq


def simplify_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` with simplified expressions, without empty or single-turn loops."""
    ranges: Ranges = {v: Interval(0, None) for v in func.sizes}
    return func.with_body(_stmt(func.body, ranges))


def _stmt(s: Stmt, ranges: Ranges) -> Stmt:
    if isinstance(s, Seq):
        parts = [_stmt(b, ranges) for b in s.stmts]
        return seq(*(p for p in parts if not lp.is_empty(p)))
    if isinstance(s, Store):
        at = tuple(simplify(i, ranges) for i in s.indices)
        return Store(s.buffer, at, simplify(s.value, ranges))
    if isinstance(s, Allocate):
        body = _stmt(s.body, ranges)
        return body if lp.is_empty(body) else Allocate(s.buffer, body)
    if isinstance(s, If):
        return _if(s, ranges)
    return _for(s, ranges)


def _if(s: If, ranges: Ranges) -> Stmt:
    cond = simplify(s.cond, ranges)
    known = prove(cond, ranges)
    if known is True:
        return _stmt(s.then, ranges)
    if known is False:
        return seq() if s.orelse is None else _stmt(s.orelse, ranges)
    then = _stmt(s.then, assume(ranges, cond))
    orelse = None if s.orelse is None else _stmt(s.orelse, assume(ranges, cond, holds=False))
    if orelse is not None and lp.is_empty(orelse):
        orelse = None
    if lp.is_empty(then) and orelse is None:
        return seq()
    return If(cond, then, orelse)


def _for(s: For, ranges: Ranges) -> Stmt:
    extent = simplify(s.extent, ranges)
    n = int_value(extent)
    if n is not None and n <= 0:
        return seq()
    if n == 1 and s.kind != "thread":
        return _stmt(lp.substitute(s.body, {s.var: Const.of(0)}), ranges)
    high = interval(extent, ranges).hi
    inner = {**ranges, s.var: Interval(0, None if high is None else high - 1)}
    body = _stmt(s.body, inner)
    if lp.is_empty(body):
        return body
    return For(s.var, extent, s.kind, body, s.thread, s.pragmas)
