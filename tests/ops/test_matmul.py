# SPDX-License-Identifier: Apache-2.0
"""Tests of matrix products."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import check_operator, example_arrays, random_array, run_onnx_node
from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import Example
from treadle.graph.types import TensorType
from treadle.ops.matmul import matmul


def f32(*shape: object) -> Var:
    return Var("x", TensorType(shape, "float32"))


@pytest.mark.parametrize("example", matmul.examples, ids=lambda e: f"{e.shapes}{e.dtypes}")
def test_matmul_examples(example: Example) -> None:
    a, b = example_arrays(example)
    attrs = dict(example.attrs)
    result = check_operator(matmul, [a, b], attrs, rtol=example.rtol, atol=1e-3)
    if dt.is_integer(dt.from_numpy(a.dtype)):
        wide = [x.astype(np.uint64 if x.dtype == np.uint64 else np.int64) for x in (a, b)]
        np.testing.assert_array_equal(result, np.matmul(*wide).astype(result.dtype))


@pytest.mark.parametrize("shapes", [((4, 5), (5, 3)), ((2, 1, 4, 5), (3, 5, 2))])
def test_matmul_agrees_with_onnxruntime(shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = [random_array(s, "float32", -2, 2) for s in shapes]
    check_operator(matmul, arrays, {}, expected=run_onnx_node("MatMul", [*arrays], {}))


def test_matmul_passes_symbolic_dimensions_through() -> None:
    n, m = Symbol("n"), Symbol("m")
    assert matmul(f32(n, 4, m, 5), f32(4, 5, 3)).type.shape == (n, 4, m, 3)
    assert matmul(f32(n, 1, m), f32(n, m, 3)).type.shape == (n, 1, 3)


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (f32(3, 4), f32(5, 3), "4 columns against 5 rows"),
        (f32(3, 4), f32(4), "at least 2 dimensions"),
        (f32(2, 3, 4), f32(3, 4, 3), "do not broadcast"),
        (f32(3, 4), Var("y", TensorType((4, 2), "float16")), "different element types"),
    ],
)
def test_matmul_refuses(a: Var, b: Var, text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        matmul(a, b)
