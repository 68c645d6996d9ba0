# SPDX-License-Identifier: Apache-2.0
"""Winograd's filtering: groups of tiles, register tiles, weights fetched ahead."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.ops.schedules.compiled import check
from tests.targets import AVX512 as TARGET
from tests.targets import with_caches
from treadle.build.kernel import Kernel
from treadle.cost.winograd import Depth, WinogradShape
from treadle.graph.nodes import Function, Var
from treadle.graph.types import TensorType
from treadle.loop.nodes import For, Prefetch, sub_stmts, walk_stmts
from treadle.ops.example_numbers import uniform
from treadle.ops.lowered.conv_winograd import conv2d_winograd_nchwc
from treadle.ops.schedules.winograd import Plan, plan_winograd
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import Config, Knobs


def plan_of(pixels: int, channels: int) -> Plan:
    tiles = -(-pixels // 4)
    return plan_winograd(WinogradShape(4, tiles, tiles, channels, channels, 16), TARGET)


def test_weights_that_leave_the_first_cache_meet_many_rows_each_time() -> None:
    """Several equal passes over 16 tiles, so that all are fetched evenly."""
    plan = plan_of(14, 256)
    assert plan.by_panel
    assert (plan.rows * plan.columns) % plan.registers.rows == 0
    assert plan.registers.rows >= 8
    assert plan.registers.vectors > 1


def test_panels_are_dealt_out_evenly() -> None:
    for pixels, channels in ((14, 256), (28, 128), (14, 512)):
        plan = plan_of(pixels, channels)
        assert not plan.by_panel or (channels // 16) % (2 * plan.registers.vectors) == 0


@pytest.mark.parametrize(("pixels", "channels"), [(14, 64), (28, 32), (8, 32)])
def test_all_weights_of_a_tile_are_fetched_ahead(pixels: int, channels: int) -> None:
    plan = plan_of(pixels, channels)
    passes = -(-plan.rows * plan.columns // plan.registers.rows)
    padded = -(-pixels // 4) * 4 + 2
    blocks = channels // 16
    x = Var("x", TensorType((1, blocks, padded, padded, 16), "float32"))
    u = Var("u", TensorType((blocks, 6, 6, blocks, 16, 16), "float32"))
    call = conv2d_winograd_nchwc(x, u, tile=4, height=pixels, width=pixels)
    kernel = Kernel(Function((x, u), call, "winograd"), TARGET)
    primitives = ("prefetch_panel(", "prefetch(", "once=True")
    panels, steps_ahead, transformed = map(kernel.schedule.count, primitives)
    assert transformed == plan.by_panel  # by the other cores
    assert steps_ahead == (passes == 1)
    assert panels - transformed == (passes > 1)
    assert passes == 1 or lines_of(kernel, "u") * passes >= plan.registers.vectors


@pytest.mark.parametrize("pixels", [14, 28])
def test_where_few_lines_are_waited_for_steps_share_out_what_a_tile_reads(pixels: int) -> None:
    """Of V one line a step, of the weights what level 2 holds; the panels go no further than it."""
    few, many = (
        plain_kernel(pixels, 16, parse_target(f"{TARGET} -fill-buffers={n}")) for n in (12, 24)
    )
    assert ".prefetch(" not in many.schedule
    assert "level=" not in many.schedule
    assert few.schedule.count(".prefetch(") == 2
    assert few.schedule.count("level=2") == few.schedule.count("prefetch_panel(") == 1
    assert "prefetch(input_transform[" in few.loop_text()
    assert "prefetch(filter_transform[" in few.loop_text()


@pytest.mark.parametrize(("pixels", "channels", "apart"), [(56, 64, True), (14, 256, False)])
def test_plain_weights_are_transformed_once_or_by_panel(
    pixels: int, channels: int, apart: bool
) -> None:
    """Once where several groups of tiles share them; else where they are multiplied."""
    tiles, blocks = -(-pixels // 4), channels // 16
    shape = WinogradShape(4, tiles, tiles, channels, channels, 16, plain_weights=True)
    assert plan_winograd(shape, TARGET).apart == apart
    kernel = plain_kernel(pixels, blocks, TARGET)
    assert ("s[filter_transform].compute_root()" in kernel.schedule) == apart
    assert ("prefetch_panel(w" in kernel.schedule) != apart
    assert apart or lines_of(kernel, "w") == 1


def plain_kernel(pixels: int, blocks: int, target: Target, tile: int = 4) -> Kernel:
    """Return the kernel of a filtering that transforms its weights."""
    padded = -(-pixels // tile) * tile + 2
    x = Var("x", TensorType((1, blocks, padded, padded, 16), "float32"))
    w = Var("w", TensorType((blocks, blocks, 16, 3, 3, 16), "float32"))
    call = conv2d_winograd_nchwc(x, w, tile=tile, height=pixels, width=pixels, plain_weights=True)
    return Kernel(Function((x, w), call, "winograd"), target)


def lines_of(kernel: Kernel, name: str) -> int:
    """Return the lines of a buffer that one iteration of a loop fetches."""
    counts = [
        sum(isinstance(x, Prefetch) and x.buffer.name == name for x in sub_stmts(stmt.body))
        for stmt in walk_stmts(kernel.loops.body)
        if isinstance(stmt, For)
    ]
    assert len({n for n in counts if n}) == 1
    return max(counts)


def block_of(channels: int, pixels: int, tile: int, target: Target) -> int:
    """Return the blocks of channels that are summed at a time; 0 where the reduction is whole."""
    blocks = channels // 16
    text = plain_kernel(pixels, blocks, target, tile).loop_text()
    found = re.search(r"for ic\.outer in range\((\d+)\)", text)
    return blocks // int(found[1]) if found else 0


def test_channels_are_summed_in_blocks_whose_taps_stay_in_level_2() -> None:
    """All rows of points read a panel's taps: of 512 channels and 32 filters 590 KB."""
    larger = with_caches(TARGET, l2=2 << 20, l3=32 << 20)
    assert block_of(512, 7, 2, TARGET) == 16
    assert block_of(512, 7, 2, larger) == 0
    assert block_of(256, 7, 2, TARGET) == 0


@pytest.mark.parametrize("unused", [0, 3])
@pytest.mark.parametrize("by_panel", [False, True])
@pytest.mark.parametrize("block", [0, 1, 2])
def test_blocks_of_channels_add_up_to_the_same(block: int, by_panel: bool, unused: int) -> None:
    weights = uniform((2, 4, 4, 3, 3, 8), -2, 2).astype(np.float32)
    weights[:, -1, 4 - unused :] = 0
    check(
        "conv2d_winograd_nchwc", (1, 4, 10, 10, 4), (2, 4, 4, 3, 3, 8),
        tile=4, height=8, width=8, plain_weights=True, unused=unused, given={1: weights}, atol=1e-3,
        choice=Config.of({"group": [1, 2, by_panel, True, False], "reduction_block": block}),
    )  # fmt: skip


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("by_panel", [False, True])
@pytest.mark.parametrize("frames", [1, 2, 3, 6])
@pytest.mark.parametrize(("batch", "stride", "dilation"), [(1, 1, 1), (2, 1, 2), (2, 2, 1)])
def test_frames_of_a_group_meet_each_others_transforms(
    batch: int, stride: int, dilation: int, frames: int, by_panel: bool, block: int
) -> None:
    """However many frames of a volume a group has, each sums all taps of the depth."""
    deep = 5 * stride + 2 * dilation + 1
    check(
        "conv2d_winograd_nchwc", (batch, 2, deep, 10, 10, 4), (2, 6, 4, 3, 3, 8),
        tile=4, height=8, width=8, plain_weights=True, atol=1e-3,
        deep_stride=stride, deep_dilation=dilation,
        choice=Config.of({
            "group": [2, 2, by_panel, True, False], "frames": frames, "reduction_block": block
        }),
    )  # fmt: skip


def test_a_frame_is_transformed_once_for_all_that_meet_it() -> None:
    """8 of 64 x 64 outputs meet 10, and a group of fewer rows of tiles is cheaper with them."""
    shape = WinogradShape(4, 16, 16, 16, 16, 16, 32, depth=Depth(32, taps=3))
    plan = plan_winograd(shape, TARGET)
    assert plan.frames > 1
    assert shape.depth.frames % plan.frames == 0
    alone = plan_winograd(shape, TARGET, knobs=Knobs(Config.of({"frames": 1})))
    assert plan.cycles < 0.9 * alone.cycles
    assert plan_winograd(replace(shape, depth=Depth(32)), TARGET).frames == 1
