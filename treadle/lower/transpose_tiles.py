# SPDX-License-Identifier: Apache-2.0
"""Read and write square tiles by whole vectors where reads run across the vectors written.

A tile, seen as part of n x n elements (n a power of two), is read along its own memory order into
registers, transposed there, and used. That takes log2(n) steps; each puts the even elements of the
whole tile before the odd ones, which rotates the bits of an element's number by one.

before: for i in unrolled(4): for j in vectorized(4): B[i * 4 + j] = A[j * 9 + i]
after:  for j in unrolled(4): t[ramp(j * 4)] = A[ramp(j * 9)]
        t1 = evens and odds of t; t2 = evens and odds of t1
        for i in unrolled(4): B[ramp(i * 4)] = t2[ramp(i * 4)]

Of a tile whose last columns are off, under the condition j < e, the last one that is on is read
again in their place: what is read exists, without a test of each.
"""

from __future__ import annotations

from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import has_lazy_select, loads, substitute, uses
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store

SIDES = (4, 8, 16)
"""Rows of the squares that are transposed: networks of shuffles exchange halves again and again, so
they are powers of two, up to the lanes of the widest vectors."""
_LEAST_SIDE = 3
"""Rows of a part of a square from which it is transposed: two are one interleaving of lanes, which
code generators make of the loads as they are."""
_ZERO = Const.of(0)


def transpose_tiles(func: PrimFunc) -> PrimFunc:
    """Return `func` with loads that run across a tile's vectors replaced by transposed tiles."""

    def on_stmt(s: Stmt) -> Stmt | None:
        return _tile(s) if isinstance(s, For) and s.kind == "unrolled" else None

    return func.with_body(lp.map_stmt(func.body, None, on_stmt))


def _tile(rows: For) -> Stmt | None:
    columns = rows.body
    if not isinstance(columns, For) or columns.kind != "vectorized":
        return None
    store, shape = columns.body, (int_value(rows.extent), int_value(columns.extent))
    n, end = _side(*shape), None
    if isinstance(store, If):
        end, store = _end(store, rows.var, columns.var), store.then
        if end is None:
            return None
    if n is None or not isinstance(store, Store):
        return None
    at = simplify(store.indices[0], {})
    if _factor(at, columns.var) != 1 or _factor(at, rows.var) == 0 or _is_guarded(store.value):
        return None
    if uses(store.value, store.buffer):
        return None
    across = [e for e in loads(store.value) if _runs_across(e, rows.var, columns.var)]
    return _transposed(rows, columns, store, across, n, end) if across else None


def _end(guarded: If, row: Var, column: Var) -> Expr | None:
    """Return e where a store is under the condition column < e, and e is the same in the tile."""
    cond = guarded.cond
    if guarded.orelse is not None or not isinstance(cond, ex.Binary) or cond.op != "lt":
        return None
    is_end = cond.a is column and not uses(cond.b, row) and not uses(cond.b, column)
    return cond.b if is_end else None


def _side(rows: int | None, columns: int | None) -> int | None:
    """Return the side of the square that holds a tile; None for one not worth transposing."""
    if rows is None or columns is None or min(rows, columns) < _LEAST_SIDE:
        return None
    return next((n for n in SIDES if n >= max(rows, columns)), None)


def _is_guarded(value: Expr) -> bool:
    return has_lazy_select(value)


def _runs_across(e: ex.Load, row: Var, column: Var) -> bool:
    """True for a load whose neighbours in memory are in one column of the tile.

    Columns may lie anywhere: x[min(j, n - 1) * 9 + i] has them evenly but for the last ones.
    """
    if not isinstance(e.source, Buffer):
        return False
    index = simplify(e.indices[0], {})
    step = _factor(index, column)
    return _factor(index, row) == 1 and (step is None or abs(step) > 1)


def _factor(index: Expr, var: Var) -> int | None:
    """Return the coefficient of a variable in a sum; None where it is hidden in other terms."""
    terms = decompose(index).terms
    if any(atom is not var and uses(atom, var) for atom in terms):
        return None
    return terms.get(var, 0)


def _transposed(
    rows: For, columns: For, store: Store, across: list[ex.Load], n: int, end: Expr | None
) -> Stmt:
    before: list[Stmt] = []
    tiles: list[Buffer] = []
    mapping: dict[Expr, Expr] = {}
    for load in across:
        assert isinstance(load, ex.Load)
        made, filled = _read(load, rows, columns, n, end)
        steps = [made]
        before += filled
        while len(steps) < n.bit_length():
            steps.append(_local(f"{made.name}.{len(steps)}", load.dtype, n))
            before += _evens_then_odds(steps[-2], steps[-1], n)
        tiles += steps
        mapping[load] = ex.load(steps[-1], (rows.var * n + columns.var,))
    wide = Store(store.buffer, store.indices, substitute(store.value, mapping))
    on: Stmt = wide if end is None else If(columns.var < end, wide)
    inner = For(columns.var, columns.extent, "vectorized", on)
    body = lp.seq(*before, For(rows.var, rows.extent, "unrolled", inner))
    for tile in reversed(tiles):
        body = Allocate(tile, body)
    return body


def _local(name: str, dtype: str, n: int) -> Buffer:
    return Buffer(name, dtype, (Const.of(n * n),), "local")


def _read(
    load: ex.Load, rows: For, columns: For, n: int, end: Expr | None
) -> tuple[Buffer, list[Stmt]]:
    """Return a tile and the statements that fill it: column by column, each one vector.

    Columns from `end` on are the one before it.
    """
    tile = _local(f"{load.source.name}.tile", load.dtype, n)
    height, width = int_value(rows.extent), int_value(columns.extent)
    assert height is not None
    assert width is not None
    statements: list[Stmt] = []
    for j in range(width):
        column: Expr = Const.of(j)
        if end is not None and j > 0:  # the first is on
            column = ex.minimum(column, end - 1)
        base = substitute(load.indices[0], {rows.var: _ZERO, columns.var: column})
        index = ex.ramp(simplify(base, {}), 1, height)
        place = ex.ramp(Const.of(j * n), 1, height)
        statements.append(Store(tile, (place,), ex.load(load.source, (index,))))
    return tile, statements


def _evens_then_odds(source: Buffer, to: Buffer, n: int) -> list[Stmt]:
    statements: list[Stmt] = []
    for r in range(n):
        odd, start = divmod(r * n, n * n // 2)
        index = ex.ramp(Const.of(2 * start + odd), 2, n)
        place = ex.ramp(Const.of(r * n), 1, n)
        statements.append(Store(to, (place,), ex.load(source, (index,))))
    return statements
