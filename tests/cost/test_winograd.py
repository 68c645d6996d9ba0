# SPDX-License-Identifier: Apache-2.0
"""Cycles of Winograd convolutions follow the facts of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.cost.filtering import filter_axes
from treadle.cost.registers import Tile
from treadle.cost.winograd import (
    Grouping,
    WinogradShape,
    fits_group,
    holds_a_tile,
    winograd_cycles,
)
from treadle.target.base import Target
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny

ZEN4 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=1")
SHAPE = WinogradShape(4, 14, 14, 64, 64, 16)
ROW = Grouping(1, 14, by_panel=False)


def test_a_group_fits_while_its_inputs_stay_in_a_core_s_cache() -> None:
    assert fits_group(SHAPE, ZEN4, ROW)
    assert not fits_group(SHAPE, ZEN4, Grouping(14, 14, by_panel=False))
    wide = replace(SHAPE, inputs=256, outputs=16)
    assert not fits_group(wide, ZEN4, Grouping(2, 14, by_panel=False))
    assert fits_group(wide, ZEN4, Grouping(2, 14, by_panel=True))


def test_cores_with_tiles_of_their_own_share_weights_that_a_run_makes() -> None:
    """Those that are transformed by panels and read by panels stay with their core."""
    two = replace(ZEN4, cores=2)
    shape = replace(SHAPE, plain_weights=True)
    near = replace(two, machine=replace(two.machine, remote_bytes_per_cycle=1e9))

    def shared(group: Grouping) -> float:
        of_two, of_near = (winograd_cycles(shape, t, group, Tile(7, 4), 1) for t in (two, near))
        return of_two - of_near

    apart = replace(ROW, apart=True)
    both = 2 / two.machine.remote_bytes_per_cycle
    assert shared(apart) == pytest.approx(shape.weight_bytes * both, rel=1e-6)
    assert shared(ROW) == 0
    groups = shape.down
    panels = replace(apart, by_panel=True)
    assert shared(panels) >= groups * shape.v_bytes(14) * both * 0.999


def test_images_take_as_many_times_as_long() -> None:
    one, two = (
        winograd_cycles(s, ZEN4, ROW, Tile(7, 4), 1) for s in (SHAPE, replace(SHAPE, batch=2))
    )
    assert two == pytest.approx(2 * one, rel=0.01)


def test_registers_hold_a_tile_of_four_where_factors_are_read_from_memory() -> None:
    arm = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    assert arm.vector_registers == ZEN4.vector_registers
    assert holds_a_tile(filter_axes(4, (3, 3)), ZEN4)
    assert not holds_a_tile(filter_axes(4, (3, 3)), arm)
    assert holds_a_tile(filter_axes(3, (3, 3)), arm)


def test_the_sums_of_a_signal_stay_in_registers() -> None:
    haswell = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    assert holds_a_tile(filter_axes(6, (1, 3)), haswell)


def test_a_stride_counts_the_products_that_are_no_zeros() -> None:
    assert replace(SHAPE, stride=2, tile=4).products == 9**2 * 64 // 4
    assert replace(SHAPE, kernel=(1, 3)).products == 6 * 64
    assert replace(SHAPE, kernel=(1, 3), stride=2).products == 9 * 64 // 2
    assert replace(SHAPE, kernel=(1, 4), stride=2).products == 10 * 64 // 2


def test_large_transforms_wait_for_level_2_and_small_ones_for_arithmetic() -> None:
    slow = parse_target(f"{ZEN4} -caches-bytes-per-cycle=64,11,16")

    def cycles(tile: int, target: Target) -> float:
        shape = replace(SHAPE, tile=tile)
        return winograd_cycles(shape, target, ROW, Tile(7, 4), 1)

    assert cycles(2, slow) == cycles(2, ZEN4)
    assert cycles(3, slow) > cycles(3, ZEN4)
    assert cycles(4, slow) > cycles(4, ZEN4)
