# SPDX-License-Identifier: Apache-2.0
"""Blocked convolutions: taps that meet padding, tiles within groups."""

from __future__ import annotations

import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import AVX512 as TARGET
from treadle.graph.operator import OPERATORS
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc


def test_taps_that_only_meet_padding_are_skipped() -> None:
    far = dict.fromkeys(("pads_before", "pads_after", "dilations"), (6, 6))
    shapes = (1, 2, 9, 9, 16), (2, 2, 3, 3, 16, 16)
    check("conv2d_nchwc", *shapes, atol=1e-4, **far)
    check("conv2d_nchwc", *shapes, atol=1e-4)
    skipping = kernel_of(TARGET, "conv2d_nchwc", *shapes, **far).schedule
    assert skipping.count("skip_outside") == 2
    assert "skip_outside" not in kernel_of(TARGET, "conv2d_nchwc", *shapes).schedule


@pytest.mark.parametrize("filters", [4, 6])
def test_groups_of_several_blocks(filters: int) -> None:
    assert OPERATORS.get("conv2d_nchwc") is conv2d_nchwc
    check("conv2d_nchwc", (1, 4, 9, 14, 16), (filters, 2, 1, 1, 16, 16), atol=1e-4, groups=2)
