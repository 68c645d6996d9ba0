# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions in the channel-blocked layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.oracle import (
    check_operator,
    example_arrays,
    onnx_window,
    random_array,
    run_onnx_node,
)
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Var
from treadle.graph.operator import Example, Operator
from treadle.graph.types import TensorType
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc, depthwise_conv2d_nchwc


def f32(*shape: object) -> Var:
    return Var("x", TensorType(shape, "float32"))


BLOCKED = [(conv2d_nchwc, e) for e in conv2d_nchwc.examples]
BLOCKED += [(depthwise_conv2d_nchwc, e) for e in depthwise_conv2d_nchwc.examples]
BLOCKED += [(unpack_nchwc, e) for e in unpack_nchwc.examples]


@pytest.mark.parametrize(("operator", "example"), BLOCKED)
def test_blocked_examples(operator: Operator[Any], example: Example) -> None:
    arrays = example_arrays(example)
    check_operator(operator, arrays, dict(example.attrs), rtol=example.rtol, atol=2e-3)


@pytest.mark.parametrize("groups", [1, 2])
def test_blocked_convolution_agrees_with_onnxruntime(groups: int) -> None:
    attrs = {"strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2), "groups": groups}
    x = random_array((2, 8, 7, 6), "float32", -2, 2)
    w = random_array((16, 8 // groups, 3, 3), "float32", -2, 2)
    expected = run_onnx_node("Conv", [x, w], onnx_window(attrs))
    packed = pack_nchwc.reference(pack_nchwc.make_attrs({"block": 4}), x)
    blocked = w.reshape(2, 8, 2 // groups, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    result = check_operator(conv2d_nchwc, [packed, blocked], attrs)
    plain = unpack_nchwc.reference(unpack_nchwc.make_attrs({"channels": 16}), result)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)


def test_depthwise_convolution_agrees_with_onnxruntime() -> None:
    attrs = {"strides": (2, 1), "pads_before": (1, 1), "pads_after": (1, 1)}
    x = random_array((2, 8, 7, 6), "float32", -2, 2)
    w = random_array((8, 1, 3, 3), "float32", -2, 2)
    expected = run_onnx_node("Conv", [x, w], {**onnx_window(attrs), "group": 8})
    packed = pack_nchwc.reference(pack_nchwc.make_attrs({"block": 4}), x)
    blocked = w.reshape(2, 4, 3, 3).transpose(0, 2, 3, 1)
    result = check_operator(depthwise_conv2d_nchwc, [packed, blocked], attrs)
    plain = unpack_nchwc.reference(unpack_nchwc.make_attrs({"channels": 8}), result)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("image", "window", "attrs"),
    [
        ((1, 1), (5, 5), {"pads_before": (2, 2), "pads_after": (2, 2)}),
        ((2, 33), (5, 5), {"pads_before": (2, 2), "pads_after": (2, 2)}),
        ((9, 31), (3, 3), {"pads_before": (0, 1), "pads_after": (2, 0), "strides": (2, 2)}),
        ((7, 40), (3, 3), {"pads_before": (3, 3), "pads_after": (3, 3), "dilations": (3, 3)}),
        ((4, 4), (3, 3), {"pads_before": (2, 2), "pads_after": (2, 2), "strides": (3, 3)}),
        ((50,), (31,), {"pads_before": (15,), "pads_after": (15,)}),
        ((3, 5, 18), (3, 3, 3), {"pads_before": (1, 1, 1), "pads_after": (1, 1, 1)}),
    ],
)
def test_a_depthwise_convolution_reads_zeros_around_the_image(
    image: tuple[int, ...], window: tuple[int, ...], attrs: dict[str, tuple[int, ...]]
) -> None:
    x = random_array((2, 8, *image), "float32", -2, 2)
    w = random_array((8, 1, *window), "float32", -2, 2)
    expected = run_onnx_node("Conv", [x, w], {**onnx_window(attrs), "group": 8})
    packed = np.moveaxis(x.reshape(2, 2, 4, *image), 2, -1).copy()
    blocked = np.moveaxis(w.reshape(2, 4, *window), 1, -1).copy()
    result = check_operator(depthwise_conv2d_nchwc, [packed, blocked], attrs)
    plain = np.moveaxis(result, -1, 2).reshape(expected.shape)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "x", "w", "attrs", "text"),
    [
        (conv2d_nchwc, f32(1, 2, 8, 8, 4), f32(2, 3, 3, 3, 4, 4), {}, "take 3 blocks"),
        (conv2d_nchwc, f32(1, 2, 8, 8, 4), f32(2, 2, 3, 3, 8, 4), {}, "blocks of 8 channels"),
        (conv2d_nchwc, f32(1, 2, 8, 8, 4), f32(3, 1, 1, 1, 4, 4), {"groups": 2}, "do not split"),
        (conv2d_nchwc, f32(1, 8, 8, 8), f32(2, 2, 3, 3, 4, 4), {}, "are not"),
        (depthwise_conv2d_nchwc, f32(1, 2, 8, 8, 4), f32(3, 3, 3, 4), {}, "differ in channels"),
    ],
)
def test_blocked_convolutions_refuse(
    operator: Operator[Any], x: Var, w: Var, attrs: dict[str, object], text: str
) -> None:
    with pytest.raises(TypeMismatch, match=text):
        operator(x, w, **attrs)
