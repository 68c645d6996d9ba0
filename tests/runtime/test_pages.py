# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from treadle.runtime.pages import release_pages

BYTES = 8 << 20


@pytest.fixture
def file(tmp_path: Path, random: np.random.Generator) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(random.bytes(BYTES))
    return path


def resident_file_bytes() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "RssFile" in x)
    return int(line.split()[1]) << 10


def mapped(path: Path, access: int) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0, access=access)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_leave_memory_and_come_back(file: Path) -> None:
    view = memoryview(mapped(file, mmap.ACCESS_READ))[100:]
    array = np.frombuffer(view[: BYTES - 104], np.float32).reshape(2, -1)[::-1]
    before = array.copy()
    resident = resident_file_bytes()
    release_pages(array)
    assert resident_file_bytes() < resident - BYTES * 0.9
    assert before.tobytes() == array.tobytes()


def test_what_was_written_to_a_mapping_stays(file: Path) -> None:
    array = np.frombuffer(mapped(file, mmap.ACCESS_COPY), np.uint8)
    array[:] = 7
    array.flags.writeable = False
    release_pages(array)
    assert (array == 7).all()


def test_memory_that_is_no_file_is_left_alone(random: np.random.Generator) -> None:
    array = random.random(1 << 20)
    before = array.copy()
    release_pages(array)
    assert (array == before).all()
