# SPDX-License-Identifier: Apache-2.0
"""Pooling schedules: odd sizes in both layouts, and no guard where windows are inside."""

from __future__ import annotations

import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import MACHINES

PADS = {"pads_before": (1, 1), "pads_after": (1, 1)}


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (17, 33)])
def test_rows_of_any_width(name: str, strides: tuple[int, int], size: tuple[int, int]) -> None:
    check(name, (2, 3, *size), kernel=(3, 3), strides=strides, **PADS)


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("block", [4, 8, 16])
@pytest.mark.parametrize("size", [(1, 1), (7, 7), (9, 14)])
def test_blocks_of_channels(name: str, block: int, size: tuple[int, int]) -> None:
    check(name, (1, 2, *size, block), kernel=(3, 3), strides=(2, 2), layout="NCc", **PADS)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int32"])
def test_other_types(dtype: str) -> None:
    check("max_pool", (1, 3, 9, 21), dtype=dtype, kernel=(3, 2), strides=(2, 1), **PADS)


def test_windows_of_one_and_three_axes() -> None:
    check("max_pool", (2, 3, 40), kernel=(5,), pads_before=(2,), pads_after=(2,))
    check("avg_pool", (1, 2, 5, 6, 18), kernel=(2, 3, 3), strides=(1, 2, 1))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_large_window_keeps_a_loop(machine: str) -> None:
    check("avg_pool", (1, 20, 9, 9), kernel=(9, 9))
    kernel = kernel_of(MACHINES[machine], "avg_pool", (1, 20, 9, 9), kernel=(9, 9))
    assert kernel.source().count("\n") < 1000


@pytest.mark.parametrize("machine", MACHINES)
def test_windows_inside_have_no_guard(machine: str) -> None:
    check("max_pool", (1, 64, 56, 56), kernel=(3, 3), **PADS)
    target = MACHINES[machine]
    kernel = kernel_of(target, "max_pool", (1, 64, 56, 56), kernel=(3, 3), **PADS)
    _, inside = kernel.loop_text().split("for oh in range(54)")
    whole = (
        56 - 1
    ) // target.lanes() - 1  # all but the first, which meets the border, and the last
    strips = inside.split(f"for ow.outer in range({whole})")[1]
    assert "if_then_else" not in strips.split("for ow.inner in")[0]
    assert kernel.source().count("\n") < 2500


@pytest.mark.parametrize("machine", MACHINES)
def test_few_channels_spread_their_rows(machine: str) -> None:
    how = {"kernel": (3, 3), "layout": "NCc", **PADS}
    check("max_pool", (1, 1, 40, 40, 16), **how)
    kernel = kernel_of(MACHINES[machine], "max_pool", (1, 1, 40, 40, 16), **how)
    assert "in parallel(40)" in kernel.loop_text()
