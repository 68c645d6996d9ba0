# SPDX-License-Identifier: Apache-2.0
"""Row schedules: one loop over rows holds every stage; odd lengths and other types agree."""

from __future__ import annotations

import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import MACHINES

LENGTHS = [1, 5, 16, 31, 100, 129, 197, 1000]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_any_length(name: str, length: int) -> None:
    check(name, (5, length), axis=1)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["mean", "max"])
def test_reductions_of_any_length(name: str, length: int) -> None:
    check(name, (3, length), axes=(1,), rtol=1e-4)


@pytest.mark.parametrize("length", [3, 49, 200])
def test_layer_norm_of_any_length(length: int) -> None:
    check("layer_norm", (4, length), (length,), (length,), axis=1, atol=1e-4)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("shape", [(3, 9, 5, 1), (30, 1, 40, 1), (1, 9, 1, 20), (2, 3, 1, 1)])
def test_axes_of_one_element_inside_of_rows_are_no_rows(shape: tuple[int, ...], axis: int) -> None:
    check("layer_norm", shape, shape[axis:], shape[axis:], axis=axis, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "int8", "int32", "uint8"])
def test_sums_of_other_types(dtype: str) -> None:
    check("max", (3, 4, 77), dtype=dtype, axes=(2,))
    check("max", (3, 4, 7, 7), dtype=dtype, axes=(2, 3), keepdims=True)


@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (1, 2, 13, 1), (1, 2, 1, 60), (2, 1, 30, 31)])
def test_axes_that_lie_together_are_one_run(shape: tuple[int, ...]) -> None:
    check("mean", shape, axes=(2, 3), keepdims=True)
    check("sum", shape, axes=(1, 2, 3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_of_a_row_is_in_one_loop(machine: str) -> None:
    text = kernel_of(MACHINES[machine], "softmax", (64, 300), axis=1).loop_text()
    assert text.count("parallel(") == 1
    assert "alloc(workspace)" not in text
    assert text.count(" exp(") <= 2  # whole vectors and the rest of a row


@pytest.mark.parametrize("machine", MACHINES)
def test_columns_are_not_taken_for_rows(machine: str) -> None:
    check("sum", (40, 200), axes=(0,), rtol=1e-4, atol=1e-4)
    target = MACHINES[machine]
    text = kernel_of(target, "sum", (40, 200), axes=(0,)).loop_text()
    assert f"vectorized({target.lanes()})" in text


@pytest.mark.parametrize("shape", [(1, 21, 8, 40), (2, 3, 5, 7), (30, 2)])
def test_softmax_along_a_leading_axis(shape: tuple[int, ...]) -> None:
    check("softmax", shape, axis=len(shape) - 1 if len(shape) == 2 else 1)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_long_sum_reads_memory_in_order(machine: str) -> None:
    check("sum", (600, 600), axes=(0, 1), rtol=1e-4)
    text = kernel_of(MACHINES[machine], "sum", (600, 600), axes=(0, 1)).loop_text()
    turn = text.split("for r in range")[1]
    assert "vectorized" in turn.split("for i1")[2]


def test_argmax_of_rows_and_columns() -> None:
    check("argmax", (9, 333), axis=1)
    check("argmax", (2, 9, 50), axis=1)
    check("argmin", (7,), axis=0)
