# SPDX-License-Identifier: Apache-2.0
"""Tests of which convolutions in groups run with several groups in a block, and what they give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.cases import function, var
from tests.optimize.methods.asked import Asked, asked
from tests.targets import AVX2, AVX512
from treadle.build.compile import compile_model
from treadle.graph.interpret import run
from treadle.graph.nodes import Constant, Module, Node
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.lowered.conv_lane_groups import lane_groups_conv2d_nchwc
from treadle.target.base import Target

RNG = np.random.default_rng(0)


def weights(filters: int, size: int, *kernel: int) -> Constant:
    made = RNG.standard_normal((filters, size, *kernel), "f4")
    return Constant.of(made / np.float32(np.sqrt(size * np.prod(kernel))))


def asked_of(channels: int, groups: int, filters: int, target: Target, size: int = 28) -> Asked:
    """Return what is said of a 3x3 convolution that comes and goes in blocks of channels."""
    block = target.lanes()
    x = var("x", 1, channels // block, size, size, block)
    w = weights(filters, channels // groups, 3, 3)
    made = conv(
        unpack_nchwc(x, channels=channels), w, groups=groups, pads_before=(1, 1), pads_after=(1, 1)
    )
    return asked(pack_nchwc(made, block=block), target)


@pytest.mark.parametrize(
    ("channels", "groups", "target"),
    [(128, 32, AVX512), (256, 32, AVX512), (128, 32, AVX2), (64, 32, AVX2)],
)
def test_groups_that_share_a_block_stay_in_it(channels: int, groups: int, target: Target) -> None:
    found = asked_of(channels, groups, channels, target)
    assert found.choice == "lane-groups"
    call = found.call_of(lane_groups_conv2d_nchwc)
    block = target.lanes()
    assert call.args[1].type.shape == (channels // block, 3, channels // groups, 3, block)


@pytest.mark.parametrize(
    ("channels", "groups", "filters", "said"),
    [
        (32, 1, 32, "there is one group"),
        (64, 4, 64, "several of which fill a block"),  # a block each
        (64, 64, 64, "several of which fill a block"),  # a channel each
        (96, 16, 96, "several of which fill a block"),  # of six
        (64, 16, 128, "as many inputs as filters"),
    ],
)
def test_what_it_is_not_for(channels: int, groups: int, filters: int, said: str) -> None:
    assert said in asked_of(channels, groups, filters, AVX512).against("lane-groups")


def test_source_code_has_no_shuffles() -> None:
    target = replace(AVX2, kind="c")
    assert "machine code" in asked_of(64, 16, 64, target).against("lane-groups")


def grouped_block(x: Node, channels: int, groups: int, strides: tuple[int, int]) -> Node:
    """Return a block of ResNeXt without its shortcut."""
    inside = ew.relu(conv(x, weights(channels, 24, 1, 1)))
    around = {"pads_before": (1, 1), "pads_after": (1, 1)}
    w = weights(channels, channels // groups, 3, 3)
    middle = ew.relu(conv(inside, w, groups=groups, strides=strides, **around))
    return conv(middle, weights(40, channels, 1, 1))


@pytest.mark.parametrize("groups", [8, 16, 24])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_networks_with_groups_give_what_they_gave(groups: int, strides: tuple[int, int]) -> None:
    """Of 48 channels; in blocks of 16 as in those of 8 and of 4 some groups fill blocks."""
    x = var("x", 2, 24, 19, 23)
    whole = function(grouped_block(x, 48, groups, strides), params=[x])
    value = RNG.standard_normal((2, 24, 19, 23), "f4")
    (wanted,) = run(whole, {"x": value})
    found = np.asarray(compile_model(Module(whole)).run([value])[0])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
