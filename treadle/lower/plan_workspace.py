# SPDX-License-Identifier: Apache-2.0
"""Give every buffer that all threads share an offset in the one workspace of a kernel.

Buffers whose lives do not overlap share memory; a life runs from the first to the last top-level
statement that mentions the buffer. Placement is greedy by size (Pisarchyk and Lee, 2020). Buffers
of symbolic size follow one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from treadle.dtype import itemsize
from treadle.expr import traversal
from treadle.expr.conditions import as_number
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import free_vars
from treadle.loop import nodes as lp
from treadle.loop.nodes import ALIGNMENT, Allocate, Buffer, If, Prefetch, PrimFunc, Seq, Stmt, Store

_ONE: Expr = Const.of(1)


@dataclass(slots=True)
class _Life:
    buffer: Buffer
    nbytes: int
    first: int
    last: int
    offset: int = 0


def plan_workspace(func: PrimFunc) -> PrimFunc:
    """Return `func` with `workspace_bytes` and attrs["workspace_offsets"] set.

    Both are expressions over the kernel's sizes where these decide.
    """
    buffers, body = _outermost(func.body)
    found = [
        s.buffer
        for s in lp.walk_stmts(func.body)
        if isinstance(s, Allocate) and s.buffer.scope == "workspace"
    ]
    if not found:
        return func
    parts = body.stmts if isinstance(body, Seq) else (body,)
    fixed = [b for b in found if int_value(b.shape[0]) is not None]
    lives = [_life(b, parts, outermost=any(b is o for o in buffers)) for b in fixed]
    total: int | Expr = _place(lives)
    offsets: dict[str, int | Expr] = {life.buffer.name: life.offset for life in lives}
    known = Simplifier({v: Interval(0, None) for v in func.sizes})
    for buffer, share in _open_buffers(func.body, func.sizes):
        offsets[buffer.name] = total
        size = (buffer.shape[0] * itemsize(buffer.dtype) + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
        total = known.run(size * share + total)
    attrs = {**func.attrs, "workspace_offsets": offsets}
    return replace(func, workspace_bytes=total, attrs=attrs)


def _open_buffers(
    stmt: Stmt, sizes: Collection[Var], share: Expr = _ONE
) -> Iterator[tuple[Buffer, Expr]]:
    """Yield the buffers of symbolic size with 1 where they are needed, 0 for sizes that do not.

    A buffer of one of the cases of a kernel takes no memory where another one runs.
    """
    if isinstance(stmt, If):
        truth = as_number(stmt.cond) if all(v in sizes for v in free_vars(stmt.cond)) else None
        yield from _open_buffers(stmt.then, sizes, share if truth is None else share * truth)
        if stmt.orelse is not None:
            rest = share if truth is None else share * (1 - truth)
            yield from _open_buffers(stmt.orelse, sizes, rest)
        return
    made = stmt.buffer if isinstance(stmt, Allocate) else None
    if made is not None and made.scope == "workspace" and int_value(made.shape[0]) is None:
        yield made, share
    for child in lp.sub_stmts(stmt):
        yield from _open_buffers(child, sizes, share)


def _outermost(body: Stmt) -> tuple[list[Buffer], Stmt]:
    buffers = []
    while isinstance(body, Allocate):
        buffers.append(body.buffer)
        body = body.body
    return buffers, body


def _life(buffer: Buffer, parts: tuple[Stmt, ...], *, outermost: bool) -> _Life:
    count = int_value(buffer.shape[0])
    assert count is not None
    uses = [i for i, part in enumerate(parts) if _mentions(part, buffer)]
    first, last = (uses[0], uses[-1]) if uses and outermost else (0, len(parts))
    nbytes = max(count, 1) * itemsize(buffer.dtype)
    return _Life(buffer, -(-nbytes // ALIGNMENT) * ALIGNMENT, first, last)


def _mentions(stmt: Stmt, buffer: Buffer) -> bool:
    for s in lp.walk_stmts(stmt):
        if isinstance(s, (Store, Prefetch)) and s.buffer is buffer:
            return True
        for e in lp.stmt_exprs(s):
            if traversal.uses(e, buffer):
                return True
    return False


def _place(lives: list[_Life]) -> int:
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda x: -x.nbytes):
        taken = sorted(
            (o.offset, o.offset + o.nbytes)
            for o in placed
            if o.first <= life.last and life.first <= o.last
        )
        offset = 0
        for low, high in taken:
            if offset + life.nbytes <= low:
                break
            offset = max(offset, high)
        life.offset = offset
        placed.append(life)
    return max((o.offset + o.nbytes for o in placed), default=0)
