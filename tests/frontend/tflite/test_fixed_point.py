# SPDX-License-Identifier: Apache-2.0
"""Quantised sums of products are those of the reference interpreter in every element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale, model
from tests.frontend.tflite.oracle import check, computed, random_inputs
from treadle.errors import ModelError
from treadle.frontend.tflite.fixed_point import bounds_of, factor_of
from treadle.frontend.tflite.model import Quantization

RANDOM = np.random.default_rng(3)
KINDS = ("int8", "int16")
WINDOW = {"padding": 0, "stride_w": 1, "stride_h": 1}


def integers(*shape: int) -> np.ndarray:
    return RANDOM.integers(-127, 127, shape, endpoint=True).astype("int8")


def filters(g: Graph, value: np.ndarray, axis: int, fine: float) -> tuple[int, int]:
    """Return weights with a scale per channel, and a bias for data of the scale `fine`."""
    count = value.shape[axis]
    scales = np.linspace(0.004, 0.021, count).astype("float32")
    weights = g.constant(value, scale=Scale(scales, [0] * count, axis))
    dtype = "int32" if fine > 1e-3 else "int64"
    bias = RANDOM.integers(-5000, 5000, count)
    return weights, g.constant(bias, dtype, scale=Scale(scales * np.float32(fine), [0] * count))


def data(dtype: str) -> tuple[Scale, Scale]:
    """Return how data and result are quantised: results are rounded near many middles."""
    if dtype == "int16":
        return Scale(0.00043), Scale(0.0031)
    return Scale(0.05, -7), Scale(0.23, 3)


@pytest.mark.tflite
@pytest.mark.parametrize("dtype", KINDS)
def test_convolutions_are_exact(dtype: str) -> None:
    g, (given, made) = Graph(), data(dtype)
    x = g.input("x", (1, 24, 24, 16), dtype, given)
    w, b = filters(g, integers(24, 3, 3, 16), 0, given.scale)
    options = {**WINDOW, "fused_activation_function": 1}
    g.result(g.op("CONV_2D", (x, w, b), (1, 24, 24, 24), dtype, made, options))
    check(g, steps=0)


@pytest.mark.tflite
@pytest.mark.parametrize("dtype", KINDS)
def test_depthwise_convolutions_are_exact(dtype: str) -> None:
    g, (given, made) = Graph(), data(dtype)
    x = g.input("x", (1, 24, 24, 16), dtype, given)
    w, b = filters(g, integers(1, 3, 3, 16), 3, given.scale)
    options = {**WINDOW, "depth_multiplier": 1}
    g.result(g.op("DEPTHWISE_CONV_2D", (x, w, b), (1, 24, 24, 16), dtype, made, options))
    check(g, steps=0)


@pytest.mark.tflite
@pytest.mark.parametrize("dtype", KINDS)
def test_transposed_convolutions_are_exact(dtype: str) -> None:
    g, (given, made) = Graph(), data(dtype)
    x = g.input("x", (1, 12, 12, 8), dtype, given)
    w, b = filters(g, integers(16, 3, 3, 8), 0, given.scale)
    shape = g.constant([1, 24, 24, 16], "int32")
    options = {"padding": 0, "stride_w": 2, "stride_h": 2}
    g.result(g.op("TRANSPOSE_CONV", (shape, w, x, b), (1, 24, 24, 16), dtype, made, options))
    check(g, steps=0)


def layer(dtype: str) -> tuple[Graph, np.ndarray]:
    """Return a fully connected layer with a bias, and its weights."""
    g, (given, made) = Graph(), data(dtype)
    x, weights = g.input("x", (64, 48), dtype, given), integers(32, 48)
    scale = Scale(float(np.float32(0.0123) * np.float32(given.scale)))
    bias = RANDOM.integers(-5000, 5000, 32)
    b = g.constant(bias, "int32" if dtype == "int8" else "int64", scale=scale)
    w = g.constant(weights, scale=Scale(0.0123))
    return g.result(g.op("FULLY_CONNECTED", (x, w, b), (64, 32), dtype, made)), bias


@pytest.mark.tflite
def test_layers_are_exact() -> None:
    check(layer("int8")[0], steps=0)


def test_layers_of_16_bits_round_once() -> None:
    """The interpreter asks for an option of files newer than the schema's: by its formula."""
    g, bias = layer("int16")
    inputs = random_inputs(g)
    weights = next(t.value for t in g.tensors if t.shape == (32, 48))
    assert weights is not None
    total = inputs["x"].astype("int64") @ weights.T.astype("int64") + bias
    factor = np.prod(np.float32([0.00043, 0.0123]), dtype="float64") / np.float64(
        np.float32(0.0031)
    )
    expected = np.trunc(total * factor + np.copysign(0.5, total))
    (made,) = computed(model(g), inputs)
    np.testing.assert_array_equal(made, np.clip(expected, -32768, 32767))


def test_factors_are_of_31_bits_and_a_power_of_two() -> None:
    made = factor_of(np.array([1.0, 0.75, 3.0, 1 - 2.0**-40, 2.0**-40, 0.0]))
    assert made.multipliers.tolist() == [2**30, 3 * 2**29, 3 * 2**29, 2**30, 0, 0]
    assert made.exponents.tolist() == [1, 0, 2, 1, 0, 0]
    assert made.lefts.tolist() == [2, 1, 4, 2, 1, 1]


@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan, 2.0**31])
def test_impossible_factors_are_refused(value: float) -> None:
    with pytest.raises(ModelError, match="the scales of a quantised operator"):
        factor_of(value)


def test_bounds_of_activations_round_away_from_zero() -> None:
    how = Quantization(np.array([0.8], "float32"), np.array([-3]), 0)
    assert bounds_of("RELU6", how, "int8") == (-3, 5)  # 7.5 steps above the zero point
    assert bounds_of("RELU_N1_TO_1", how, "int8") == (-4, -2)
    assert bounds_of("NONE", how, "int16") == (-32768, 32767)
