# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions whose groups lie side by side in a block of channels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import check_operator, onnx_window, random_array, run_onnx_node
from tests.ops.test_operators import call_of, function_of, inputs_of
from tests.targets import AVX2, AVX512
from treadle.build.kernel import Kernel
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Var
from treadle.graph.operator import Example
from treadle.graph.types import TensorType
from treadle.ops.lowered.conv_lane_groups import lane_groups_conv2d_nchwc
from treadle.optimize.channel_order import ChannelOrder, pack_lane_groups
from treadle.target.base import Target
from treadle.target.llvm import spill_count


@pytest.mark.parametrize(
    ("channels", "block", "size", "kernel", "attrs"),
    [
        (16, 8, 4, (3, 3), {"pads_before": (1, 1), "pads_after": (1, 1)}),
        (20, 16, 2, (2, 5), {"strides": (1, 2), "pads_before": (0, 2), "pads_after": (1, 0)}),
        (48, 16, 8, (3, 2), {"dilations": (2, 3)}),
        (8, 8, 4, (1, 1), {}),
    ],
)
def test_groups_of_a_block_agree_with_onnxruntime(
    channels: int, block: int, size: int, kernel: tuple[int, int], attrs: dict[str, object]
) -> None:
    x = random_array((2, channels, 9, 11), "float32", -2, 2)
    w = random_array((channels, size, *kernel), "float32", -2, 2)
    expected = run_onnx_node("Conv", [x, w], onnx_window({**attrs, "groups": channels // size}))
    order = ChannelOrder.natural(channels, block)
    missing = order.chunks * block - channels
    padded = np.pad(x, [(0, 0), (0, missing), (0, 0), (0, 0)])
    blocked = np.moveaxis(padded.reshape(2, order.chunks, block, 9, 11), 2, -1)
    weights = np.ascontiguousarray(pack_lane_groups(w, order))
    result = check_operator(
        lane_groups_conv2d_nchwc, [np.ascontiguousarray(blocked), weights], attrs
    )
    high, wide = expected.shape[2:]
    plain = np.moveaxis(result, -1, 2).reshape(2, -1, high, wide)
    np.testing.assert_allclose(plain[:, :channels], expected, rtol=1e-5, atol=1e-5)
    assert not plain[:, channels:].any()


def test_weights_must_fit_the_data_and_groups_the_blocks() -> None:
    x = Var("x", TensorType((1, 2, 5, 5, 8), "float32"))
    for shape, said in [
        ((3, 1, 4, 1, 8), "differ in channels"),
        ((2, 1, 3, 1, 8), "groups of 3 channels do not fill blocks of 8"),
    ]:
        with pytest.raises(TypeMismatch, match=said):
            lane_groups_conv2d_nchwc(x, Var("w", TensorType(shape, "float32")))


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize(
    ("target", "block", "size"), [(AVX2, 8, 4), (AVX2, 8, 2), (AVX512, 16, 4), (AVX512, 16, 8)]
)
def test_channels_are_shuffled_in_registers_that_hold_all_sums(
    target: Target, block: int, size: int, strides: tuple[int, int]
) -> None:
    shapes = ((1, 2, 30, 58, block), (2, 3, size, 3, block))
    example = Example(shapes, {"strides": strides})
    call = call_of(lane_groups_conv2d_nchwc, example, inputs_of(example))
    asm = Kernel(function_of(call), target).asm()
    assert "gather" not in asm
    assert asm.count("vperm") + asm.count("vshuf") + asm.count("vmovs") >= size
    assert spill_count(asm) == 0
