# SPDX-License-Identifier: Apache-2.0
"""Copies into row-major order keep every element, however they are cut into tiles."""

from __future__ import annotations

import mmap
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.processes import resident_bytes
from treadle.graph import arrays
from treadle.graph.arrays import LARGE, in_place, row_major
from treadle.runtime.array import is_ready


def test_row_major_arrays_are_not_copied() -> None:
    a = np.arange(6).reshape(2, 3)
    assert row_major(a) is a


@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5), (2, 3, 1, 11), (13,), (0, 4, 2)])
@pytest.mark.parametrize("tile", [1, 3, 16, 1000])
def test_tiles(shape: tuple[int, ...], tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "SMALL", 0)
    monkeypatch.setattr(arrays, "TILE", tile)
    a = np.arange(np.prod(shape)).reshape(shape)
    for view in (a.T, a[::-1], np.broadcast_to(a, (2, *shape))):
        copy = row_major(view)
        assert copy.flags.c_contiguous
        np.testing.assert_array_equal(copy, view)


def test_large_transposed_array() -> None:
    a = np.arange(600 * 700, dtype=np.float32).reshape(600, 700)
    np.testing.assert_array_equal(row_major(a.T), a.T)


@pytest.mark.parametrize("shape", [(3, 5), (300, 200)])
def test_large_arrays_lie_where_an_executor_reads_them(shape: tuple[int, int]) -> None:
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for view in (a, a.T):
        made = in_place(view)
        np.testing.assert_array_equal(made, view)
        assert is_ready(made) or made.nbytes < LARGE
        assert in_place(made) is made


def test_threads_copy_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "SMALL", 0)
    monkeypatch.setattr(arrays, "TILE", 64)
    monkeypatch.setattr(arrays, "PIECE", 128)
    monkeypatch.setattr(arrays, "_cores", lambda: 3)
    a = np.arange(37 * 29, dtype=np.float32).reshape(37, 29)
    np.testing.assert_array_equal(row_major(a.T), a.T)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at what Linux tells of mappings")
def test_what_is_copied_from_a_file_leaves_memory(tmp_path: Path) -> None:
    values = np.arange(3 << 20, dtype=np.float32)
    file = tmp_path / "weights"
    file.write_bytes(b"x" + values.tobytes())
    with file.open("rb") as stream:
        mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    given = np.frombuffer(mapped, np.float32, offset=1)
    np.testing.assert_array_equal(in_place(given), values)
    assert resident_bytes(str(file)) < values.nbytes // 4
    np.testing.assert_array_equal(given[:9], values[:9])


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1)])
def test_slices_leave_memory_once_they_are_copied(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one piece of the array's memory, so that the file and the copy are not both there."""
    monkeypatch.setattr(arrays, "SLICE", 1 << 18)
    released: list[np.ndarray] = []
    monkeypatch.setattr(arrays, "release_pages", released.append)
    whole = np.arange(64 * 128 * 96, dtype=np.float32).reshape(64, 128, 96)
    turned = whole.transpose(order)
    np.testing.assert_array_equal(row_major(turned), turned)
    spans = sorted(np.lib.array_utils.byte_bounds(part) for part in released)
    assert len(spans) > 2
    assert sum(high - low for low, high in spans) == whole.nbytes
    assert all(high <= low for (_, high), (low, _) in pairwise(spans))
