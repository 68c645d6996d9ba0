# SPDX-License-Identifier: Apache-2.0
"""Expand unrolled loops into copies of their body, and simplify all there is.

before: for i in unrolled(2): A[j * 2 + i] = x   ->   after: A[j * 2] = x; A[j * 2 + 1] = x

A body is simplified once, for all its iterations; a copy has other constants in it.
"""

from __future__ import annotations

from treadle.expr import nodes as ex
from treadle.expr.iterations import Iterations
from treadle.expr.nodes import Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import rewrite
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, Prefetch, PrimFunc, Seq, Stmt, Store
from treadle.lower.simplify_loops import Walk, scope_of

MAX_UNROLLED = 8192
"""Statements an unrolled loop may grow to before it stays a loop."""


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` simplified, without unrolled loops but those of unknown extent or too large."""
    return func.with_body(Walk(_unrolled).stmt(func.body, scope_of(func.sizes)))


def _unrolled(loop: For, known: Simplifier, walk: Walk) -> Stmt:
    """Return the copies of a body that is simplified for all iterations."""
    n = int_value(loop.extent)
    if n is None or n * _size(loop.body) > MAX_UNROLLED:
        return For(loop.var, loop.extent, "serial", loop.body, loop.thread, loop.pragmas)
    made = Iterations(loop.var, known)
    copies = []
    for i in range(n):
        made.at(i)
        copies.append(_copy(loop.body, made, known, walk))
    return lp.seq(*(c for c in copies if not lp.is_empty(c)))


def _copy(s: Stmt, made: Iterations, known: Simplifier, walk: Walk) -> Stmt:
    """Return a statement of the body as it is in an iteration."""
    if isinstance(s, Seq):
        parts = (_copy(b, made, known, walk) for b in s.stmts)
        return lp.seq(*(p for p in parts if not lp.is_empty(p)))
    if isinstance(s, Store):
        return Store(s.buffer, tuple([made.run(i) for i in s.indices]), made.run(s.value))
    if isinstance(s, Prefetch):
        return Prefetch(s.buffer, tuple([made.run(i) for i in s.indices]))
    return walk.stmt(_fresh_loops(lp.substitute(s, {made.var: made.value})), known)


def _size(stmt: Stmt) -> int:
    return sum(isinstance(s, (Store, Prefetch)) for s in lp.walk_stmts(stmt))


def _fresh_loops(stmt: Stmt) -> Stmt:
    """Give a copy loop variables and buffers of its own."""
    loops = [s for s in lp.walk_stmts(stmt) if isinstance(s, For)]
    local = [s.buffer for s in lp.walk_stmts(stmt) if isinstance(s, Allocate)]
    if not loops and not local:
        return stmt
    mapping: dict[Expr, Expr] = {s.var: Var(s.var.name, s.var.dtype) for s in loops}
    buffers = {id(b): Buffer(b.name, b.dtype, b.shape, b.scope, b.strides, b.align) for b in local}

    def on_load(e: Expr) -> Expr | None:
        if isinstance(e, ex.Load) and id(e.source) in buffers:
            return ex.load(buffers[id(e.source)], e.indices)
        return mapping.get(e)

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, For):
            var = mapping[s.var]
            assert isinstance(var, Var)
            return For(var, s.extent, s.kind, s.body, s.thread, s.pragmas)
        if isinstance(s, Store) and id(s.buffer) in buffers:
            return Store(buffers[id(s.buffer)], s.indices, s.value)
        if isinstance(s, Prefetch) and id(s.buffer) in buffers:
            return Prefetch(buffers[id(s.buffer)], s.indices)
        if isinstance(s, Allocate):
            return Allocate(buffers[id(s.buffer)], s.body)
        return None

    memo: dict[Expr, Expr] = {}
    return lp.map_stmt(stmt, lambda e: rewrite(e, on_load, memo), on_stmt)
