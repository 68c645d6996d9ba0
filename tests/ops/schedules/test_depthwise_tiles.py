# SPDX-License-Identifier: Apache-2.0
"""Register tiles of depthwise convolutions fit the registers of every machine."""

from __future__ import annotations

import pytest

from treadle.cost.depthwise import WindowTaps, registers_of
from treadle.ops.schedules.depthwise_tiles import depthwise_tile
from treadle.target.base import Target
from treadle.te.knobs import Knobs


@pytest.mark.parametrize("registers", [8, 16, 32])
@pytest.mark.parametrize("window", [(3,), (1, 1), (3, 3), (5, 5), (7, 7), (3, 3, 3), (1, 31)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 4)])
def test_a_step_fits_the_registers(
    registers: int, window: tuple[int, ...], stride: int, dilation: int
) -> None:
    taps = WindowTaps(window, stride, dilation)
    tile = depthwise_tile(Knobs(), (14, 14), taps, Target("llvm", vector_registers=registers))
    assert registers_of(tile, taps) < registers


def test_small_windows_keep_their_weights_where_registers_are_many() -> None:
    taps = WindowTaps((3, 3))
    assert (
        depthwise_tile(Knobs(), (56, 56), taps, Target("llvm", vector_registers=32)).unrolled == 2
    )
    assert (
        depthwise_tile(Knobs(), (56, 56), taps, Target("llvm", vector_registers=16)).unrolled == 1
    )


def test_narrow_images_sum_several_rows_at_once() -> None:
    tile = depthwise_tile(Knobs(), (7, 7), WindowTaps((7, 7)), Target("llvm", vector_registers=32))
    assert tile.high > 1
    assert tile.wide == 7


def test_a_size_that_is_not_known_counts_as_one() -> None:
    assert depthwise_tile(Knobs(), (0, 0), WindowTaps((3, 3)), Target("llvm")).wide == 1
