# SPDX-License-Identifier: Apache-2.0
"""Estimates are those of the kernels that the templates make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets import AVX2, AVX512
from treadle.ops.schedules.estimates import (
    BlockedConvShape,
    PlainConvShape,
    conv2d_nchwc_cycles,
    plain_conv_cycles,
)

pytestmark = pytest.mark.tiny

POINTWISE = BlockedConvShape(1, 14, 14, 256, 1, 128, 8)


def test_channels_that_a_kernel_writes_out_are_one_iteration() -> None:
    written_out = conv2d_nchwc_cycles(replace(POINTWISE, inner=8), AVX2)
    alone = conv2d_nchwc_cycles(POINTWISE, AVX2)
    assert 0.8 * alone < written_out < 0.95 * alone


def test_of_vectors_as_long_as_a_line_every_step_is_an_iteration() -> None:
    wide = replace(POINTWISE, vectors=64, block=16)
    assert conv2d_nchwc_cycles(replace(wide, inner=16), AVX512) == conv2d_nchwc_cycles(wide, AVX512)


def test_reads_that_follow_each_other_are_hidden_by_products() -> None:
    pixels = PlainConvShape(1, 1, 196, 1024, 1024, 256, 1)
    products = 196 * 1024 * 256 / 16 / AVX512.machine.fmas_per_cycle(AVX512.vector_bits)
    assert plain_conv_cycles(pixels, AVX512) < 1.2 * products
    assert plain_conv_cycles(replace(pixels, stride=2), AVX512) > 1.5 * products
