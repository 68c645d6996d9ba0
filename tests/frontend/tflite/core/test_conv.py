# SPDX-License-Identifier: Apache-2.0
"""Convolutions against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite

RANDOM = np.random.default_rng(0)


def window(**options: int) -> dict[str, int]:
    return {"padding": 0, "stride_w": 1, "stride_h": 1, **options}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def integers(*shape: int, dtype: str = "int8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        (window(), (1, 7, 9, 5)),
        (window(padding=1, fused_activation_function=1), (1, 5, 7, 5)),
        (window(stride_w=2, stride_h=2, fused_activation_function=3), (1, 4, 5, 5)),
        (window(stride_w=3, stride_h=2, padding=1), (1, 3, 3, 5)),
        (window(dilation_w_factor=2, dilation_h_factor=2), (1, 7, 9, 5)),
    ],
)
def test_conv_2d(options: dict[str, int], shape: tuple[int, ...]) -> None:
    g = Graph()
    x = g.input("image", (1, 7, 9, 4))
    w, b = g.constant(normal(5, 3, 3, 4)), g.constant(normal(5))
    check(g.result(g.op("CONV_2D", (x, w, b), shape, options=options)))


def test_fewer_inputs_than_channels_are_groups() -> None:
    g = Graph()
    x = g.input("image", (1, 6, 6, 8))
    w, b = g.constant(normal(6, 3, 3, 4)), g.constant(normal(6))
    check(g.result(g.op("CONV_2D", (x, w, b), (1, 6, 6, 6), options=window())))


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_conv_2d(multiplier: int, stride: int) -> None:
    g = Graph()
    x = g.input("image", (2, 8, 8, 6))
    w, b = g.constant(normal(1, 3, 3, 6 * multiplier)), g.constant(normal(6 * multiplier))
    options = window(depth_multiplier=multiplier, stride_w=stride, stride_h=stride)
    shape = (2, 8 // stride, 8 // stride, 6 * multiplier)
    check(g.result(g.op("DEPTHWISE_CONV_2D", (x, w, b), shape, options=options)))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("stride", "kernel"), [(2, 3), (2, 2), (3, 2), (1, 3)])
def test_transpose_conv(padding: int, stride: int, kernel: int) -> None:
    g = Graph()
    size = 5 * stride if padding == 0 else 4 * stride + kernel
    shape = g.constant([1, size, size, 4], "int32")
    x, w, b = g.input("image", (1, 5, 5, 3)), g.constant(normal(4, kernel, kernel, 3)), normal(4)
    options = {"padding": padding, "stride_w": stride, "stride_h": stride}
    made = g.op("TRANSPOSE_CONV", (shape, w, x, g.constant(b)), (1, size, size, 4), options=options)
    check(g.result(made))


def test_conv_3d() -> None:
    g = Graph()
    x = g.input("volume", (1, 4, 5, 6, 3))
    w, b = g.constant(normal(2, 3, 3, 3, 4)), g.constant(normal(4))
    options = window(stride_d=1, stride_h=2)
    check(g.result(g.op("CONV_3D", (x, w, b), (1, 4, 3, 6, 4), options=options)))


def quantized_conv(op: str, dtype: str, per_channel: bool, activation: int) -> Graph:
    """Return a graph of one quantised convolution of six channels to six."""
    g = Graph()
    zero = {"int8": -3, "uint8": 120, "int16": 0}[dtype]
    x = g.input("image", (1, 8, 8, 6), dtype, Scale(0.04, zero))
    scales = RANDOM.uniform(0.005, 0.02, 6) if per_channel else 0.01
    axis, shape = (3, (1, 3, 3, 6)) if op == "DEPTHWISE_CONV_2D" else (0, (6, 3, 3, 6))
    kind = "uint8" if dtype == "uint8" else "int8"
    weights = integers(*shape, dtype=kind)
    if kind == "int8":
        weights = np.maximum(weights, -127)
    w = g.constant(weights, scale=Scale(scales, 0 if kind == "int8" else 131, axis))
    bias = "int64" if dtype == "int16" else "int32"
    b = g.constant(RANDOM.integers(-3000, 3000, 6), bias, Scale(np.asarray(scales) * 0.04))
    options = window(fused_activation_function=activation, depth_multiplier=1)
    if op == "CONV_2D":
        del options["depth_multiplier"]
    spread = Scale(0.3 if dtype != "int16" else 0.01, {"int8": 5, "uint8": 100, "int16": 0}[dtype])
    return g.result(g.op(op, (x, w, b), (1, 8, 8, 6), dtype, spread, options))


@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("activation", [0, 1, 3])
@pytest.mark.parametrize(
    ("dtype", "per_channel"), [("int8", True), ("int8", False), ("uint8", False), ("int16", True)]
)
def test_quantised(op: str, dtype: str, per_channel: bool, activation: int) -> None:
    check(quantized_conv(op, dtype, per_channel, activation))


def test_quantised_transpose_conv() -> None:
    g = Graph()
    shape = g.constant([1, 10, 10, 4], "int32")
    x = g.input("image", (1, 5, 5, 3), "int8", Scale(0.05, 7))
    scales = RANDOM.uniform(0.005, 0.02, 4)
    w = g.constant(np.maximum(integers(4, 3, 3, 3), -127), scale=Scale(scales, 0, 0))
    b = g.constant(RANDOM.integers(-2000, 2000, 4), "int32", Scale(scales * 0.05))
    options = {"padding": 0, "stride_w": 2, "stride_h": 2}
    check(
        g.result(
            g.op(
                "TRANSPOSE_CONV", (shape, w, x, b), (1, 10, 10, 4), "int8", Scale(0.1, -4), options
            )
        )
    )


def test_weights_alone_quantised() -> None:
    """The image is quantised by its own range, in both."""
    g = Graph()
    x = g.input("image", (2, 6, 6, 8))
    scales = RANDOM.uniform(0.005, 0.02, 4)
    w = g.constant(np.maximum(integers(4, 3, 3, 8), -127), scale=Scale(scales, 0, 0))
    check(
        g.result(g.op("CONV_2D", (x, w, g.constant(normal(4))), (2, 6, 6, 4), options=window())),
        tolerance=2e-3,
    )


def test_half_precision_weights() -> None:
    g = Graph()
    x = g.input("image", (1, 6, 6, 3))
    w = g.op("DEQUANTIZE", (g.constant(normal(4, 3, 3, 3), "float16"),), (4, 3, 3, 3))
    check(g.result(g.op("CONV_2D", (x, w, g.constant(normal(4))), (1, 6, 6, 4), options=window())))
