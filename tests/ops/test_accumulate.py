# SPDX-License-Identifier: Apache-2.0
"""The types that products of two types are summed in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import var
from treadle.errors import TypeMismatch
from treadle.graph.types import tensor_type
from treadle.ops.accumulate import reference_factors, result_type
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.matmul import matmul

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize(
    ("a", "b", "out", "expected"),
    [
        ("int8", "int8", "", "int32"),
        ("uint8", "int8", "", "int32"),
        ("int8", "uint8", "int32", "int32"),
        ("int16", "int16", "", "int16"),
        ("int16", "int16", "int32", "int32"),
        ("uint64", "uint64", "", "uint64"),
        ("float16", "float16", "", "float16"),
        ("bfloat16", "bfloat16", "float32", "float32"),
        ("float32", "float32", "float32", "float32"),
    ],
)
def test_results_hold_the_products(a: str, b: str, out: str, expected: str) -> None:
    assert result_type(a, b, out) == expected


@pytest.mark.parametrize(
    ("a", "b", "out", "problem"),
    [
        ("int8", "int32", "", "the factors have different element types, int8 and int32"),
        ("float16", "bfloat16", "", "the factors have different element types"),
        ("int8", "int8", "int8", "products of int8 and int8 are not summed as int8"),
        ("float32", "float32", "float64", "not summed as float64\n  hint  out_dtype is float32"),
        ("bool", "bool", "", "products of bool values are not defined"),
    ],
)
def test_other_types_are_refused(a: str, b: str, out: str, problem: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        result_type(a, b, out)
    assert problem in str(caught.value)


def test_operators_have_these_types() -> None:
    x, w = var("x", 1, 4, 6, 6, dtype="uint8"), var("w", 4, 4, 3, 3, dtype="int8")
    for made in (matmul(x, var("y", 6, 5, dtype="int8")), conv(x, w), conv_transpose(x, w)):
        assert tensor_type(made.type).dtype == "int32"
    halves = var("h", 3, 4, dtype="float16")
    wide = matmul(halves, var("g", 4, 5, dtype="float16"), out_dtype="float32")
    assert tensor_type(wide.type).dtype == "float32"
    with pytest.raises(TypeMismatch, match="not summed as int8"):
        conv(x, w, out_dtype="int8")


def test_references_sum_integers_as_integers() -> None:
    a, b = np.array([[255, 255]], "uint8"), np.array([[-128], [127]], "int8")
    assert np.matmul(*reference_factors(a, b, "int32")).tolist() == [[-255]]
