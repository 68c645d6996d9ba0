# SPDX-License-Identifier: Apache-2.0
"""Operators on shapes and from numbers against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


def test_reshape_by_input_and_by_options() -> None:
    g = Graph()
    x = g.input("x", (2, 3, 4))
    a = g.op("RESHAPE", (x, g.constant([4, -1], "int32")), (4, 6))
    check(g.result(a, g.op("RESHAPE", (x,), (6, 4), options={"new_shape": [6, 4]})))


def test_squeeze_and_expand() -> None:
    g = Graph()
    x = g.input("x", (1, 3, 1, 4))
    one = g.op("SQUEEZE", (x,), (1, 3, 4), options={"squeeze_dims": [2]})
    all_ = g.op("SQUEEZE", (x,), (3, 4), options={})
    check(g.result(one, all_, g.op("EXPAND_DIMS", (all_, g.constant(-1, "int32")), (3, 4, 1))))


def test_broadcasts() -> None:
    g = Graph()
    x = g.input("x", (3, 1))
    made = g.op("BROADCAST_TO", (x, g.constant([2, 3, 4], "int32")), (2, 3, 4))
    shapes = g.constant([3, 1], "int32"), g.constant([2, 3, 4], "int32")
    check(g.result(made, g.op("BROADCAST_ARGS", shapes, (3,), "int32")))


def test_shapes_as_values() -> None:
    g = Graph()
    x = g.input("x", (2, 3, 4))
    shape = g.op("SHAPE", (x,), (3,), "int32", options={"out_type": 2})
    check(g.result(shape, g.op("RANK", (x,), (), "int32"), g.op("ZEROS_LIKE", (x,), (2, 3, 4))))


def test_numbers() -> None:
    g = Graph()
    g.input("x", (1,))
    filled = g.op("FILL", (g.constant([2, 3], "int32"), g.constant(1.5, "float32")), (2, 3))
    ends = [g.constant(v, "int32") for v in (2, 11, 3)]
    check(g.result(filled, g.op("RANGE", ends, (3,), "int32")))


@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot(axis: int) -> None:
    g = Graph()
    x = g.input("x", (4,), "int32")
    on, off = g.constant(2.0, "float32"), g.constant(-1.0, "float32")
    shape = (4, 3) if axis else (3, 4)
    made = g.op("ONE_HOT", (x, g.constant(3, "int32"), on, off), shape, options={"axis": axis})
    check(g.result(made), inputs={"x": np.array([0, 2, -1, 5], "int32")})


def test_diagonals() -> None:
    g = Graph()
    x, whole = g.input("x", (2, 3)), g.input("whole", (2, 3, 4))
    made = g.op("MATRIX_DIAG", (x,), (2, 3, 3))
    check(g.result(made, g.op("MATRIX_SET_DIAG", (whole, x), (2, 3, 4))))


def test_sparse_to_dense() -> None:
    g = Graph()
    places = g.constant([[0, 1], [2, 0]], "int32")
    ins = (places, g.constant([3, 2], "int32"), g.input("x", (2,)), g.constant(-1.0, "float32"))
    check(g.result(g.op("SPARSE_TO_DENSE", ins, (3, 2), options={"validate_indices": False})))
