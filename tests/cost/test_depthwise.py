# SPDX-License-Identifier: Apache-2.0
"""Cycles of tiles of depthwise convolutions."""

from __future__ import annotations

import pytest

from tests.cost.test_registers import changed
from tests.targets import AVX512
from treadle.cost.depthwise import DepthwiseTile, WindowTaps, depthwise_cycles

pytestmark = pytest.mark.tiny


def test_depthwise_tiles_take_longer_on_narrow_units() -> None:
    tile, window = DepthwiseTile(1, 6, 1), WindowTaps((3, 3))
    usual = depthwise_cycles((14, 14), tile, window, AVX512)
    narrow = changed(AVX512, fma_bits=128, load_bits=128)
    assert usual < depthwise_cycles((14, 14), tile, window, narrow) < 4 * usual
