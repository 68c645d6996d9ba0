# SPDX-License-Identifier: Apache-2.0
"""Give the nests that were written by hand to the threads of a GPU, where they say they may.

before: for i in parallel(n): f(i)
after:  for b in thread((n + 63) // 64, "blockIdx.x"): for t in thread(64, "threadIdx.x"):
            if b * 64 + t < n: f(b * 64 + t)

Such nests (`te.extern`) have no schedule. What is no parallel loop of theirs runs as one thread; so
does a stage that is one element, which has no axis to bind.
"""

from __future__ import annotations

from treadle.errors import ScheduleError
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import simplify
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, If, PrimFunc, Stmt, Store
from treadle.lower.host_statements import map_launches, thread_loops
from treadle.te.loops import ceil_div


def bind_loops(func: PrimFunc, *, threads: int = 64) -> PrimFunc:
    """Return `func` with the outermost parallel loops of hand-written nests bound.

    A block has `threads` of them, or as many as there are iterations if that is less.

    Raises: ScheduleError for loops of a schedule that are bound to no hardware index.
    """
    by_hand = func.attrs.get("by_hand", frozenset())
    assert isinstance(by_hand, frozenset)

    def bound(s: Stmt) -> Stmt:
        if thread_loops(s) or not any(isinstance(x, For) for x in lp.walk_stmts(s)):
            return s
        for x in lp.walk_stmts(s):
            if isinstance(x, Store) and x.buffer.shape and x.buffer.name not in by_hand:
                raise _unbound(func.name, x.buffer.name)
        return _spread(s, threads) if isinstance(s, For) and s.kind == "parallel" else s

    return func.with_body(map_launches(func.body, func.sizes, bound))


def _unbound(kernel: str, stage: str) -> ScheduleError:
    return ScheduleError(
        f"the loops of stage {stage} are bound to no index of the GPU",
        at=f"kernel {kernel}",
        hint="bind them to blockIdx and threadIdx, or compute the stage inside of one that is",
    )


def _spread(loop: For, threads: int) -> Stmt:
    """Divide a parallel loop into blocks of threads; those inside of it run in order."""
    count = int_value(loop.extent)
    size = threads if count is None else max(1, min(threads, count))
    block, thread = Var(f"{loop.var.name}.block"), Var(f"{loop.var.name}.thread")
    at: Expr = block * size + thread
    body = lp.substitute(lp.in_order(loop.body), {loop.var: at})
    if count is None or count % size:
        body = If(at < loop.extent, body)
    blocks = simplify(ceil_div(loop.extent, Const.of(size)))
    inner = For(thread, Const.of(size), "thread", body, "threadIdx.x")
    return For(block, blocks, "thread", inner, "blockIdx.x", loop.pragmas)
