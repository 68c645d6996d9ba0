# SPDX-License-Identifier: Apache-2.0
"""Expand vectorized loops into vector statements and unrolled loops into copies of their body.

vectorized  before: for i in vectorized(8): A[j * 8 + i] = x   ->   after: A[ramp(j * 8, 1, 8)] = x
unrolled    before: for i in unrolled(2): A[i] = x             ->   after: A[0] = x; A[1] = x
"""

from __future__ import annotations

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import rewrite, uses, walk
from treadle.loop import nodes as lp
from treadle.loop.nodes import (
    Allocate,
    Barrier,
    Buffer,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Stmt,
    Store,
)

MAX_LANES = 64
"""A wider vectorized loop becomes a loop over vectors of `WIDE_LANES`."""
WIDE_LANES = 16
MAX_UNROLLED = 8192
"""Statements an unrolled loop may grow to before it stays a loop."""


def vectorize_loops(func: PrimFunc, *, least_masked: int = 0) -> PrimFunc:
    """Return `func` without vectorized loops.

    Stores under a condition that differs between lanes stay so, as vectors under a mask, where the
    target has masks (`least_masked` is not 0). A loop that cannot be a vector (another condition
    of lanes, an inner buffer, an inner extent that depends on the lane) runs serially.
    """

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, For) and s.kind == "vectorized":
            return _vectorize(s, masks=least_masked > 0)
        return None

    return func.with_body(lp.map_stmt(func.body, None, on_stmt))


def _vectorize(loop: For, *, masks: bool) -> Stmt:
    n = int_value(loop.extent)
    serial = For(loop.var, loop.extent, "serial", loop.body, loop.thread, loop.pragmas)
    if n is None or not _is_vectorizable(loop.body, loop.var, masks=masks):
        return serial
    if n <= MAX_LANES:
        return _lanes(loop.body, loop.var, Const.of(0), n)
    chunk = Var(f"{loop.var.name}.chunk")
    body = _lanes(loop.body, loop.var, chunk * WIDE_LANES, WIDE_LANES)
    main = For(chunk, Const.of(n // WIDE_LANES), "serial", body)
    if n % WIDE_LANES == 0:
        return main
    done = n - n % WIDE_LANES
    return lp.seq(main, _lanes(loop.body, loop.var, Const.of(done), n % WIDE_LANES))


def _lanes(body: Stmt, var: Var, base: Expr, lanes: int) -> Stmt:
    if lanes == 1:
        return lp.substitute(body, {var: base})
    body = lp.map_stmt(body, None, lambda s: _first_lane(s, var, base))
    value = ex.ramp(base, 1, lanes)
    memo: dict[Expr, Expr] = {}

    def on_expr(e: Expr) -> Expr:
        return rewrite(e, lambda n: value if n is var else None, memo)

    def on_stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store):
            return None
        at = simplify(s.indices[0], {})
        wide = max(at.lanes, s.value.lanes)
        return Store(s.buffer, (ex.broadcast(at, wide),), ex.broadcast(s.value, wide))

    return lp.map_stmt(body, on_expr, on_stmt)


def _first_lane(s: Stmt, var: Var, base: Expr) -> Stmt | None:
    """One line holds the lanes of what is prefetched, or most of them."""
    return lp.substitute(s, {var: base}) if isinstance(s, Prefetch) else None


def _is_vectorizable(body: Stmt, var: Var, *, masks: bool) -> bool:
    for s in lp.walk_stmts(body):
        if isinstance(s, (Allocate, Let, Barrier, Evaluate)):
            return False
        if isinstance(s, For) and (s.kind == "parallel" or uses(s.extent, var)):
            return False
        if isinstance(s, If) and uses(s.cond, var) and not (masks and _is_masked_store(s)):
            return False
        if isinstance(s, Store) and not uses(s.indices[0], var):
            return False
        if any(n.lanes > 1 for e in lp.stmt_exprs(s) for n in walk(e)):
            return False
    return True


def _is_masked_store(s: If) -> bool:
    return isinstance(s.then, Store) and s.orelse is None


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Return `func` without unrolled loops of constant extent that do not grow too large."""

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, For) and s.kind == "unrolled":
            return _unroll(s)
        return None

    return func.with_body(lp.map_stmt(func.body, None, on_stmt))


def _unroll(loop: For) -> Stmt:
    n = int_value(loop.extent)
    if n is None or n * _size(loop.body) > MAX_UNROLLED:
        return For(loop.var, loop.extent, "serial", loop.body, loop.thread, loop.pragmas)
    copies = []
    for i in range(n):
        copies.append(_fresh_loops(lp.substitute(loop.body, {loop.var: Const.of(i)})))
    return lp.seq(*copies)


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
