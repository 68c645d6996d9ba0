# SPDX-License-Identifier: Apache-2.0
"""Lay the columns of a shared tile so that threads next to each other read all banks.

before: S[k, n]                                      (a thread reads S[k, t * 8 + i], i in range(8))
after:  S[k, n // 4 % 2 * (width / 2) + n // 8 * 4 + n % 4]

Each thread reads its columns as vectors of 4 words. With 8 columns a thread, vectors that threads
next to each other read at once would lie 8 words apart, in half of the banks; first vectors of all
threads come first, then all second ones. The buffers are those that a loop stores of which a
schedule says so, by the pragma `SPREAD_COLUMNS` with the number of columns of a thread.
"""

from __future__ import annotations

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, int_value
from treadle.expr.traversal import rewrite
from treadle.expr.vocabulary import HAS_LOAD
from treadle.limits import DEVICE_LANES
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, PrimFunc, Stmt, Store

SPREAD_COLUMNS = "spread_columns"


def spread_columns(func: PrimFunc) -> PrimFunc:
    """Return `func` with the buffers laid out anew for which a schedule asks for it."""
    counts: dict[int, int] = {}
    for s in lp.walk_stmts(func.body):
        count = s.pragma(SPREAD_COLUMNS) if isinstance(s, For) else None
        if isinstance(s, For) and isinstance(count, int):
            counts |= _stored(s, count)
    if not counts:
        return func
    memo: dict[Expr, Expr] = {}

    def on_load(e: Expr) -> Expr | None:
        if not isinstance(e, ex.Load) or id(e.source) not in counts:
            return None
        return ex.load(e.source, _spread(e.indices, e.source.shape, counts[id(e.source)]))

    def on_stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or id(s.buffer) not in counts:
            return None
        at = _spread(s.indices, s.buffer.shape, counts[id(s.buffer)])
        return Store(s.buffer, at, s.value)

    return func.with_body(
        lp.map_stmt(func.body, lambda e: rewrite(e, on_load, memo, HAS_LOAD), on_stmt)
    )


def _stored(loop: For, count: int) -> dict[int, int]:
    """Return the shared buffers that a loop stores whose columns can be laid out anew."""
    stores = [s for s in lp.walk_stmts(loop) if isinstance(s, Store)]
    return {
        id(s.buffer): count
        for s in stores
        if s.buffer.scope == "shared"
        and _width(s.buffer.shape) % count == 0
        and _width(s.buffer.shape)
    }


def _width(shape: tuple[Expr, ...]) -> int:
    return int_value(shape[-1]) or 0 if shape else 0


def _spread(indices: tuple[Expr, ...], shape: tuple[Expr, ...], count: int) -> tuple[Expr, ...]:
    """Return where an element lies: its vector's number in its thread comes first."""
    *rest, n = indices
    vectors = count // DEVICE_LANES
    first = n // DEVICE_LANES % vectors * (_width(shape) // vectors)
    return (*rest, first + n // count * DEVICE_LANES + n % DEVICE_LANES)
