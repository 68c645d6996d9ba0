# SPDX-License-Identifier: Apache-2.0
"""Plain convolutions: tiles with remainders, groups, any number of axes, transposed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.optimize.cases import constant, var
from tests.targets import MACHINES
from treadle.build.compile import compile_model
from treadle.graph.interpret import evaluate
from treadle.graph.nodes import Function, Module
from treadle.graph.text import call_text
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.schedules.plain_conv import conv_tile
from treadle.target.base import Target
from treadle.te.knobs import Knobs

PADS = {"pads_before": (1, 1), "pads_after": (1, 1)}


@pytest.mark.parametrize("width", [1, 14, 33])
@pytest.mark.parametrize("filters", [1, 7, 12])
def test_any_width_and_filters(width: int, filters: int) -> None:
    check("conv", (1, 3, 6, width), (filters, 3, 3, 3), atol=1e-4, **PADS)


@pytest.mark.parametrize("groups", [2, 3, 6])
def test_groups(groups: int) -> None:
    check("conv", (2, 6, 7, 20), (12, 6 // groups, 3, 3), atol=1e-4, groups=groups, **PADS)


@pytest.mark.parametrize("strides", [(1, 2), (2, 2), (3, 1)])
def test_strides_and_dilations(strides: tuple[int, int]) -> None:
    check("conv", (1, 4, 19, 37), (5, 4, 3, 3), atol=1e-4, strides=strides)
    check("conv", (1, 4, 19, 37), (5, 4, 3, 2), atol=1e-4, dilations=(2, 3))


@pytest.mark.parametrize("columns", [16, 100, 1000])
@pytest.mark.parametrize("groups", [1, 3])
def test_rows_in_bands(columns: int, groups: int) -> None:
    check("conv", (2, 6, columns), (9, 6 // groups, 3), atol=1e-4, groups=groups)
    check("conv_transpose", (2, 6, columns), (6, 3, 3), atol=1e-4, groups=groups)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_a_cache_does_not_hold_is_read_once(machine: str) -> None:
    target = replace(MACHINES[machine], cores=1)
    assert band_of(target, 256, target.l2_bytes // 256 // 192 * 192) < 1.0
    assert band_of(target, 4, 480) == 1.0


@pytest.mark.parametrize("machine", MACHINES)
def test_few_filters_leave_work_for_every_core(machine: str) -> None:
    target = replace(MACHINES[machine], cores=4)
    assert band_of(target, 8, 960, filters=2) < 1.0


def band_of(target: Target, channels: int, columns: int, filters: int = 64) -> float:
    """Return the share of a row that a convolution finishes for all filters before the rest."""
    kernel = kernel_of(target, "conv", (1, channels, columns), (filters, channels, 1))
    (band,) = (k for k in kernel.knobs if k.name == "band")
    value, whole = band.value, band.candidates[0]
    assert isinstance(value, int)
    assert isinstance(whole, int)
    return value / whole


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("channels", "window", "is_fetched"),
    [(256, 1, True), (96, 3, True), (2048, 1, False), (254, 1, False), (8, 1, False)],
)
def test_short_rows_of_the_next_filters_are_fetched(
    channels: int, window: int, is_fetched: bool, machine: str
) -> None:
    """Rows of a page and more, parts of lines and weights that stay in level 1 are not."""
    target = MACHINES[machine]
    kernel = kernel_of(target, "conv", (1, channels, 64), (512, channels, window))
    assert ("prefetch(" in kernel.loop_text()) is is_fetched


@pytest.mark.parametrize(("filters", "columns"), [(512, 64), (78, 49), (130, 200)])
def test_results_with_fetched_filters(filters: int, columns: int) -> None:
    check("conv", (1, 256, columns), (filters, 256, 1), atol=1e-4)
    check("conv", (2, 96, columns), (filters, 48, 3), atol=1e-4, groups=2)


def test_one_and_three_axes() -> None:
    check("conv", (2, 5, 41), (9, 5, 5), atol=1e-4, pads_before=(2,), pads_after=(2,))
    check("conv", (1, 3, 4, 5, 17), (6, 3, 2, 3, 3), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_types(dtype: str) -> None:
    check("conv", (1, 3, 5, 18), (4, 3, 3, 3), dtype=dtype, **PADS)


@pytest.mark.parametrize("width", [1, 15])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed(width: int, stride: int) -> None:
    check("conv_transpose", (1, 6, 3, width), (6, 5, 4, 4), atol=1e-4, strides=(stride, stride))


def test_transposed_groups_and_axes() -> None:
    check("conv_transpose", (1, 6, 5, 9), (6, 2, 2, 2), atol=1e-4, groups=3, strides=(2, 2))
    check("conv_transpose", (2, 4, 21), (4, 3, 3), atol=1e-4, strides=(2,))


@pytest.mark.parametrize(("filters", "rows", "last"), [(64, 28, 28), (5, 1, 1000), (1, 7, 7)])
@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_fit_the_registers(filters: int, rows: int, last: int, machine: str) -> None:
    target = MACHINES[machine]
    lanes = target.lanes(32)
    tile = conv_tile((filters, rows, last), filters, 0, lanes, target, Knobs())
    columns = tile.height * tile.vectors
    assert tile.filters * columns + columns + 1 <= target.vector_registers


@pytest.mark.parametrize("machine", MACHINES)
def test_filters_of_a_tile_do_not_evict_each_other(machine: str) -> None:
    target = MACHINES[machine]
    page = target.machine.page_bytes
    tile = conv_tile((64, 1, 3136), 64, page, target.lanes(), target, Knobs())
    assert tile.filters <= 2 * (target.l1_bytes // page) // 3


def test_filters_of_two_groups_are_never_in_one_tile() -> None:
    for target in MACHINES.values():
        tile = conv_tile((30, 28, 28), 10, 0, target.lanes(), target, Knobs())
        assert 10 % tile.filters == 0


def test_a_tail_of_several_operators_is_computed_on_the_tile() -> None:
    x, bias = var("x", 1, 4, 9, 21), constant(6, 1, 1)
    sums = conv(x, constant(6, 4, 3, 3), **PADS)
    made = ew.relu(ew.add(sums, bias))
    result = ew.multiply(made, ew.sigmoid(made))
    exe = compile_model(Module(Function((x,), result, "main")), methods={call_text(sums): "plain"})
    (kernel,) = exe.kernels
    text = kernel.loop_text()
    assert "float32[1, 6, 9, 21]" not in text.split("\n", 1)[1]  # the sums, of all the image
    value = np.random.default_rng(0).standard_normal((1, 4, 9, 21)).astype(np.float32)
    expected = evaluate(Function((x,), result, "main"), [value])
    np.testing.assert_allclose(np.asarray(exe(value)[0]), np.asarray(expected), atol=1e-4)
