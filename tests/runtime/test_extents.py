# SPDX-License-Identifier: Apache-2.0
"""Extents that follow from sizes: their values, and sizes that follow from extents."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle import te
from treadle.runtime.extents import Extent, Formula

N: Formula = ["size", 0]
M: Formula = ["size", 1]


def test_value() -> None:
    formula: Formula = ["add", ["mul", N, 4], ["floordiv", M, 2]]
    assert Extent("n * 4 + m // 2", formula).of([3, 5]) == 14
    assert Extent("", formula).sizes == {0, 1}


def test_parts_are_worked_out_once() -> None:
    formula: list[Formula | str] = ["let", ["add", N, M]]
    formula += [["add", ["part", k], ["part", k]] for k in range(60)]
    extent = Extent("", formula)
    assert extent.of([3, 4]) == 7 << 60
    assert extent.sizes == {0, 1}
    assert extent.is_linear_in(0)


@pytest.mark.parametrize(
    ("formula", "linear"),
    [
        (N, True), (["mul", N, 3], True), (["mul", M, N], True), (["sub", M, N], True),
        (M, False), (["mul", N, N], False), (["floordiv", N, 2], False), (["max", N, 1], False),
    ],
)  # fmt: skip
def test_linear(formula: Formula, linear: bool) -> None:
    assert Extent("", formula).is_linear_in(0) == linear


def test_solved() -> None:
    extent = Extent("n * 3 + m", ["add", ["mul", N, 3], M])
    assert extent.solved(0, [None, 2], 14) == 4
    assert extent.solved(0, [None, 2], 15) is None
    assert extent.solved(0, [None, 5], 2) is None
    assert Extent("m * n", ["mul", M, N]).solved(0, [None, 0], 4) is None


def kernel() -> treadle.te.Schedule:
    n = te.var("n")
    a = te.placeholder((n * 2,), name="A")
    c = te.compute((n * 2 + 1,), lambda i: te.if_then_else(i < n * 2, a[i], 0.0), name="C")
    return te.create_schedule(c)


def test_a_size_that_stands_in_expressions_alone() -> None:
    schedule = kernel()
    module = treadle.build(
        schedule, [schedule.stages[0].op.output(0), schedule.outputs[0].output(0)]
    )
    out = np.full(9, 7, "float32")
    module(np.arange(8, dtype="float32"), out)
    assert out.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    with pytest.raises(treadle.InputError, match=r"dimension 0 must be \(n \* 2\) for a size n"):
        module(np.zeros(7, "float32"), out)
    with pytest.raises(treadle.InputError, match=r"must be \(\(n \* 2\) \+ 1\) = 5"):
        module(np.zeros(4, "float32"), out)


def test_two_sizes_of_one_name() -> None:
    a, b = te.placeholder((te.var("n"),), name="A"), te.placeholder((te.var("n"),), name="B")
    c = te.compute(a.shape, lambda i: a[i] * 1.0, name="C")
    d = te.compute(b.shape, lambda i: b[i] * 2.0, name="D")
    module = treadle.build(te.create_schedule([c.op, d.op]), [a, b, c, d])
    out = np.zeros(3, "float32"), np.zeros(5, "float32")
    module(np.ones(3, "float32"), np.ones(5, "float32"), *out)
    assert out[0].tolist() == [1] * 3
    assert out[1].tolist() == [2] * 5
