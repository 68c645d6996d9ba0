# SPDX-License-Identifier: Apache-2.0
"""Cycles of tiles of depthwise convolutions."""

from __future__ import annotations

import pytest

from tests.cost.test_registers import changed
from tests.targets import AVX512
from treadle.cost.depthwise import (
    DepthwiseTile,
    WindowTaps,
    depthwise_cycles,
    lane_group_cycles,
)

pytestmark = pytest.mark.tiny


def test_depthwise_tiles_take_longer_on_narrow_units() -> None:
    tile, window = DepthwiseTile(1, 6, 1), WindowTaps((3, 3))
    usual = depthwise_cycles((14, 14), tile, window, AVX512)
    narrow = changed(AVX512, fma_bits=128, load_bits=128)
    assert usual < depthwise_cycles((14, 14), tile, window, narrow) < 4 * usual


def test_shuffles_take_a_unit_of_512_bits_and_none_of_256() -> None:
    tile, window = DepthwiseTile(1, 14, 1), WindowTaps((3, 4, 3))
    halves = changed(AVX512, fma_bits=256)
    assert lane_group_cycles((7, 28), tile, window, halves) == depthwise_cycles(
        (7, 28), tile, window, halves
    )
    more = lane_group_cycles((7, 28), tile, window, AVX512)
    more -= depthwise_cycles((7, 28), tile, window, AVX512)
    # Two tiles of a row, each of 16 inputs, for three rows and four channels.
    assert more == 7 * 2 * 16 * 3 * 4 / AVX512.machine.fmas_per_cycle(512)


def test_a_window_that_moves_by_two_shares_fewer_shuffles() -> None:
    tile = DepthwiseTile(1, 7, 1)
    by_one, by_two = (
        lane_group_cycles((7, 28), tile, WindowTaps((3, 4, 3), stride), AVX512) for stride in (1, 2)
    )
    assert by_one < by_two
