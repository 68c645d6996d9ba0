# SPDX-License-Identifier: Apache-2.0
"""Weights of artifacts: mapped once per process, checked as promised, read where they must be."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.native import models
from tests.processes import resident_bytes
from tests.runtime import artifacts
from tests.runtime.artifacts import tar_bytes, write_artifact
from treadle.errors import ArtifactError
from treadle.runtime import native
from treadle.runtime.artifact_file import ArtifactFile
from treadle.runtime.executor import Executor
from treadle.runtime.native_executor import ExecutorHandle

WEIGHT_BYTES = 2 * 4 * models.LARGE

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def mappings(path: Path) -> list[str]:
    """Return the lines of this process's memory map that name a file."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]


@on_linux
def test_all_loads_of_a_file_share_one_mapping(tmp_path: Path) -> None:
    path = models.large_artifact(tmp_path / "model.tar")
    loaded = [Executor.open(path) for _ in range(4)]
    loaded.append(loaded[0].fork())
    assert len(mappings(path)) == 1
    assert " r--p " in mappings(path)[0]
    for executor in loaded:
        models.check_large(executor)
        executor.close()
    assert not mappings(path)


def has_populate() -> bool:
    """Tell whether this is a Linux of 5.14 or later."""
    if sys.platform != "linux":
        return False
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor)) >= (5, 14)


@pytest.mark.skipif(not has_populate(), reason="needs Linux 5.14")
def test_loading_maps_the_pages_of_weights(tmp_path: Path) -> None:
    """Hints to fetch ahead, of which a first run is full, map none."""
    unused = 17 << 20  # with so many, no hash reads all
    path = models.large_artifact(tmp_path / "model.tar", unused=unused)
    with Executor.open(path):
        assert resident_bytes(path.name) >= 4 * unused


@on_linux
def test_private_memory_holds_no_weights(tmp_path: Path) -> None:
    path = models.large_artifact(tmp_path / "model.tar")

    def private_bytes() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("RssAnon:")[1].split()[0])

    Executor.open(path).close()
    before = private_bytes()
    loaded = [Executor.open(path) for _ in range(4)]
    assert private_bytes() - before < WEIGHT_BYTES / 2
    models.check_large(loaded[-1])


@on_linux
def test_unaligned_weights_are_read(tmp_path: Path) -> None:
    path = models.large_artifact(tmp_path / "model.tar", is_aligned=False)
    with Executor.open(path) as executor:
        models.check_large(executor)
        assert not mappings(path)


@on_linux
def test_weights_aligned_in_part_are_copied_in_part(tmp_path: Path) -> None:
    constants = models.large_constants()
    params = artifacts.params_bytes({"fill": np.zeros(8, np.float32), **constants})
    first, second = (params.index(constants[name].tobytes()) for name in ("p0", "p1"))
    assert first % native.ALIGNMENT == 0
    assert second % native.ALIGNMENT != 0
    made = artifacts.members(models.large_plan(), params=params)
    path = write_artifact(tmp_path / "model.tar", {"mod.params": params, **made})
    with Executor.open(path) as executor:
        assert len(mappings(path)) == 1
        models.check_large(executor)


def test_a_file_replaced_by_renaming_stays_as_it_was_loaded(tmp_path: Path) -> None:
    path = models.large_artifact(tmp_path / "model.tar")
    executor = Executor.open(path)
    other = tmp_path / "other.tar"
    other.write_bytes(b"something else")
    other.replace(path)
    models.check_large(executor)
    with pytest.raises(ArtifactError):
        Executor.open(path)


def damaged(at: int) -> bytes:
    """A large artifact with one byte of its weights changed, `at` bytes before their end."""
    members = models.large_members()
    params = bytearray(members["mod.params"])
    params[-at] ^= 1
    return tar_bytes({**members, "mod.params": bytes(params)})


@pytest.mark.parametrize("at", [1, 4 * models.LARGE, 4 * models.LARGE + 200])
def test_damaged_weights_are_refused(tmp_path: Path, at: int) -> None:
    path = tmp_path / "model.tar"
    path.write_bytes(damaged(at))
    with pytest.raises(ArtifactError, match=r"do not match their hash|are damaged"):
        Executor.open(path)


def test_a_file_rewritten_in_place_is_checked_again(tmp_path: Path) -> None:
    path = models.large_artifact(tmp_path / "model.tar")
    Executor.open(path).close()
    path.write_bytes(damaged(1))
    with pytest.raises(ArtifactError, match="do not match their hash"):
        Executor.open(path)


@pytest.mark.slow
def test_very_large_weights_are_compared_on_demand(tmp_path: Path) -> None:
    """Above 64 MiB loading checks lengths and types; `verify` compares the content too."""
    constants = {**models.large_constants(), "unused": np.zeros(17 << 20, np.float32)}
    params = bytearray(models.aligned_params(constants))
    hashes = {"mod.params": native.hash64(bytes(params))}
    params[-1] ^= 1
    made = artifacts.members(models.large_plan(), params=bytes(params), checksums=hashes)
    path = write_artifact(tmp_path / "model.tar", made)
    models.check_large(Executor.open(path))
    with pytest.raises(ArtifactError, match="do not match their hash"):
        Executor.open(path, verify=True)


def test_an_artifact_is_opened_from_memory() -> None:
    """td_open_memory, as a C program calls it."""
    data = tar_bytes(models.large_members())
    library = native.library()
    opened, error = ctypes.c_void_p(), native.Error()
    call = library.td_open_memory
    call.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p]
    call.argtypes += [ctypes.c_void_p]
    assert call(data, len(data), 0, ctypes.byref(opened), ctypes.byref(error)) == 0, error.text
    assert opened.value
    del data
    models.check_large(Executor(ExecutorHandle(opened.value)))
    assert call(b"junk", 4, 0, ctypes.byref(opened), ctypes.byref(error)) != 0
    assert b"not a tar archive" in error.text
    assert call(b"junk", 4, 8, ctypes.byref(opened), ctypes.byref(error)) == 1
    assert b"flags are 0 or TD_VERIFY, not 8" in error.text


def test_every_weight_is_written_aligned(random: np.random.Generator) -> None:
    shapes = [(3,), (2, 5), (1, 3, 7), (64,), (5, 5, 5, 5)]
    constants = {f"p{i}": random.standard_normal(s, np.float32) for i, s in enumerate(shapes)}
    params = models.aligned_params({"flag": np.array(True), **constants})
    for value in constants.values():
        assert params.index(value.tobytes()) % native.ALIGNMENT == 0  # the member begins so, too


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = models.large_artifact(tmp_path / "model.tar")
    before = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0
    for _ in range(5):
        file = ArtifactFile(path)
        Executor.open(file).close()
        file.close()
        Executor.open(path).close()
    assert not before or len(os.listdir("/dev/fd")) <= before + 1
