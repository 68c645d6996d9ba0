# SPDX-License-Identifier: Apache-2.0
"""Ask a condition outside the loops that do not change it.

before: for t in range(2): for k in range(16): if p + t < 2: s += x[t, k]
after:  for t in range(2): if p + t < 2: for k in range(16): s += x[t, k]

Parallel loops stay outside: they are what hands work to the threads. Hints to fetch memory go along
with what they are for.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, Var
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, For, If, Let, Prefetch, PrimFunc, Seq, Stmt

_STAYING = ("parallel", "thread")


def hoist_conditions(func: PrimFunc) -> PrimFunc:
    """Return `func` with conditions outside the loops they do not depend on."""
    body = _stmt(func.body)
    return func if body is func.body else func.with_body(body)


def _stmt(s: Stmt) -> Stmt:
    if isinstance(s, Seq):
        parts = [_stmt(p) for p in s.stmts]
        same = all(a is b for a, b in zip(parts, s.stmts, strict=True))
        return _with_hints(s if same else lp.seq(*parts))
    if isinstance(s, (Allocate, Let)):
        body = _stmt(s.body)
        return s if body is s.body else replace(s, body=body)
    if isinstance(s, If):
        then, orelse = _stmt(s.then), None if s.orelse is None else _stmt(s.orelse)
        return s if then is s.then and orelse is s.orelse else If(s.cond, then, orelse)
    if isinstance(s, For):
        body = _stmt(s.body)
        return _loop(s if body is s.body else _with_body(s, body))
    return s


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
    tests = ex.conjuncts(body.cond)
    free = [c for c in tests if _is_free_of(c, loop.var)]
    if not free:
        return loop
    rest = [c for c in tests if not _is_free_of(c, loop.var)]
    inner = If(ex.all_of(rest), body.then) if rest else body.then
    return If(ex.all_of(free), _with_body(loop, inner))


def _with_body(loop: For, body: Stmt) -> For:
    return For(loop.var, loop.extent, loop.kind, body, loop.thread, loop.pragmas)


def _is_free_of(cond: Expr, var: Var) -> bool:
    """True where a condition is the same in every turn: it reads no memory a turn might write."""
    return not any(n is var or isinstance(n, ex.Load) for n in ex.walk(cond))
