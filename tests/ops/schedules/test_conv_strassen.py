# SPDX-License-Identifier: Apache-2.0
"""Schedules of 1x1 convolutions by Strassen's algorithm: sums in registers on every machine."""

from __future__ import annotations

from math import prod

import pytest

from tests.ops.schedules.compiled import check
from tests.ops.test_operators import call_of, function_of, inputs_of
from tests.targets import MACHINES
from treadle.build.kernel import Kernel
from treadle.graph.operator import OPERATORS, Example
from treadle.ops.lowered.conv_strassen import tiles_of
from treadle.optimize.layout import block_of
from treadle.optimize.methods.conv_strassen import PointwiseShape, plan_pointwise
from treadle.target.llvm import spill_count


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [14, 19])
def test_sums_stay_in_registers(size: int, machine: str) -> None:
    target = MACHINES[machine]
    block = block_of(target, "float32")
    plan = plan_pointwise(PointwiseShape(1, size, size, 512 // block, 512 // block, block), target)
    assert plan is not None
    tiles = prod(tiles_of(size, size, plan.rows, plan.band))
    values = (1, 7, tiles, 64 // block + 1, plan.rows, block)
    panels = (2, 7, 64, plan.blocks * block)
    how = {"filters": 4 * plan.blocks, "height": size, "width": size, "band": plan.band}
    example = Example((values, panels), how)
    op = OPERATORS.get("conv2d_strassen_nchwc")
    assert op is not None
    asm = Kernel(function_of(call_of(op, example, inputs_of(example))), target).asm()
    assert "prefetch" in asm or "prfm" in asm
    assert spill_count(asm) == 0


@pytest.mark.parametrize("filters", [1, 4, 7])
@pytest.mark.parametrize(("rows", "size", "band"), [(1, 1, 1), (3, 4, 4), (7, 7, 4), (4, 6, 2)])
def test_any_positions_and_channels(filters: int, rows: int, size: int, band: int) -> None:
    tiles = prod(tiles_of(size, size, rows, band))
    sums, panels = (1, 7, tiles, 4, rows, 8), (-(-filters // 4), 7, 24, 16)
    check(
        "conv2d_strassen_nchwc",
        sums,
        panels,
        filters=filters,
        height=size,
        width=size,
        band=band,
    )
