# SPDX-License-Identifier: Apache-2.0
"""Bands: the rows of an image that a convolution finishes for all channels before the next."""

from __future__ import annotations

import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import AVX2
from tests.targets import AVX512 as TARGET
from treadle import te
from treadle.cost.registers import WindowTile
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.schedules.conv_bands import rows_per_band
from treadle.target.parse import parse_target
from treadle.te import schedule
from treadle.te.knobs import Config, Knobs


def band_in(image: tuple[int, ...], window: tuple[int, ...], blocks: int, filters: int,
            tile: WindowTile) -> int:  # fmt: skip
    """Return the band of a convolution of blocks of channels, of an image or a volume."""
    x = te.placeholder((1, blocks, *image, 16), name="x")
    w = te.placeholder((filters, blocks, *window, 16, 16), name="w")
    assert conv2d_nchwc.compute is not None
    (total,) = conv2d_nchwc.compute(conv2d_nchwc.make_attrs({}), x, w)
    rows = -(-(image[-2] - window[-2] + 1) // tile.high)
    return rows_per_band(schedule.create_schedule(total.op)[total], rows, tile, TARGET, Knobs())


def band_of(image: tuple[int, int], channels: int, filters: int, tile: WindowTile) -> int:
    return band_in(image, (1, 1), channels // 16, filters // 16, tile)


@pytest.mark.parametrize("height", [7, 12, 13, 56])
@pytest.mark.parametrize("channels", [16, 256])
def test_bands_share_the_rows_evenly(height: int, channels: int) -> None:
    rows = -(-height // 2)
    band = band_of((height, 14), channels, 512, WindowTile(2, 14, 1))
    assert -(-rows // -(-rows // band)) == band


@pytest.mark.parametrize("band", [2, 3])
def test_the_last_band_and_the_last_tile_may_be_smaller(band: int) -> None:
    """15 rows are 8 tiles of two, in bands of so many tiles; sums run without conditions."""
    shapes = ((1, 4, 17, 6, 8), (4, 4, 3, 3, 8, 8))
    choice = Config((("tile", (2, 4, 1)), ("band", band)))
    check("conv2d_nchwc", *shapes, choice=choice, atol=1e-4)
    lines = kernel_of(AVX2, "conv2d_nchwc", *shapes, choice=choice).loop_text().splitlines()
    sums = [line for line in lines if "fma" in line]
    assert sums
    assert not [line for line in sums if "select" in line]


def test_bands_of_a_volume_are_finished_in_all_planes() -> None:
    """Windows of three planes, whose rows level 2 keeps: the next plane reads one more."""
    band = band_in((10, 56, 56), (3, 1, 1), 9, 4, WindowTile(1, 6, 2))
    assert 3 * 144 * band * 56 * 4 < TARGET.l2_bytes
    shapes = ((1, 2, 6, 56, 7, 8), (2, 2, 3, 1, 1, 8, 8))
    choice = Config((("tile", (1, 6, 2)), ("band", 4)))
    check("conv2d_nchwc", *shapes, choice=choice, atol=1e-4)
    text = kernel_of(AVX2, "conv2d_nchwc", *shapes, choice=choice).loop_text()
    assert "x0[0, ic, (((task // 4) % 4) + k0), (((task // 16) * 4) + (task % 4))" in text


def test_input_that_is_larger_than_the_weights_stays_near() -> None:
    """Many positions of few channels: all channels of a few rows before the next rows."""
    band = band_of((56, 28), 32, 256, WindowTile(1, 28, 1))
    assert band * 28 * 32 * 4 < TARGET.l1_bytes
    assert band_of((14, 14), 256, 256, WindowTile(1, 14, 2)) == 14


def test_strided_positions_take_the_lines_between_them_where_pairs_are_fetched() -> None:
    """28 rows of 28 positions of 256 channels, every other one: level 2 keeps half as many."""
    x = te.placeholder((1, 16, 56, 56, 16), name="x")
    w = te.placeholder((32, 16, 1, 1, 16, 16), name="w")
    assert conv2d_nchwc.compute is not None
    (total,) = conv2d_nchwc.compute(conv2d_nchwc.make_attrs({"strides": (2, 2)}), x, w)
    stage, tile = schedule.create_schedule(total.op)[total], WindowTile(1, 14, 2)
    lines, pairs = (
        rows_per_band(stage, 28, tile, parse_target(f"{TARGET} -fetch-bytes={n}"), Knobs(),
                      strides=(2, 2))
        for n in (64, 128)
    )  # fmt: skip
    assert (lines, pairs) == (14, 7)
