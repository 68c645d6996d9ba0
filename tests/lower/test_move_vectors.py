# SPDX-License-Identifier: Apache-2.0
"""Vectorized loops of kernels for GPUs: moved at once, computed lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpus import flat_result
from treadle.expr import nodes as ex
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop import nodes as lp
from treadle.loop.nodes import Buffer, For, If, PrimFunc, Stmt, Store
from treadle.lower.move_vectors import move_vectors

T, V = Var("t"), Var("v")
X, Y = (Buffer(name, "float32", lp.shape_of(32)) for name in "xy")


def func(body: Stmt, extent: int = 4) -> PrimFunc:
    """Eight threads, each with a vectorized loop."""
    lanes = For(V, Const.of(extent), "vectorized", body)
    return PrimFunc("f", (X, Y), (), For(T, Const.of(8), "thread", lanes, "threadIdx.x"))


def read(index: Expr) -> Expr:
    return ex.load(X, (index,))


AT = T * 4 + V

CASES: dict[str, tuple[Stmt, list[str]]] = {
    "a copy": (Store(Y, (AT,), read(AT)), ["y[ramp((t * 4), 1, 4)] = x[ramp((t * 4), 1, 4)]"]),
    "arithmetic": (
        Store(Y, (AT,), read(AT) * 2.0 + read(T)),
        [
            "x.lanes[ramp(0, 1, 4)] = x[ramp((t * 4), 1, 4)]",
            "for v in unrolled(4):",
            "y[ramp((t * 4), 1, 4)] = y.lanes[ramp(0, 1, 4)]",
        ],
    ),
    "a limit that lanes share": (
        Store(Y, (AT,), read(ex.minimum(T, 6) * 4 + V)),
        ["y[ramp((t * 4), 1, 4)] = x[ramp((min(t, 6) * 4), 1, 4)]"],
    ),
    "a limit of each lane": (
        Store(Y, (AT,), read(ex.minimum(AT, 27))),
        ["y.lanes[v] = x[min(((t * 4) + v), 27)]"],
    ),
    "a condition that lanes share": (
        If(all_of([AT < 28]), Store(Y, (AT,), read(AT))),
        ["if (t < 7):", "y[ramp((t * 4), 1, 4)] = x[ramp((t * 4), 1, 4)]"],
    ),
    "a scattered result": (
        Store(Y, (V * 8 + T,), read(AT)),
        ["x.lanes[ramp(0, 1, 4)]", "y[((v * 8) + t)] = x.lanes[v]"],
    ),
    "an uneven condition": (If(AT < 30, Store(Y, (AT,), read(AT))), ["for v in unrolled(4):"]),
    "a start between vectors": (
        Store(Y, (AT,), read(ex.minimum(AT + 1, 31))),
        ["y.lanes[v] = x[min((((t * 4) + v) + 1), 31)]"],
    ),
    "a guarded read": (
        Store(Y, (AT,), ex.select(AT < 30, read(AT), Const.of(0.0, "float32"), lazy=True)),
        ["y.lanes[v] = if_then_else"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_lies_side_by_side_moves_at_once(name: str) -> None:
    body, lines = CASES[name]
    given = func(body)
    made = move_vectors(given)
    lp.verify(made)
    assert "vectorized" not in str(made)
    x = np.arange(32, dtype=np.float32)
    assert np.array_equal(flat_result(made, [x], 32), flat_result(given, [x], 32), equal_nan=True)
    found = str(made)
    assert [line for line in lines if line not in found] == [], found


def test_three_lanes_are_no_vector() -> None:
    made = move_vectors(func(Store(Y, (T * 3 + V,), read(T * 3 + V)), extent=3))
    assert "for v in unrolled(3)" in str(made)
