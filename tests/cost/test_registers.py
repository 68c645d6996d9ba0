# SPDX-License-Identifier: Apache-2.0
"""Cycles of register tiles: what bounds them on machines with other units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets import AVX2, AVX512, NEON
from treadle.cost.registers import (
    Taps,
    Tile,
    WindowTile,
    fma_cycles,
    image_cycles,
    load_cycles,
    loads_of_vector,
    parts_of,
    steps_written_out,
    tile_cycles,
    tile_set_cycles,
    tile_steps,
    vectors_of,
)
from treadle.target.base import Target

pytestmark = pytest.mark.tiny


def changed(target: Target, **facts: float) -> Target:
    return replace(target, machine=replace(target.machine, **facts))  # type: ignore[arg-type]


def test_a_large_tile_is_bound_by_its_units() -> None:
    assert tile_cycles(6, 4, AVX512) == 24 / 2 + 1
    assert tile_cycles(6, 4, changed(AVX512, fma_bits=256)) == 24 + 1
    assert tile_cycles(6, 4, changed(AVX512, fma_units=4)) == 24 / 4 + 1


def test_a_small_tile_waits_for_its_sums() -> None:
    assert tile_cycles(2, 1, AVX512) == AVX512.machine.fma_latency + 1
    assert tile_cycles(2, 1, changed(AVX512, fma_latency=9)) == 10
    assert tile_cycles(0, 0, AVX512) == 1


def test_a_thin_tile_is_bound_by_loads() -> None:
    """Broadcast values are loaded one by one, whatever the vectors are; vectors are as wide.

    Of the loads that a core can do, a tile gets 85 in 100.
    """
    slow = changed(AVX512, loads_per_cycle=1)
    assert tile_cycles(14, 1, slow) == pytest.approx(15 / 0.85 + 1)
    halves = changed(AVX512, load_bits=256)
    assert tile_cycles(14, 1, halves) == pytest.approx((14 / 2 + 1) / 0.85 + 1)
    late = changed(AVX512, iteration_cycles=2.5)
    assert tile_cycles(14, 1, late) == pytest.approx(7.5 / 0.85 + 2.5)


def test_steps_that_are_written_out_share_an_iteration() -> None:
    assert tile_cycles(6, 2, AVX2, written_out=8) == 12 / 2 + 1 / 8
    tile = WindowTile(1, 6, 2)
    assert image_cycles((1, 6, 2), tile, 1, AVX2, written_out=8) == 12 / 2 + 1 / 8
    assert steps_written_out(8, 32, 2, AVX2) == 8
    assert steps_written_out(8, 32, 1, AVX2) == 1  # loads would take the registers of sums
    assert steps_written_out(16, 64, 2, AVX512) == 1  # a step has a line of weights


def test_narrow_vectors_take_a_whole_unit() -> None:
    assert [fma_cycles(8, target) for target in (AVX512, AVX2, NEON)] == [4, 4, 4]
    assert load_cycles(8, changed(AVX2, load_bits=128)) == 8


def test_remainders_are_tiles_of_their_own() -> None:
    assert parts_of(17, 6) == [(6, 2), (5, 1)]
    assert parts_of(3, 6) == [(3, 1)]
    whole, rest = tile_cycles(6, 2, AVX512), tile_cycles(5, 2, AVX512)
    assert tile_set_cycles(17, 2, Tile(6, 2), 1, AVX512) == 2 * whole + rest
    assert tile_set_cycles(6, 2, Tile(6, 2), 1, AVX512, wait=50.0) == 100


def test_taps_that_meet_padding_only_are_not_counted() -> None:
    taps = Taps(3, 4, 1)
    assert [taps.live(i, 1) for i in range(4)] == [2, 3, 3, 2]
    tile = WindowTile(1, 1, 1)
    all_taps = 9 * image_cycles((4, 4, 1), tile, 1, AVX512)
    assert image_cycles((4, 4, 1), tile, 1, AVX512, (taps, taps)) == all_taps * 100 / 144


def test_parts_of_vectors_take_the_units_that_they_fill() -> None:
    whole, halves = changed(AVX512, fma_bits=512), changed(AVX512, fma_bits=256)
    assert [vectors_of(n, 16, whole) for n in (0, 7, 16, 17)] == [0, 1, 1, 2]
    assert [vectors_of(n, 16, halves) for n in (7, 8, 9, 40)] == [0.5, 0.5, 1, 2.5]
    assert vectors_of(3, 8, AVX2) == 1


def test_elements_apart_are_shuffled_or_read_one_by_one() -> None:
    assert [loads_of_vector(stride, 16) for stride in (1, 2, 4, 5)] == [1, 2, 4, 16]
    assert tile_cycles(1, 4, AVX512, 4) > tile_cycles(1, 4, AVX512)
    assert tile_cycles(12, 2, AVX512, 2) == tile_cycles(12, 2, AVX512)  # hidden by products


def test_kept_steps_are_those_of_their_own_target() -> None:
    narrow = changed(AVX512, fma_bits=256)
    for target in (AVX512, narrow, AVX512):
        for rows, vectors, loaded in ((6, 4, 1.0), (14, 1, 1.0), (14, 1, 4.0), (6, 0.5, 1.0)):
            kept = tile_steps(target)(rows, vectors, loaded)
            assert kept == tile_cycles(rows, vectors, target, loaded)
