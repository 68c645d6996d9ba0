# SPDX-License-Identifier: Apache-2.0
"""Moves and element-wise stages: turned tiles, fused short axes, odd ends, other types."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import MACHINES, SSE

TARGETS = {**MACHINES, "sse": SSE}


@pytest.mark.parametrize("shape", [(1, 1), (5, 19), (33, 18), (3, 70)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16"])
def test_transposed_matrices(shape: tuple[int, int], dtype: str) -> None:
    check("transpose", shape, dtype=dtype, perm=(1, 0))


@pytest.mark.parametrize(
    "permutation", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3), (1, 0, 3, 2)]
)
def test_transposed_images(permutation: tuple[int, ...]) -> None:
    check("transpose", (2, 18, 5, 20), perm=permutation)


@pytest.mark.parametrize("machine", TARGETS)
def test_a_turned_matrix_is_read_and_written_by_vectors(machine: str) -> None:
    check("transpose", (64, 48), perm=(1, 0))
    kernel = kernel_of(TARGETS[machine], "transpose", (64, 48), perm=(1, 0))
    assert "masked.gather" not in kernel.source()
    assert "masked.scatter" not in kernel.source()


@pytest.mark.parametrize(
    "image", [(7, 7), (14, 14), (5, 3), (1, 40), (32, 32), (12, 20), (3, 4, 9)]
)
def test_layouts_change_whatever_the_image(image: tuple[int, ...]) -> None:
    check("unpack_nchwc", (2, 3, *image, 16), channels=48)
    check("unpack_nchwc", (1, 2, *image, 8), channels=13)
    check("pack_nchwc", (2, 48, *image), block=16)
    check("pack_nchwc", (1, 13, *image), block=8)


@pytest.mark.parametrize("machine", TARGETS)
def test_rows_of_an_image_are_turned_as_one(machine: str) -> None:
    unpack = kernel_of(TARGETS[machine], "unpack_nchwc", (1, 64, 14, 14, 16), channels=1024)
    assert "fuse(i2, i3)" in unpack.schedule
    pack = kernel_of(TARGETS[machine], "pack_nchwc", (1, 1024, 14, 14), block=16)
    assert "fuse(i2, i3)" in pack.schedule


@pytest.mark.parametrize("image", [(56, 56), (28, 28), (12, 20)])
@pytest.mark.parametrize("machine", TARGETS)
def test_tiles_across_the_rows_of_an_image_are_read_by_vectors(
    machine: str, image: tuple[int, int]
) -> None:
    """Where in the image a place of such a tile lies, a quotient and a remainder say."""
    kernel = kernel_of(TARGETS[machine], "pack_nchwc", (1, 64, *image), block=16)
    assert "masked.gather" not in kernel.source()


@pytest.mark.parametrize("machine", TARGETS)
def test_each_core_turns_a_band_where_there_are_few_channels(machine: str) -> None:
    target = replace(TARGETS[machine], cores=4)
    kernel = kernel_of(target, "unpack_nchwc", (1, 1, 64, 64, 16), channels=16)
    tasks = int(re.findall(r"for task in parallel\((\d+)\)", kernel.loop_text())[0])
    assert tasks >= 2 * 4


@pytest.mark.parametrize("machine", TARGETS)
def test_spliced_channels_are_read_by_vectors(machine: str) -> None:
    runs = np.array([[[2, 10], [9 * 5 * 16 - 10, 16]]] * 4, np.int32)
    shapes = (1, 2, 9, 5, 16), runs.shape
    check("splice_nchwc", *shapes, given={1: runs})
    kernel = kernel_of(TARGETS[machine], "splice_nchwc", *shapes, given={1: runs})
    assert "masked.gather" not in kernel.source()


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("other", [(1, 4, 32, 18, 16), (1, 4, 1, 1, 16), (1, 1, 32, 1, 1)])
def test_images_in_blocks_are_shared_out_by_rows(other: tuple[int, ...], machine: str) -> None:
    target = TARGETS[machine]
    check("add", (1, 4, 32, 18, 16), other)
    kernel = kernel_of(target, "add", (1, 4, 32, 18, 16), other)
    assert "split(i2, factor=16)" in kernel.schedule
    few_positions = kernel_of(target, "add", (1, 40, 6, 6, 16), (1, 40, 6, 6, 16))
    assert "split(i2" not in few_positions.schedule


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("shape", [(8, 6, 7, 7), (3, 1, 5, 3), (2, 4, 1, 1)])
def test_channels_against_short_rows(shape: tuple[int, ...], machine: str) -> None:
    check("add", shape, (shape[1], 1, 1))
    kernel = kernel_of(TARGETS[machine], "add", shape, (shape[1], 1, 1))
    assert "masked.gather" not in kernel.source()


@pytest.mark.parametrize("last", [1, 3, 9, 17])
def test_rows_that_fill_no_vector(last: int) -> None:
    check("multiply", (50, last), (last,))
    check("multiply", (50, last), (50, 1))


def test_scalars() -> None:
    check("relu", ())
    check("add", (), (1,))
