# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions in groups that look their channels up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import check_operator, onnx_window, random_array, run_onnx_node
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Var
from treadle.graph.types import TensorType
from treadle.ops.lowered.channel_blocks import element_of
from treadle.ops.lowered.conv_grouped import grouped_conv2d_nchwc


@pytest.mark.parametrize("seed", range(3))
def test_any_places_agree_with_onnxruntime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    attrs = {"strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2), "groups": 3}
    x = random_array((2, 15, 7, 6), "float32", -2, 2)
    w = random_array((12, 5, 3, 2), "float32", -2, 2)
    expected = run_onnx_node("Conv", [x, w], onnx_window(attrs))
    places = rng.permutation(20)[:15]
    packed = np.full((2, 20, 7, 6), np.nan, np.float32)
    packed[:, places] = x
    blocked = np.ascontiguousarray(np.moveaxis(packed.reshape(2, 5, 4, 7, 6), 2, -1))
    table = element_of(places.reshape(3, 5), 7, 6, 4).astype(np.int32)
    weights = w.reshape(3, 4, 5, 3, 2).transpose(0, 2, 3, 4, 1)
    result = check_operator(grouped_conv2d_nchwc, [blocked, weights, table], attrs)
    plain = np.moveaxis(result, -1, 2).reshape(expected.shape)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)


def test_the_table_must_fit_the_groups() -> None:
    x, w = (Var("x", TensorType(s, "float32")) for s in ((1, 2, 5, 5, 4), (2, 3, 1, 1, 4)))
    places = Var("places", TensorType((1, 3), "int32"))
    with pytest.raises(TypeMismatch, match=r"int32\[1, 3\], not int32\[2, 3\]"):
        grouped_conv2d_nchwc(x, w, places, groups=2)
