# SPDX-License-Identifier: Apache-2.0
"""Matrix products against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph
from tests.frontend.tensorflow.oracle import check


def test_products_of_turned_matrices_and_stacks(tmp_path: Path) -> None:
    a, b, weights = values(2, 1, 4, 3), values(5, 4, 6), values(7, 8)
    g = Graph()
    left, right = g.input("a", a.shape), g.input("b", b.shape)
    flat = g.node("Reshape", left, g.constant([8, 3], "int32"), T=FLOAT)
    rows = g.constant(weights)
    outputs = [
        g.node("BatchMatMulV2", left, right, adj_x=True, T=FLOAT),
        g.node("MatMul", flat, rows, transpose_a=True, transpose_b=True, T=FLOAT),
        g.node("Einsum", left, right, equation="abij,cik->acjk", N=2, T=FLOAT),
    ]
    expected = [
        np.matmul(a.swapaxes(-1, -2), b),
        a.reshape(8, 3).T @ weights.T,
        np.einsum("abij,cik->acjk", a, b),
    ]
    check(g, tmp_path, {"a": a, "b": b}, outputs, *expected, tolerance=1e-4)
