# SPDX-License-Identifier: Apache-2.0
"""Columns of odd rows walked backwards: every element once, in an order like that of a plough."""

from __future__ import annotations

from dataclasses import replace

from treadle.expr.nodes import Const, Var, load
from treadle.loop import nodes as lp
from treadle.loop.nodes import Buffer, For, PrimFunc, Store
from treadle.lower.reverse_odd_rows import REVERSE_ODD_ROWS, reverse_odd_rows
from treadle.lower.unroll_loops import unroll_loops


def copy_of(rows: int, columns: int, *, is_asked: bool = True, is_read: bool = True) -> PrimFunc:
    """Copy a matrix, or fill it, element by element."""
    shape = (Const.of(rows * columns),)
    a, b = (Buffer(name, "float32", shape) for name in "AB")
    m, n = Var("m"), Var("n")
    at = m * columns + n
    value = load(a, (at,)) if is_read else Const.of(0.0, "float32")
    inner = For(n, Const.of(columns), "unrolled", Store(b, (at,), value))
    pragmas = ((REVERSE_ODD_ROWS, True),) if is_asked else ()
    return PrimFunc("copy", (a, b), (), For(m, Const.of(rows), "unrolled", inner, "", pragmas))


def places(func: PrimFunc) -> list[int]:
    stores = [s for s in lp.walk_stmts(unroll_loops(func).body) if isinstance(s, Store)]
    return [s.indices[0].value for s in stores if isinstance(s.indices[0], Const)]  # type: ignore[misc]  # an index


def test_odd_rows_run_backwards() -> None:
    made = reverse_odd_rows(copy_of(3, 4))
    lp.verify(made)
    assert places(made) == [0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11]
    assert not any(isinstance(s, For) and s.pragmas for s in lp.walk_stmts(made.body))


def test_other_loops_keep_their_order() -> None:
    assert places(reverse_odd_rows(copy_of(2, 3, is_asked=False))) == list(range(6))
    assert places(reverse_odd_rows(copy_of(2, 3, is_read=False))) == list(range(6))
    asked = copy_of(2, 3)
    assert isinstance(asked.body, For)
    serial = reverse_odd_rows(asked.with_body(replace(asked.body, kind="serial")))
    assert str(serial) == str(copy_of(2, 3, is_asked=False)).replace("unrolled(2", "range(2")
