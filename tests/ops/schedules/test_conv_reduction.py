# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose reduction is cut into blocks: which ones, and that the sums are the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.ops.schedules.compiled import check, kernel_of
from treadle.build.kernel import Kernel
from treadle.cost.memory import waits_for_panel
from treadle.target.parse import parse_target
from treadle.te.knobs import Config

ZEN3 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3 -num-cores=2")


def made(channels: int, size: int, window: int, stride: int) -> Kernel:
    """Return a convolution of as many channels to as many, in blocks of 8, of an even image."""
    blocks, image = channels // 8, (size - 1) * stride + window
    shapes = (1, blocks, image, image, 8), (blocks, blocks, window, window, 8, 8)
    strides = (stride, stride)
    return kernel_of(ZEN3, "conv2d_nchwc", *shapes, strides=strides, pads_before=(), pads_after=())


def knobs_of(kernel: Kernel) -> dict[str, object]:
    return {knob.name: knob.value for knob in kernel.knobs}


def test_what_is_cut() -> None:
    assert "reduction_block" not in knobs_of(made(32, 14, 3, 1))
    assert "reduction_block" not in knobs_of(made(512, 14, 1, 1))  # values are read once
    assert knobs_of(made(2048, 7, 1, 1))["reduction_block"]  # of more than level 2 keeps
    assert "reduction_block" not in knobs_of(made(512, 2, 3, 2))  # few results


@pytest.mark.parametrize(("channels", "size", "stride"), [(512, 16, 2), (1024, 8, 2), (512, 7, 1)])
def test_weights_of_a_block_fit_level_1_and_its_data_and_sums_level_2(
    channels: int, size: int, stride: int
) -> None:
    kernel = made(channels, size, 3, stride)
    knobs = knobs_of(kernel)
    block, band, panels = (knobs[n] for n in ("reduction_block", "band", "panels"))
    tile = knobs["tile"]
    assert isinstance(tile, tuple)
    high, _, vectors = tile
    assert isinstance(block, int)
    assert isinstance(band, int)
    assert isinstance(panels, int)
    assert channels // 8 % block == 0
    assert block * 9 * 8 * vectors * 32 <= ZEN3.l1_bytes
    rows = min(size, band * high)
    data = block * ((rows - 1) * stride + 3) * ((size - 1) * stride + 3) * 32
    sums = panels * vectors * rows * size * 32
    assert data + sums <= ZEN3.l2_bytes // 2
    assert kernel.loop_text().count("parallel(") == 1


@pytest.mark.parametrize(
    ("channels", "size", "window", "stride", "ahead"),
    [(2048, 7, 1, 1, r"\w+oc_c, \w+ic_outer"), (512, 16, 3, 2, r"\w+oc_c")],
)
def test_tiles_fetch_the_block_that_is_read_after_theirs(
    channels: int, size: int, window: int, stride: int, ahead: str
) -> None:
    """The next one of the same panel; where several panels meet a block, that of the next panel."""
    kernel = made(channels, size, window, stride)
    assert (knobs_of(kernel)["panels"] == 1) is ("ic_outer" in ahead)
    (hint,) = (x for x in kernel.schedule.splitlines() if ".prefetch_panel(x1" in x)
    assert re.search(rf"\[{ahead}\], step=3", hint)


def test_rows_whose_data_level_2_does_not_hold_are_not_cut() -> None:
    """Of 20,000 columns, three rows of a block of channels take 2 MB."""
    shapes = (1, 64, 5, 20002, 8), (64, 64, 3, 3, 8, 8)
    wide = kernel_of(ZEN3, "conv2d_nchwc", *shapes)
    assert knobs_of(wide)["reduction_block"] == 0
    assert knobs_of(made(512, 16, 3, 1))["reduction_block"]


def test_many_cores_have_bands_of_fewer_rows_each() -> None:
    """32 panels of all rows are enough for two cores, not for 64; 16 rows are shared out then."""
    many = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3 -num-cores=64")
    shapes = (1, 64, 33, 33, 8), (64, 64, 3, 3, 8, 8)
    found = [
        knobs_of(kernel_of(target, "conv2d_nchwc", *shapes, strides=(2, 2)))
        for target in (ZEN3, many)
    ]
    assert all(knobs["reduction_block"] for knobs in found)
    rows = [knobs["band"] for knobs in found]
    assert isinstance(rows[0], int)
    assert isinstance(rows[1], int)
    assert rows[1] < rows[0]


def test_a_tile_waits_for_weights_that_come_more_slowly_than_it_multiplies() -> None:
    """12 multiply-adds take 6 cycles; 6 values take 3, two vectors from level 2 take 5.3."""
    assert waits_for_panel(4608, 6, 2, ZEN3)
    assert not waits_for_panel(64, 6, 2, ZEN3)  # level 1 holds all
    assert not waits_for_panel(4608, 6, 2, ZEN3, in_runs=True)
    assert waits_for_panel(4608, 4, 3, ZEN3, in_runs=True)  # 8 cycles of weights
    _, *levels = ZEN3.machine.caches
    first = ZEN3.machine.caches[0]
    fast = replace(
        ZEN3.machine, caches=(first, *(replace(c, bytes_per_cycle=48.0) for c in levels))
    )
    assert not waits_for_panel(4608, 6, 2, replace(ZEN3, machine=fast))


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize(
    ("data", "weights", "stride"),
    [
        ((2, 6, 15, 17, 16), (5, 6, 3, 3, 16, 16), (2, 2)),
        ((1, 6, 11, 9, 16), (4, 6, 3, 3, 16, 16), (1, 1)),
        ((1, 6, 75, 16), (3, 6, 5, 16, 16), (2,)),
        ((1, 6, 5, 17, 13, 16), (3, 6, 3, 3, 3, 16, 16), (1, 2, 2)),
    ],
)
def test_blocks_of_any_size_make_the_same_sums(
    block: int, data: tuple[int, ...], weights: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    for more in ({}, {"panels": 2, "band": 1}, {"panels": 8}):
        choice = Config.of({"reduction_block": block, **more})
        check("conv2d_nchwc", data, weights, atol=1e-3, rtol=1e-4, choice=choice, strides=stride)


@pytest.mark.parametrize("before", [0, 1])
def test_padding_is_skipped_in_blocks_too(before: int) -> None:
    data, weights = (1, 6, 10, 9, 16), (4, 6, 3, 3, 16, 16)
    ends = (before, before)
    check(
        "conv2d_nchwc", data, weights, atol=1e-3, rtol=1e-4,
        choice=Config.of({"reduction_block": 2}), pads_before=ends, pads_after=(1, 1),
    )  # fmt: skip
