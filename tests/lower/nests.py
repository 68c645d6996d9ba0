# SPDX-License-Identifier: Apache-2.0
"""What tests of loop passes share: small builders, and running a nest before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests import loop_eval
from treadle.expr.nodes import Const, Expr, ExprLike, Var, convert, load
from treadle.loop import nodes as lp
from treadle.loop.nodes import Buffer, For, PrimFunc, Stmt, Store

I, J, K, N = Var("i"), Var("j"), Var("k"), Var("n")  # noqa: E741
IN = Buffer("A", "float32", (Const.of(400),))
OUT = Buffer("B", "float32", (Const.of(400),))
CALLS = Buffer("C", "float32", (Const.of(400),))


def loop(var: Var, extent: ExprLike, *body: Stmt, kind: lp.ForKind = "serial") -> For:
    return For(var, convert(extent), kind, lp.seq(*body))


def copy(at: Expr) -> Store:
    """B[at] = A[at]"""
    return Store(OUT, (at,), load(IN, (at,)))


def count(at: Expr) -> Store:
    """C[at] = C[at] + 1"""
    return Store(CALLS, (at,), load(CALLS, (at,)) + 1.0)


def func(*body: Stmt, sizes: Sequence[Var] = ()) -> PrimFunc:
    return PrimFunc("f", (IN, OUT, CALLS), tuple(sizes), lp.seq(*body), (-2, -1))


def run(f: PrimFunc, **sizes: int) -> list[np.ndarray]:
    """Return B and C after a run."""
    lp.verify(f)
    values = {v: sizes[v.name] for v in f.sizes}
    out, calls = np.full(400, -1, "float32"), np.zeros(400, "float32")
    loop_eval.run(f, [np.arange(400, dtype="float32"), out, calls], values)
    return [out, calls]


def same(before: PrimFunc, passed: Callable[[PrimFunc], PrimFunc], **sizes: int) -> PrimFunc:
    """Return the function after a pass, which must do what it did."""
    after = passed(before)
    for a, b in zip(run(before, **sizes), run(after, **sizes), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"{before}\n{after}")
    return after


def has_if(stmt: Stmt) -> bool:
    return any(isinstance(s, lp.If) for s in lp.walk_stmts(stmt))
