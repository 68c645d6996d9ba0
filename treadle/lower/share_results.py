# SPDX-License-Identifier: Apache-2.0
"""Compute a stage of a row in the memory of the result that takes its place.

What is computed for every element of a row of symbolic length is too long for local memory. Where
the result is all that reads it once the row is complete, element by element, the row is computed
where the result will be: less memory is touched, and none but the result's is needed.

before: e: float32[n, s] = alloc(workspace)      after: for j: y[i, j] = f(x[i, j])
        for j: e[i, j] = f(x[i, j])                     sum of y[i, j] over j
        sum of e[i, j] over j                           for j: y[i, j] = y[i, j] / sum
        for j: y[i, j] = e[i, j] / sum
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import rewrite, uses, walk
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, Prefetch, PrimFunc, Seq, Stmt, Store


def share_results(func: PrimFunc) -> PrimFunc:
    """Return `func` with stages in the place of its result; changed is none of known sizes.

    Nor is one whose result may overwrite an operand, which might still be read.
    """
    if not func.sizes or len(func.outputs) != 1 or func.attrs.get("overwritable"):
        return func
    result = func.params[func.outputs[0]]
    if isinstance(func.body, For):
        made = _shared(func.body, func, result)
        return func if made is None else func.with_body(replace(func.body, body=made))
    return func


def _shared(task: For, func: PrimFunc, result: Buffer) -> Stmt | None:
    """Return the body of a task with one of its stages in the result; None where none can be."""
    buffers, parts = _opened(task.body)
    for buffer in buffers:
        if buffer.scope == "workspace" and _Row(buffer, result, func, task).fits(parts):
            rest = [b for b in buffers if b is not buffer]
            body: Stmt = lp.seq(*(_moved(p, buffer, result) for p in parts))
            for b in reversed(rest):
                body = Allocate(b, body)
            return body
    return None


def _opened(body: Stmt) -> tuple[list[Buffer], Sequence[Stmt]]:
    """Return the buffers around the statements of a task, and these."""
    buffers = []
    while isinstance(body, Allocate):
        buffers.append(body.buffer)
        body = body.body
    return buffers, body.stmts if isinstance(body, Seq) else (body,)


@dataclass(frozen=True, slots=True)
class _Row:
    """A stage of a task, and the result that might take its place."""

    stage: Buffer
    result: Buffer
    func: PrimFunc
    task: For

    def fits(self, parts: Sequence[Stmt]) -> bool:
        """True where the statements of the task may compute the stage in the result."""
        stage, result = self.stage, self.result
        if (stage.dtype, stage.shape, stage.strides) != (result.dtype, result.shape, None):
            return False
        writes = [_stores(p, stage) for p in parts]
        ends = [_stores(p, result) for p in parts]
        if result.strides is not None or not any(writes) or not any(ends):
            return False
        first, end = (next(k for k, s in enumerate(found) if s) for found in (writes, ends))
        last = [s for found in ends for s in found]
        return (
            first < end
            and not any(writes[end:])
            and len(last) == len(_stores(self.func.body, result))
            and all(map(self._is_last_use, last))
            and sum(_loads(p, stage) for p in parts[end:]) == sum(_loads(s, stage) for s in last)
            and not any(_has_cases(p, self.task.var) for p in parts)
            and self._are_of_a_task([s for found in writes for s in found] + last)
        )

    def _is_last_use(self, store: Store) -> bool:
        """True for an element of the result that is made of that of the stage in its place."""
        loads = [n for n in walk(store.value) if _is_load(n, self.stage)]
        return all(n.indices == store.indices for n in loads if isinstance(n, ex.Load))

    def _are_of_a_task(self, stores: Sequence[Store]) -> bool:
        """True where a task writes what no other does: its rows, and whole ones."""
        return all(
            len({*column}) == 1 or not any(uses(i, self.task.var) for i in column)
            for column in zip(*(s.indices for s in stores), strict=True)
        )


def _stores(stmt: Stmt, buffer: Buffer) -> list[Store]:
    return [s for s in lp.walk_stmts(stmt) if isinstance(s, Store) and s.buffer is buffer]


def _loads(stmt: Stmt, buffer: Buffer) -> int:
    """Return how many times statements read, or fetch, a buffer."""
    count = 0
    for s in lp.walk_stmts(stmt):
        count += isinstance(s, Prefetch) and s.buffer is buffer
        count += sum(_is_load(n, buffer) for e in lp.stmt_exprs(s) for n in walk(e))
    return count


def _is_load(e: Expr, buffer: Buffer) -> bool:
    return isinstance(e, ex.Load) and e.source is buffer


def _has_cases(stmt: Stmt, task: Var) -> bool:
    """True where not all tasks run the same statements."""
    return any(
        (isinstance(s, If) and uses(s.cond, task)) or (isinstance(s, For) and uses(s.extent, task))
        for s in lp.walk_stmts(stmt)
    )


def _moved(stmt: Stmt, stage: Buffer, result: Buffer) -> Stmt:
    """Return a statement with the result in the place of a stage."""

    def on_load(e: Expr) -> Expr | None:
        return ex.load(result, e.indices) if isinstance(e, ex.Load) and e.source is stage else None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer is stage:
            return Store(result, s.indices, s.value)
        return None

    memo: dict[Expr, Expr] = {}
    return lp.map_stmt(stmt, lambda e: rewrite(e, on_load, memo), on_stmt)
