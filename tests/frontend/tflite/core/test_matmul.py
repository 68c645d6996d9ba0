# SPDX-License-Identifier: Apache-2.0
"""Products against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def weights(*shape: int) -> np.ndarray:
    return RANDOM.integers(-127, 127, shape, endpoint=True).astype("int8")


@pytest.mark.parametrize("activation", [0, 1, 2, 3])
def test_fully_connected(activation: int) -> None:
    g = Graph()
    x = g.input("rows", (3, 16))
    options = {"fused_activation_function": activation}
    ins = (x, g.constant(normal(5, 16)), g.constant(normal(5)))
    check(g.result(g.op("FULLY_CONNECTED", ins, (3, 5), options=options)))


def test_axes_before_the_features_are_kept_where_asked() -> None:
    g = Graph()
    x = g.input("rows", (2, 3, 16))
    w = g.constant(normal(5, 16))
    kept = g.op("FULLY_CONNECTED", (x, w, -1), (2, 3, 5), options={"keep_num_dims": True})
    flat = g.op("FULLY_CONNECTED", (x, w, -1), (6, 5), options={"keep_num_dims": False})
    check(g.result(kept, flat))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("activation", [0, 1])
def test_quantised_fully_connected(dtype: str, activation: int) -> None:
    g = Graph()
    x = g.input("rows", (4, 32), dtype, Scale(0.05, {"int8": 4, "uint8": 130, "int16": 0}[dtype]))
    kind = "uint8" if dtype == "uint8" else "int8"
    zero = 120 if kind == "uint8" else 0
    w = g.constant(np.abs(weights(8, 32)) if zero else weights(8, 32), kind, Scale(0.01, zero))
    bias = "int64" if dtype == "int16" else "int32"
    b = g.constant(RANDOM.integers(-900, 900, 8), bias, Scale(0.0005))
    options = {"fused_activation_function": activation}
    spread = Scale(0.1, {"int8": -7, "uint8": 100, "int16": 0}[dtype])
    check(g.result(g.op("FULLY_CONNECTED", (x, w, b), (4, 8), dtype, spread, options)))


def test_quantised_per_channel() -> None:
    g = Graph()
    x = g.input("rows", (4, 32), "int8", Scale(0.05, 4))
    scales = RANDOM.uniform(0.005, 0.02, 8)
    w = g.constant(weights(8, 32), scale=Scale(scales, 0, 0))
    b = g.constant(RANDOM.integers(-900, 900, 8), "int32", Scale(scales * 0.05))
    check(g.result(g.op("FULLY_CONNECTED", (x, w, b), (4, 8), "int8", Scale(0.2, 3), {})))


@pytest.mark.parametrize("asymmetric", [False, True])
def test_weights_alone_quantised(asymmetric: bool) -> None:
    """Each row is quantised by its own range, in both."""
    g = Graph()
    x = g.input("rows", (4, 32))
    ins = (x, g.constant(weights(8, 32), scale=Scale(0.01)), g.constant(normal(8)))
    options = {"asymmetric_quantize_inputs": asymmetric}
    check(g.result(g.op("FULLY_CONNECTED", ins, (4, 8), options=options)), tolerance=2e-3)


@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True)])
def test_batch_matmul(adjoint: tuple[bool, bool]) -> None:
    g = Graph()
    a = g.input("a", (2, 3, 6, 4) if adjoint[0] else (2, 3, 4, 6))
    b = g.input("b", (2, 1, 5, 6) if adjoint[1] else (2, 1, 6, 5))
    options = {"adj_x": adjoint[0], "adj_y": adjoint[1]}
    check(g.result(g.op("BATCH_MATMUL", (a, b), (2, 3, 4, 5), options=options)))


def test_quantised_batch_matmul() -> None:
    g = Graph()
    a = g.input("a", (2, 4, 6), "int8", Scale(0.05, 3))
    b = g.input("b", (2, 6, 5), "int8", Scale(0.03, -2))
    check(g.result(g.op("BATCH_MATMUL", (a, b), (2, 4, 5), "int8", Scale(0.3, 1), {})))
