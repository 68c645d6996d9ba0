# SPDX-License-Identifier: Apache-2.0
"""Walk the columns of every other row backwards, so that neighbouring products share a factor.

before: for m in unrolled(16): for n in unrolled(8): f(m, n)
after:  for m in unrolled(16): for n in unrolled(8): f(m, 7 - n if m % 2 == 1 else n)

Where a row ends, the next one begins with the same column, whose operand a multiprocessor still has
where it reads registers. The loops are those of which a schedule says so, by the pragma
`REVERSE_ODD_ROWS` at the loop over rows, but for those that read nothing; it promises that
iterations are independent.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.expr import nodes as ex
from treadle.expr.traversal import reads_memory
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, PrimFunc, Stmt

REVERSE_ODD_ROWS = "reverse_odd_rows"


def reverse_odd_rows(func: PrimFunc) -> PrimFunc:
    """Return `func` with the order of columns changed where a schedule asks for it."""
    return func.with_body(lp.map_stmt(func.body, on_stmt=_reversed))


def _reversed(s: Stmt) -> Stmt | None:
    if not isinstance(s, For) or s.pragma(REVERSE_ODD_ROWS) is None:
        return None
    kept = s.pragmas_but(REVERSE_ODD_ROWS)
    columns = s.body
    if not isinstance(columns, For) or {s.kind, columns.kind} != {"unrolled"} or not _reads(s):
        return replace(s, pragmas=kept)
    column = ex.select(ex.binary("eq", s.var % 2, 1), columns.extent - 1 - columns.var, columns.var)
    body = lp.substitute(columns.body, {columns.var: column})
    return replace(s, body=replace(columns, body=body), pragmas=kept)


def _reads(s: Stmt) -> bool:
    """True where a statement loads anything."""
    return any(reads_memory(e) for inner in lp.walk_stmts(s) for e in lp.stmt_exprs(inner))
