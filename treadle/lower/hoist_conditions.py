# SPDX-License-Identifier: Apache-2.0
"""Ask a condition outside the loops that do not change it.

before: for t in range(2): for k in range(16): if p + t < 2: s += x[t, k]
after:  for t in range(2): if p + t < 2: for k in range(16): s += x[t, k]

Parallel loops stay outside: they are what hands work to the threads. Hints to fetch memory go along
with what they are for.
"""

from __future__ import annotations

from treadle.expr.conditions import all_of, conjuncts
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import reads_memory, uses
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, If, Prefetch, PrimFunc, Seq, Stmt

_STAYING = ("parallel", "thread")


def hoist_conditions(func: PrimFunc) -> PrimFunc:
    """Return `func` with conditions outside the loops they do not depend on."""
    body = _stmt(func.body)
    return func if body is func.body else func.with_body(body)


def _stmt(s: Stmt) -> Stmt:
    fresh = lp.map_children(s, _stmt)
    if isinstance(s, Seq):
        return _with_hints(fresh)
    return _loop(fresh) if isinstance(fresh, For) and isinstance(s, For) else fresh


def _with_hints(s: Stmt) -> Stmt:
    """Move hints that stand before a lone condition inside it."""
    if not isinstance(s, Seq) or not s.stmts or not all(map(_is_hint, s.stmts[:-1])):
        return s
    last = s.stmts[-1]
    if not isinstance(last, If) or last.orelse is not None:
        return s
    return If(last.cond, lp.seq(*s.stmts[:-1], last.then))


def _is_hint(s: Stmt) -> bool:
    """True for prefetches and loops of them."""
    return isinstance(s, Prefetch) or (isinstance(s, For) and _is_hint(s.body))


def _loop(loop: For) -> Stmt:
    """Take the conditions that a loop's variable has no part in out of the loop."""
    body = loop.body
    if not isinstance(body, If) or body.orelse is not None or loop.kind in _STAYING:
        return loop
    tests = conjuncts(body.cond)
    free = [c for c in tests if _is_free_of(c, loop.var)]
    if not free:
        return loop
    rest = [c for c in tests if not _is_free_of(c, loop.var)]
    inner = If(all_of(rest), body.then) if rest else body.then
    return If(all_of(free), _with_body(loop, inner))


def _with_body(loop: For, body: Stmt) -> For:
    return For(loop.var, loop.extent, loop.kind, body, loop.thread, loop.pragmas)


def _is_free_of(cond: Expr, var: Var) -> bool:
    """True where a condition is the same in all iterations: it reads nothing that one may write."""
    return not uses(cond, var) and not reads_memory(cond)
