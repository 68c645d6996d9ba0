# SPDX-License-Identifier: Apache-2.0
"""Keep the buffers of a kernel within the stack of a machine without threads.

Its one thread runs every loop in order, and a buffer of a thread's own is one buffer: where all
those that exist at once have no room on the stack, the caller lends the largest of them.

before: parallel for i: v: float32[900] = alloc(local)       (room: 1024 bytes)
                        t: float32[4] = alloc(local)
after:           for i: v: float32[900] = alloc(workspace)
                        t: float32[4] = alloc(local)
"""

from __future__ import annotations

from dataclasses import replace

from treadle.dtype import itemsize
from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, int_value
from treadle.expr.traversal import rewrite
from treadle.expr.vocabulary import HAS_LOAD
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, Prefetch, PrimFunc, Stmt, Store


def limit_stack(func: PrimFunc, most: int | None = None) -> PrimFunc:
    """Return `func` without parallel loops, and with at most so many bytes on the stack at once.

    None: threads run it, and nothing changes. Buffers have one dimension and known sizes.
    """
    if most is None:
        return func
    lent: set[int] = set()
    while True:
        path = _fullest(func.body, lent)
        if sum(map(_stack_bytes_of, path)) <= most:
            break
        lent.add(id(max(path, key=_stack_bytes_of)))
    return func.with_body(lp.in_order(_lend(func, lent)))


def stack_bytes(func: PrimFunc) -> int:
    """Return the most bytes that the buffers of a kernel take of the stack at once."""
    return sum(map(_stack_bytes_of, _fullest(func.body, set())))


def _fullest(stmt: Stmt, lent: set[int]) -> list[Buffer]:
    """Return the buffers on the stack where they take the most, without those that are lent."""
    inside = (_fullest(child, lent) for child in lp.sub_stmts(stmt))
    path = max(inside, key=lambda found: sum(map(_stack_bytes_of, found)), default=[])
    if isinstance(stmt, Allocate) and stmt.buffer.scope == "local" and id(stmt.buffer) not in lent:
        return [stmt.buffer, *path]
    return path


def _stack_bytes_of(buffer: Buffer) -> int:
    """Return the bytes of a buffer with those before it that its alignment may cost."""
    count = int_value(buffer.shape[0])
    assert count is not None
    nbytes = max(count, 1) * itemsize(buffer.dtype)
    return -(-nbytes // buffer.align) * buffer.align


def _lend(func: PrimFunc, lent: set[int]) -> Stmt:
    """Return the body with some buffers in the workspace, each under a name of its own."""
    buffers = {id(s.buffer): s.buffer for s in lp.walk_stmts(func.body) if isinstance(s, Allocate)}
    taken = {b.name for b in (*func.params, *buffers.values()) if id(b) not in lent}
    moved: dict[int, Buffer] = {}
    for key in (k for k in buffers if k in lent):
        name = _unique(buffers[key].name, taken)
        moved[key] = replace(buffers[key], name=name, scope="workspace")
    return _moved(func.body, moved) if moved else func.body


def _unique(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    taken.add(found)
    return found


def _moved(stmt: Stmt, moved: dict[int, Buffer]) -> Stmt:
    """Return a statement with other buffers in the place of some, which are known by their id."""

    def on_load(e: Expr) -> Expr | None:
        if isinstance(e, ex.Load) and id(e.source) in moved:
            return ex.load(moved[id(e.source)], e.indices)
        return None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, (Store, Prefetch, Allocate)) and id(s.buffer) in moved:
            return replace(s, buffer=moved[id(s.buffer)])
        return None

    memo: dict[Expr, Expr] = {}
    return lp.map_stmt(stmt, lambda e: rewrite(e, on_load, memo, HAS_LOAD), on_stmt)
