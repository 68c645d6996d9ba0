# SPDX-License-Identifier: Apache-2.0
"""Estimates are those of the kernels that the templates make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets import AVX2, AVX512
from treadle.ops.schedules.estimates import BlockedConvShape, conv2d_nchwc_cycles

pytestmark = pytest.mark.tiny

POINTWISE = BlockedConvShape(1, 14, 14, 256, 1, 128, 8)


def test_channels_that_a_kernel_writes_out_are_one_iteration() -> None:
    written_out = conv2d_nchwc_cycles(replace(POINTWISE, inner=8), AVX2)
    alone = conv2d_nchwc_cycles(POINTWISE, AVX2)
    assert 0.8 * alone < written_out < 0.95 * alone


def test_of_vectors_as_long_as_a_line_every_step_is_an_iteration() -> None:
    wide = replace(POINTWISE, vectors=64, block=16)
    assert conv2d_nchwc_cycles(replace(wide, inner=16), AVX512) == conv2d_nchwc_cycles(wide, AVX512)
