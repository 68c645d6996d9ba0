# SPDX-License-Identifier: Apache-2.0
"""Register tiles of convolutions: which are smaller, and where."""

from __future__ import annotations

from tests.targets import AVX512 as TARGET
from treadle.cost.registers import Taps
from treadle.ops.schedules.tiles import pick_window_tile
from treadle.te.knobs import Knobs


def test_tiles_are_smaller_where_that_skips_taps() -> None:
    """Of 17 places the first and the last 5 meet two taps, the others one."""
    taps = Taps(3, 17, before=12, gap=12)
    assert [taps.live(first, 1) for first in (0, 4, 5, 11, 12, 16)] == [2, 2, 1, 1, 2, 2]
    assert taps.live(0, 17) == 3
    tile = pick_window_tile(Knobs(), 17, 17, 4, TARGET, taps=(taps, taps))
    assert (tile.high, tile.wide) in ((1, 5), (1, 6))


def test_weights_that_leave_the_cache_are_read_for_more_places_at_once() -> None:
    near = pick_window_tile(Knobs(), 10, 10, 32, TARGET, reduction=64)
    level2 = pick_window_tile(Knobs(), 10, 10, 32, TARGET, reduction=512)
    far = pick_window_tile(Knobs(), 10, 10, 32, TARGET, reduction=9 * 2048)
    assert near == pick_window_tile(Knobs(), 10, 10, 32, TARGET)
    assert far.vectors <= level2.vectors < near.vectors
    assert far.high * far.wide >= level2.high * level2.wide > near.high * near.wide


def test_tiles_of_groups_leave_no_rest() -> None:
    assert 5 % pick_window_tile(Knobs(), 14, 14, 5, TARGET, whole=True).vectors == 0
    assert 6 % pick_window_tile(Knobs(), 7, 7, 6, TARGET, whole=True).vectors == 0
