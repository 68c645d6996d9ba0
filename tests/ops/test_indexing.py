# SPDX-License-Identifier: Apache-2.0
"""Gathering against onnxruntime, at indices outside, and its error texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.moved import count, run, variable
from tests.ops.oracle import run_onnx_node
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Call
from treadle.ops import indexing


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_is_what_onnxruntime_computes(axis: int) -> None:
    x, at = count(3, 4, 5), np.array([[0, -1], [2, -3]], np.int64)
    expected = run_onnx_node("Gather", [x, at], {"axis": axis})
    np.testing.assert_array_equal(run(indexing.gather, x, at, axis=axis), expected)


def test_gather_elements_is_what_onnxruntime_computes() -> None:
    x, at = count(3, 4), np.array([[0, -1, 2], [1, 1, -4]], np.int64)
    expected = run_onnx_node("GatherElements", [x, at], {"axis": 1})
    np.testing.assert_array_equal(run(indexing.gather_elements, x, at, axis=1), expected)


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_gather_nd_is_what_onnxruntime_computes(batch_dims: int) -> None:
    x, at = count(2, 3, 4), np.array([[[0, 1], [1, -1]], [[-2, 2], [0, 0]]], np.int64)
    expected = run_onnx_node("GatherND", [x, at], {"batch_dims": batch_dims})
    np.testing.assert_array_equal(run(indexing.gather_nd, x, at, batch_dims=batch_dims), expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.uint64])
def test_no_index_reads_outside(dtype: type) -> None:
    info = np.iinfo(dtype)
    at = np.array([info.min, info.max, 4, 5], dtype)  # the evaluator rejects reads outside
    assert run(indexing.gather, count(5, 2), at, axis=0)[2:].tolist() == [[8, 9], [8, 9]]


ERRORS: dict[str, Callable[[], Call]] = {
    "axis 2 is out of range for 2 dimensions": lambda: indexing.gather(
        variable(2, 3), variable(dtype="int64"), axis=2
    ),
    "the index has element type float32": lambda: indexing.gather(variable(2), variable(2), axis=0),
    "do not fit float32\\[2, 3\\] along axis 1": lambda: indexing.gather_elements(
        variable(2, 3), variable(3, 3, dtype="int64"), axis=1
    ),
    "too deep": lambda: indexing.gather_nd(variable(2), variable(2, 2, dtype="int64")),
    "differ in their 1 batch": lambda: indexing.gather_nd(
        variable(3, 4), variable(2, 5, 1, dtype="int64"), batch_dims=1
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
