# SPDX-License-Identifier: Apache-2.0
"""Reads outside of a tensor are refused where they are certain, and only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr

pytestmark = pytest.mark.tiny

N = te.var("n")
A = te.placeholder((8,), "float32", "A")
S = te.placeholder((N,), "float32", "S")


@pytest.mark.parametrize(
    ("extent", "read"),
    [(9, lambda i: A[i]), (8, lambda i: A[i + 1]), (8, lambda i: A[i - 1]), (5, lambda i: A[2 * i]),
     (8, lambda i: A[6 - i]), (N, lambda i: S[i + 1]), (N, lambda i: S[i - 1]),
     (N + 1, lambda i: S[i])],
)  # fmt: skip
def test_a_read_outside_for_certain(extent: int | Expr, read: Callable[[te.Var], Expr]) -> None:
    with pytest.raises(TypeMismatch, match="outside of"):
        te.compute((extent,), read)


@pytest.mark.parametrize(
    ("extent", "read"),
    [(8, lambda i: A[i]), (7, lambda i: A[i + 1]), (4, lambda i: A[2 * i + 1]),
     (8, lambda i: A[7 - i]), (N, lambda i: S[i]), (N, lambda i: S[N - 1 - i]),
     (N, lambda i: A[i]), (9, lambda i: te.if_then_else(i < 8, A[i], te.const(0.0, "float32"))),
     (0, lambda i: A[i + 100]), (16, lambda i: A[i // 2]), (99, lambda i: A[i % 8])],
)  # fmt: skip
def test_a_read_that_may_be_inside(extent: int | Expr, read: Callable[[te.Var], Expr]) -> None:
    te.compute((extent,), read)


def test_reduction_axes_count_as_well() -> None:
    k = te.reduce_axis((0, 4), "k")
    te.compute((5,), lambda i: te.sum(A[i + k], k))
    with pytest.raises(TypeMismatch, match="from 0 to 8"):
        te.compute((6,), lambda i: te.sum(A[i + k], k))
