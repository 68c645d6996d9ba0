# SPDX-License-Identifier: Apache-2.0
"""Tables of tile factors: every one is a way to cut the axis, none is there twice."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from treadle.tune.sketch_slots import (
    Slot,
    divisors,
    even_tiles,
    moved_rows,
    options,
    register_sizes,
    size_of,
    spatial_tiles,
)


@pytest.mark.parametrize("n", [1, 2, 12, 97, 512, 3136])
def test_divisors(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


@pytest.mark.parametrize("extent", [1, 7, 12, 56, 97, 512])
@pytest.mark.parametrize("unit", [1, 16])
def test_factors_cut_an_axis(extent: int, unit: int) -> None:
    found = spatial_tiles(extent, 3, 64, unit)
    assert len(set(found)) == len(found)
    for outer, middle, inner in found:
        tiles = -(-extent // inner)
        assert tiles % (outer * middle) == 0
        assert inner % unit == 0 or inner == extent < unit


@pytest.mark.parametrize("extent", [5, 50, 97, 1000])
def test_the_last_tile_is_not_almost_empty(extent: int) -> None:
    for size in register_sizes(extent, 32, 1):
        assert size == 1 or -extent % size <= extent / 8


def test_reductions_are_cut_evenly() -> None:
    assert even_tiles(12, 1) == ((1,), (2,), (3,), (4,), (6,), (12,))
    assert even_tiles(12, 0) == ((),)
    assert all(12 % prod(f) == 0 for f in even_tiles(12, 2))


def test_a_factor_moves_to_another_level() -> None:
    slot = Slot("tile", spatial_tiles(64, 3, 32), is_tile=True)
    random = np.random.default_rng(0)
    place = slot.places[(2, 2, 4)]
    moved = moved_rows([slot], np.full((200, 1), place), random)
    near = {slot.values[k] for k in moved[:, 0].tolist()}
    assert {(1, 2, 8), (1, 4, 4), (2, 2, 8), (2, 1, 4)} & near
    assert (2, 2, 4) not in near


def test_a_usual_value_is_drawn_more_often() -> None:
    slot = options("x", (3, 4, 5, 6), 2)
    drawn = slot.draw(2000, np.random.default_rng(0))
    assert np.mean(drawn == 2) > 0.6
    assert set(drawn) == {0, 1, 2, 3}
    assert size_of([slot, slot]) == 16
