# SPDX-License-Identifier: Apache-2.0
"""Expand vectorized loops into vector statements.

before: for i in vectorized(8): A[j * 8 + i] = x   ->   after: A[ramp(j * 8, 1, 8)] = x
"""

from __future__ import annotations

from treadle.dtype import INDEX
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import has_vector, loads, substitute, uses
from treadle.limits import VECTOR_LANES
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
    Stmt,
    Store,
)


def vectorize_loops(
    func: PrimFunc, *, least_masked: int = 0, chunk: int = VECTOR_LANES
) -> PrimFunc:
    """Return `func` without vectorized loops.

    Stores under a condition that differs between lanes stay so, as vectors under a mask, where the
    target has masks (`least_masked` is not 0). A loop that cannot be a vector (another condition
    of lanes, an inner buffer, an inner extent that depends on the lane) runs serially. One too
    long for a vector becomes a loop over vectors of `chunk` lanes.
    """

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, For) and s.kind == "vectorized":
            return _vectorize(s, chunk, masks=least_masked > 0)
        return None

    return func.with_body(lp.map_stmt(func.body, None, on_stmt))


def _vectorize(loop: For, chunk: int, *, masks: bool) -> Stmt:
    n = int_value(loop.extent)
    serial = For(loop.var, loop.extent, "serial", loop.body, loop.thread, loop.pragmas)
    if n is None or not _is_vectorizable(loop.body, loop.var, masks=masks):
        return serial
    if n <= VECTOR_LANES:
        return _lanes(loop.body, loop.var, Const.of(0), n)
    number = Var(f"{loop.var.name}.chunk")
    body = _lanes(loop.body, loop.var, number * chunk, chunk)
    main = For(number, Const.of(n // chunk), "serial", body)
    if n % chunk == 0:
        return main
    done = n - n % chunk
    return lp.seq(main, _lanes(loop.body, loop.var, Const.of(done), n % chunk))


def _lanes(body: Stmt, var: Var, base: Expr, lanes: int) -> Stmt:
    if lanes == 1:
        return lp.substitute(body, {var: base})
    body = lp.map_stmt(body, None, lambda s: _first_lane(s, var, base))
    vectors = _Lanes(var, base, lanes)

    def on_stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store):
            return None
        at = s.indices[0] if isinstance(s.indices[0], ex.Ramp) else simplify(s.indices[0], {})
        wide = max(at.lanes, s.value.lanes)
        return Store(s.buffer, (ex.broadcast(at, wide),), ex.broadcast(s.value, wide))

    return lp.map_stmt(body, vectors.expr, on_stmt)


class _Lanes:
    """Expressions with a vector in the place of a variable: base + [0, lanes)."""

    def __init__(self, var: Var, base: Expr, lanes: int) -> None:
        self.var, self.base, self.lanes = var, base, lanes
        self._made: dict[Expr, Expr] = {var: ex.ramp(base, 1, lanes)}

    def expr(self, e: Expr) -> Expr:
        """Return an expression for all lanes."""
        if not uses(e, self.var):
            return e
        if e.dtype == INDEX:
            self._ramp(e)
        for load in loads(e):
            self._ramp(load.indices[0])
        return substitute(e, {self.var: self._made[self.var]}, self._made)

    def _ramp(self, index: Expr) -> None:
        """Note an index that is evenly spaced as a ramp: one sum instead of a sum of vectors."""
        if index in self._made or not uses(index, self.var):
            return
        step, rest = decompose(index).without(self.var)
        if step == 0 or any(uses(atom, self.var) for atom in rest.terms):
            return
        start = rest.plus(decompose(self.base), step).to_expr()
        self._made[index] = ex.ramp(start, step, self.lanes)


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
        if any(map(has_vector, lp.stmt_exprs(s))):
            return False
    return True


def _is_masked_store(s: If) -> bool:
    return isinstance(s.then, Store) and s.orelse is None
