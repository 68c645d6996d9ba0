# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators of integers are those of the reference interpreter in every element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite
SIZE = 20_000


def all_integers(dtype: str, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, SIZE, endpoint=True).astype(dtype)


def unary(op: str, dtype: str, given: Scale, made: Scale, to: str = "", **options: Any) -> None:
    g = Graph()
    x = g.input("x", (SIZE,), dtype, given)
    g.result(g.op(op, (x,), (SIZE,), to or dtype, made, options or None))
    check(g, steps=0, inputs={"x": all_integers(dtype)})


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_pairs(op: str, dtype: str) -> None:
    g, fine = Graph(), 1 / 200 if dtype == "int16" else 1.0
    point = {"int8": -5, "uint8": 119, "int16": 0}[dtype]
    x = g.input("x", (SIZE,), dtype, Scale(0.0432 * fine, point))
    y = g.input("y", (SIZE,), dtype, Scale(0.0812 * fine, point))
    options = {} if op == "MUL" else {"pot_scale_int16": False}
    scale = Scale((0.4 if op == "MUL" and fine == 1.0 else 0.1) * fine, point)
    g.result(g.op(op, (x, y), (SIZE,), dtype, scale, {**options, "fused_activation_function": 1}))
    check(g, steps=0, inputs={"x": all_integers(dtype), "y": all_integers(dtype, 1)})


@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_sums_in_the_middle_between_integers(op: str) -> None:
    """Equal scales, half that of the result: every other sum lies between two integers."""
    g = Graph()
    x, y = (g.input(name, (SIZE,), "int8", Scale(0.1, 4)) for name in "xy")
    g.result(g.op(op, (x, y), (SIZE,), "int8", Scale(0.2, -3)))
    check(g, steps=0, inputs={"x": all_integers("int8"), "y": all_integers("int8", 1)})


@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_16_bit_sums_in_powers_of_two(op: str) -> None:
    g = Graph()
    x, y = (
        g.input("x", (SIZE,), "int16", Scale(2**-15)),
        g.input("y", (SIZE,), "int16", Scale(2**-12)),
    )
    g.result(g.op(op, (x, y), (SIZE,), "int16", Scale(2**-12), {"pot_scale_int16": True}))
    check(g, steps=0, inputs={"x": all_integers("int16"), "y": all_integers("int16", 1)})


@pytest.mark.parametrize(
    ("dtype", "to", "given", "made"),
    [
        ("int8", "int8", Scale(0.1, 4), Scale(0.123, -20)),
        ("int8", "uint8", Scale(0.1, 4), Scale(0.1, 132)),
        ("int8", "int8", Scale(0.1, 4), Scale(0.2, 4)),
        ("int16", "int16", Scale(0.001), Scale(0.00123)),
        ("int8", "int16", Scale(0.1, 4), Scale(0.0007)),
    ],
)
def test_rescaling(dtype: str, to: str, given: Scale, made: Scale) -> None:
    unary("QUANTIZE", dtype, given, made, to)


@pytest.mark.parametrize("op", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_rectifiers(op: str) -> None:
    unary(op, "int8", Scale(0.06, -9), Scale(0.047, -31))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_leaky_rectifiers(dtype: str) -> None:
    given = Scale(0.04, -5) if dtype == "int8" else Scale(0.0004)
    made = Scale(0.05, -8) if dtype == "int8" else Scale(0.0005)
    unary("LEAKY_RELU", dtype, given, made, alpha=0.1)


def test_slopes() -> None:
    g = Graph()
    x = g.input("x", (1, 25, 100, 8), "int8", Scale(0.04, -5))
    slopes = g.constant(np.arange(-4, 4).reshape(1, 1, 8), "int8", scale=Scale(0.13, 1))
    g.result(g.op("PRELU", (x, slopes), (1, 25, 100, 8), "int8", Scale(0.05, -8)))
    check(g, steps=0, inputs={"x": all_integers("int8").reshape(1, 25, 100, 8)})


@pytest.mark.parametrize("op", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2**-12, 0.00037, 0.002])
def test_functions_of_16_bits(op: str, scale: float) -> None:
    unary(op, "int16", Scale(scale), Scale(2**-15))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("axes", [(1, 2), (3,)])
def test_means(dtype: str, axes: tuple[int, ...]) -> None:
    g = Graph()
    zero, made = (4, Scale(0.02, -9)) if dtype == "int8" else (0, Scale(0.0213))
    x = g.input("x", (1, 10, 20, 100), dtype, Scale(0.1, zero))
    shape = tuple(1 if k in axes else d for k, d in enumerate((1, 10, 20, 100)))
    at = g.constant(axes, "int32")
    g.result(g.op("MEAN", (x, at), shape, dtype, made, {"keep_dims": True}))
    check(g, steps=0, inputs={"x": all_integers(dtype).reshape(1, 10, 20, 100)})
