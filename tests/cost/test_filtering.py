# SPDX-License-Identifier: Apache-2.0
"""How many tiles, points and products an axis takes that is filtered."""

from __future__ import annotations

import pytest

from treadle.cost.filtering import FilterAxis, filter_axes, why_not_filtered

pytestmark = pytest.mark.tiny


def test_points_are_as_many_as_outputs_and_taps_less_one() -> None:
    assert FilterAxis(4, 3).points == FilterAxis(4, 3).products == 6
    assert FilterAxis(2, 7).points == 8
    assert FilterAxis(1, 1).points == 1


def test_a_stride_meets_every_other_tap() -> None:
    odd, even = FilterAxis(4, 3, stride=2), FilterAxis(4, 4, stride=2)
    assert odd.taps == even.taps == 2
    assert odd.points == even.points == 5
    assert (odd.products, even.products) == (9, 10)  # one tap has no product at infinity


def test_only_axes_of_several_taps_are_filtered() -> None:
    high, wide = filter_axes(4, (1, 3), stride=2, gaps=(5, 2))
    assert high == FilterAxis(1, 1)
    assert wide == FilterAxis(4, 3, 2, 2)


@pytest.mark.parametrize("outputs", [1, 4, 7, 56, 57, 399, 1000, 4001])
@pytest.mark.parametrize("axis", [FilterAxis(4, 3), FilterAxis(6, 5, 2), FilterAxis(2, 3, 1, 8)])
def test_tiles_cover_the_outputs_with_few_to_spare(axis: FilterAxis, outputs: int) -> None:
    tiles = axis.tiles(outputs)
    needed = -(-outputs // (axis.tile * axis.gap)) * axis.gap
    assert needed <= tiles <= needed * 33 / 32
    last = (axis.tiles(outputs) * axis.tile - 1) * axis.stride  # of outputs, and its window
    assert axis.reads(outputs) >= last + (axis.kernel - 1) * axis.gap + 1


def test_many_tiles_can_be_taken_in_equal_groups() -> None:
    assert FilterAxis(3, 5).tiles(1000) == 336  # 334 are twice a prime
    assert FilterAxis(4, 3).tiles(224) == 56


@pytest.mark.parametrize(
    ("tile", "kernel", "stride", "why"),
    [
        (4, (3, 3), 1, None),
        (6, (1, 3), 1, None),
        (4, (5, 1), 1, None),
        (2, (5, 5), 1, None),
        (3, (7, 7), 2, None),
        (6, (3, 3), 1, "more than 6 points"),
        (4, (7, 1), 1, "more than 8 points"),
        (4, (1, 1), 1, "several taps"),
        (4, (2, 2), 2, "several taps"),
    ],
)
def test_large_tiles_and_single_taps_are_not_filtered(
    tile: int, kernel: tuple[int, int], stride: int, why: str | None
) -> None:
    against = why_not_filtered(filter_axes(tile, kernel, stride))
    assert against is None if why is None else why in (against or "")
