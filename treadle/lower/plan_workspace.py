# SPDX-License-Identifier: Apache-2.0
"""Give every buffer that all threads share an offset in the one workspace of a kernel.

Buffers whose lives do not overlap share memory; a life runs from the first to the last top-level
statement that mentions the buffer. Placement is greedy by size (Pisarchyk and Lee, 2020). Buffers
of symbolic size follow one after the other.

Parts of the body may allocate the same buffer, known by its name: it has one place, of the size
that the largest of them needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from treadle.dtype import itemsize
from treadle.expr import traversal
from treadle.expr.conditions import as_number
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var, int_value, maximum
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import free_vars
from treadle.loop import nodes as lp
from treadle.loop.nodes import ALIGNMENT, Allocate, Buffer, If, Prefetch, PrimFunc, Seq, Stmt, Store

_NOTHING: Expr = Const.of(0)


@dataclass(slots=True)
class _Life:
    buffer: Buffer
    nbytes: int
    first: int
    last: int
    offset: int = 0

    def joined(self, other: _Life) -> _Life:
        """Return the life of a buffer that lives here and there."""
        return _Life(
            self.buffer,
            max(self.nbytes, other.nbytes),
            min(self.first, other.first),
            max(self.last, other.last),
        )


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
    is_open = {b.name for b in found if int_value(b.shape[0]) is None}
    lives: dict[str, _Life] = {}
    for buffer in found:
        if buffer.name not in is_open:
            life = _life(buffer, parts, outermost=any(buffer is o for o in buffers))
            lives[buffer.name] = life.joined(lives.get(buffer.name, life))
    total: int | Expr = _place(list(lives.values()))
    offsets: dict[str, int | Expr] = {name: life.offset for name, life in lives.items()}
    known = Simplifier({v: Interval(0, None) for v in func.sizes})
    for name, nbytes in _needs(func.body, is_open, func.sizes).items():
        offsets[name] = total
        total = known.run(nbytes + total)
    attrs = {**func.attrs, "workspace_offsets": offsets}
    return replace(func, workspace_bytes=total, attrs=attrs)


def _needs(stmt: Stmt, names: Collection[str], sizes: Collection[Var]) -> dict[str, Expr]:
    """Return how many bytes the buffers of these names need, whole multiples of the alignment.

    A buffer of one of the cases of a kernel takes no memory where another one runs.
    """
    if isinstance(stmt, If):
        truth = as_number(stmt.cond) if all(v in sizes for v in free_vars(stmt.cond)) else None
        then = _needs(stmt.then, names, sizes)
        other = {} if stmt.orelse is None else _needs(stmt.orelse, names, sizes)
        return {
            name: _either(truth, then.get(name, _NOTHING), other.get(name, _NOTHING))
            for name in {**then, **other}
        }
    found: dict[str, Expr] = {}
    if isinstance(stmt, Allocate) and stmt.buffer.name in names:
        found[stmt.buffer.name] = _rounded(stmt.buffer)
    for child in lp.sub_stmts(stmt):
        for name, nbytes in _needs(child, names, sizes).items():
            found[name] = _either(None, nbytes, found.get(name, nbytes))
    return found


def _rounded(buffer: Buffer) -> Expr:
    nbytes = buffer.shape[0] * itemsize(buffer.dtype)
    return (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def _either(truth: Expr | None, then: Expr, other: Expr) -> Expr:
    """Return one of two by a condition that is 1 or 0; the larger where it is not known."""
    if then is other:
        return then
    return maximum(then, other) if truth is None else then * truth + other * (1 - truth)


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


def gaps(taken: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int | None]]:
    """Yield begin and end of the gaps that have room for `size`; the last one has no end.

    `taken` are begins and ends in the order of the begins; they may overlap.
    """
    end = 0
    for low, high in taken:
        if low - end >= size:
            yield end, low
        end = max(end, high)
    yield end, None


def _place(lives: list[_Life]) -> int:
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda x: -x.nbytes):
        taken = sorted(
            (o.offset, o.offset + o.nbytes)
            for o in placed
            if o.first <= life.last and life.first <= o.last
        )
        life.offset, _ = next(gaps(taken, life.nbytes))
        placed.append(life)
    return max((o.offset + o.nbytes for o in placed), default=0)
