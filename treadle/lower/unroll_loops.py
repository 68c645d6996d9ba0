# SPDX-License-Identifier: Apache-2.0
"""Expand unrolled loops into copies of their body, and simplify all there is.

before: for i in unrolled(2): A[j * 2 + i] = x   ->   after: A[j * 2] = x; A[j * 2 + 1] = x

A body is simplified once, for all its iterations; a copy has other constants in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from treadle.expr import nodes as ex
from treadle.expr.iterations import Iterations
from treadle.expr.nodes import Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import rewrite
from treadle.limits import UNROLLED_STATEMENTS
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, Prefetch, PrimFunc, Seq, Stmt, Store
from treadle.lower.simplify_loops import Walk, scope_of


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` simplified, without unrolled loops but those of unknown extent or too large."""
    return func.with_body(Walk(_unrolled).stmt(func.body, scope_of(func.sizes)))


def _unrolled(loop: For, known: Simplifier, walk: Walk) -> Stmt:
    """Return the copies of a body, and of those unrolled loops that it is nothing but.

    The innermost loops are unrolled as long as that does not grow too large.
    """
    loops, outside, body = _nest(loop, known)
    body = walk.stmt(body, outside.pop())
    size, unrolled = _size(body), 0
    for s in reversed(loops):
        size *= int_value(s.extent) or UNROLLED_STATEMENTS + 1
        if size > UNROLLED_STATEMENTS:
            break
        unrolled += 1
    kept, loops = loops[: len(loops) - unrolled], loops[len(loops) - unrolled :]
    if loops and not lp.is_empty(body):
        body = _copies(loops, body, outside[len(kept)], walk)
    if lp.is_empty(body):
        return body
    for s in reversed(kept):
        body = For(s.var, s.extent, "serial", body, s.thread, s.pragmas)
    return body


def _nest(loop: For, known: Simplifier) -> tuple[list[For], list[Simplifier], Stmt]:
    """Return unrolled loops one inside of the other, what is known outside of each and inside of
    all, and their body.
    """
    loops, scopes, body = [loop], [known, known.in_loop(loop.var, loop.extent)], loop.body
    while isinstance(body, For) and body.kind == "unrolled":
        extent = scopes[-1].run(body.extent)
        if (int_value(extent) or 0) < 2:
            break  # for the walk
        loops.append(replace(body, extent=extent))
        scopes.append(scopes[-1].in_loop(body.var, extent))
        body = body.body
    return loops, scopes, body


def _copies(loops: Sequence[For], body: Stmt, known: Simplifier, walk: Walk) -> Stmt:
    """Return a body that is simplified for all iterations in each of them, the last fastest."""
    made = Iterations([s.var for s in loops], known)
    copies = []
    for numbers in product(*(range(int_value(s.extent) or 0) for s in loops)):
        made.at(numbers)
        copies.append(_copy(body, made, known, walk))
    return lp.seq(*(c for c in copies if not lp.is_empty(c)))


def _copy(s: Stmt, made: Iterations, known: Simplifier, walk: Walk) -> Stmt:
    """Return a statement of the body as it is in an iteration."""
    if isinstance(s, Seq):
        parts = (_copy(b, made, known, walk) for b in s.stmts)
        return lp.seq(*(p for p in parts if not lp.is_empty(p)))
    if isinstance(s, Store):
        return Store(s.buffer, tuple([made.run(i) for i in s.indices]), made.run(s.value))
    if isinstance(s, Prefetch):
        return Prefetch(s.buffer, tuple([made.run(i) for i in s.indices]), s.level)
    return walk.stmt(_fresh_loops(lp.substitute(s, made.values)), known)


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
            return Prefetch(buffers[id(s.buffer)], s.indices, s.level)
        if isinstance(s, Allocate):
            return Allocate(buffers[id(s.buffer)], s.body)
        return None

    memo: dict[Expr, Expr] = {}
    return lp.map_stmt(stmt, lambda e: rewrite(e, on_load, memo), on_stmt)
