# SPDX-License-Identifier: Apache-2.0
"""A stage of a row is computed where the result will be, if nothing else is in the way."""

from __future__ import annotations

import numpy as np
import pytest

from tests import loop_eval
from treadle.expr.nodes import Const, Expr, Var, load
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store, func_text
from treadle.lower.share_results import share_results

pytestmark = pytest.mark.tiny

N, S, TASK = Var("n"), Var("s"), Var("task")
X = Buffer("x", "float32", (N, S))
Y = Buffer("y", "float32", (N, S))
E = Buffer("e", "float32", (N, S), "workspace")
TOTAL = Buffer("total", "float32", (Const.of(1),), "local")
ZERO = Const.of(0)


def _columns(make: object, extent: Expr = S) -> For:
    var = Var("j")
    assert callable(make)
    return For(var, extent, "serial", make(var))


def _softmax(**changed: Stmt) -> PrimFunc:
    """Return y = e / sum of e where e = x * 2, row by row; parts of it are `changed`."""
    parts: dict[str, Stmt] = {
        "stage": _columns(lambda j: Store(E, (TASK, j), load(X, (TASK, j)) * 2.0)),
        "start": Store(TOTAL, (ZERO,), Const.of(0.0, "float32")),
        "sum": _columns(lambda j: Store(TOTAL, (ZERO,), load(TOTAL, (ZERO,)) + load(E, (TASK, j)))),
        "end": _columns(lambda j: Store(Y, (TASK, j), load(E, (TASK, j)) / load(TOTAL, (ZERO,)))),
        **changed,
    }
    body = Allocate(E, Allocate(TOTAL, lp.seq(*parts.values())))
    return PrimFunc("f", (X, Y), (N, S), For(TASK, N, "parallel", body))


def _is_shared(func: PrimFunc) -> bool:
    return "workspace" not in func_text(share_results(func))


def _check(func: PrimFunc) -> None:
    """Check that a function makes the same result before and after the pass."""
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    made = []
    for f in (func, share_results(func)):
        lp.verify(f)
        y = np.zeros(12, np.float32)
        loop_eval.run(f, [x.reshape(-1), y], {N: 3, S: 4})
        made.append(y)
    np.testing.assert_array_equal(*made)


def test_a_row_is_computed_where_the_result_will_be() -> None:
    func = _softmax()
    assert _is_shared(func)
    _check(func)


def test_a_result_that_is_not_written_last_keeps_its_stage() -> None:
    """The stage of another column is still to be read."""
    other = S - 1
    func = _softmax(
        end=_columns(lambda j: Store(Y, (TASK, j), load(E, (TASK, other - j)) + 1.0)),
    )
    assert not _is_shared(func)
    _check(func)


def test_a_stage_that_is_read_after_the_result_stays() -> None:
    again = _columns(lambda j: Store(TOTAL, (ZERO,), load(TOTAL, (ZERO,)) + load(E, (TASK, j))))
    func = _softmax(again=again)
    assert not _is_shared(func)


def test_a_stage_of_which_tasks_make_parts_of_others_stays() -> None:
    """A task writes the row after its own, which another one may have finished."""
    following = (TASK + 1) % N
    func = _softmax(
        more=_columns(lambda j: Store(E, (following, j), load(X, (following, j)) * 2.0))
    )
    parts = _softmax(
        stage=lp.seq(
            _columns(lambda j: Store(E, (TASK, j), load(X, (TASK, j)) * 2.0)),
            _columns(lambda j: Store(E, (following, j), load(X, (following, j)) * 2.0)),
        )
    )
    assert not _is_shared(func)
    assert not _is_shared(parts)
    _check(parts)


def test_tasks_that_differ_keep_their_stage() -> None:
    only = If(TASK < 2, _columns(lambda j: Store(E, (TASK, j), load(X, (TASK, j)) * 2.0)))
    assert not _is_shared(_softmax(stage=only))


def test_a_result_that_may_overwrite_an_operand_keeps_its_stage() -> None:
    func = _softmax()
    func.attrs["overwritable"] = (0,)
    assert not _is_shared(func)
