# SPDX-License-Identifier: Apache-2.0
"""The binding to the native library: hashes, features, finding and building the library."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import artifacts
from tests.runtime.artifacts import ROOT
from treadle.errors import ToolchainError, UsageError
from treadle.runtime import native, native_build
from treadle.runtime.array import address_of
from treadle.settings import use as change_settings

LENGTHS = (0, 1, 31, 32, 33, 55, 56, 63, 64, 65, 1000, 100_003)


@pytest.mark.parametrize("length", LENGTHS)
def test_sha256_agrees_with_python(random: np.random.Generator, length: int) -> None:
    data = random.bytes(length)
    view = np.frombuffer(data + b"!", np.uint8)
    assert native.sha256_at(address_of(view), length) == hashlib.sha256(data).hexdigest()
    assert native.sha256_at(data, length) == hashlib.sha256(data).hexdigest()


def reference_hash64(data: bytes) -> str:
    factor, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def mix(lane: int, word: int) -> int:
        x = (lane ^ word) * factor & mask
        return (x << 29 | x >> 35) & mask

    lanes = [factor * (i + 1) & mask for i in range(4)]
    padded = data + bytes(-len(data) % 32)
    for at in range(0, len(padded), 8):
        lane = at // 8 % 4
        lanes[lane] = mix(lanes[lane], int.from_bytes(padded[at : at + 8], "little"))
    result = len(data)
    for lane in lanes:
        result = mix(result, lane)
        result ^= result >> 32
    return f"{result:016x}"


@pytest.mark.parametrize("length", LENGTHS[:-1])
def test_hash64_agrees_with_its_definition(random: np.random.Generator, length: int) -> None:
    data = random.bytes(length)
    assert native.hash64(data) == reference_hash64(data)
    view = np.frombuffer(data + b"!", np.uint8)
    assert native.hash64_at(address_of(view), length) == native.hash64(data)


def test_hash64_sees_every_changed_byte_and_length(random: np.random.Generator) -> None:
    data = bytearray(random.bytes(100))
    seen = {native.hash64(bytes(data))}
    for position in range(100):
        data[position] ^= 1
        seen.add(native.hash64(bytes(data)))
        data[position] ^= 1
    seen |= {native.hash64(bytes(length)) for length in range(100)}
    assert len(seen) == 201


def test_hash64_of_pieces_is_that_of_the_whole(random: np.random.Generator) -> None:
    for length in (0, 1, 31, 32, 33, 5000):
        data = random.bytes(length)
        view = np.frombuffer(data + b"!", np.uint8)
        pieces = native.Hash64()
        start = 0
        while start < length:
            end = min(length, start + int(random.integers(1, 100)))
            pieces.add_at(address_of(view) + start, end - start)
            start = end
        assert pieces.hexdigest() == native.hash64(data)


def test_features_are_those_llvm_finds() -> None:
    binding = pytest.importorskip("llvmlite.binding")
    for name, present in binding.get_host_cpu_features().items():
        known = native.has_cpu_feature(name)
        assert known is None or known == present, name
    assert native.has_cpu_feature("warp-drive") is None
    assert all(native.has_cpu_feature(name) for name in native.cpu_features())


def test_the_versions_agree() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{native.version()}"' in text


def test_every_function_of_the_header_is_exported_and_bound() -> None:
    header = (ROOT / "native" / "include" / "treadle.h").read_text()
    names = set(re.findall(r"^TD_API .*?\b(td_\w+)\(", header, re.MULTILINE))
    library = native.library()
    for name in names:
        assert getattr(library, name) is not None
    only_for_c = {
        "td_now_ns",
        "td_open_linked",
        "td_open_static",
        "td_set_cpus",
        "td_open",
        "td_open_memory",
        "td_executor_find_input",
        "td_executor_find_output",
        "td_executor_output_data",
        "td_run",  # in Python by td_run_call, as the next
        "td_run_shaped",
    }
    assert names - only_for_c == set(native._FUNCTIONS)


def test_a_closed_library_says_so() -> None:
    library = native.Library(artifacts.kernel_code())
    library.close()
    library.close()
    with pytest.raises(UsageError, match="the library is closed"):
        library.kernel("add")


# ---- building ------------------------------------------------------------------------------------


def test_a_library_is_built_once_into_the_cache(tmp_path: Path) -> None:
    artifacts.compiler()
    sources = native_build.find_sources()
    with change_settings(cache=tmp_path / "cache"):
        first = native._build_on_demand(sources)
        made = first.stat().st_mtime_ns
        assert native._build_on_demand(sources) == first
    assert first.stat().st_mtime_ns == made
    assert sorted(p.name for p in first.parent.iterdir()) == ["libtreadle.so", "libtreadle.sources"]
    assert first.parent.stat().st_mode & 0o077 == 0


def test_changed_sources_make_another_library(tmp_path: Path) -> None:
    sources = native_build.find_sources()
    assert sources is not None
    for path in native_build.source_files(sources):
        copy = tmp_path / path.relative_to(sources)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    before = native_build.source_hash(tmp_path)
    assert before == native_build.source_hash(sources)
    (tmp_path / "src" / "error.c").write_text("/* changed */\n")
    assert native_build.source_hash(tmp_path) != before


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "native" / native_build.source_hash(native_build.find_sources())[:32]
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with (
        change_settings(cache=tmp_path),
        pytest.raises(ToolchainError, match="can be written by other users"),
    ):
        native._build_on_demand(native_build.find_sources())


def test_no_compiler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_build, "find_compilers", list)
    with change_settings(cache=tmp_path), pytest.raises(ToolchainError) as caught:
        native._build_on_demand(native_build.find_sources())
    assert "neither cc, gcc, clang nor zig" in caught.value.problem
    assert 'pip install "treadle[cross]"' in caught.value.hint


def test_no_sources(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="missing from this installation"):
        native._build_on_demand(None)


def test_a_failing_compiler_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "made" / native_build.LIBRARY
    failing = [sys.executable, "-c", "import sys; sys.exit('the disk is on fire')"]
    with pytest.raises(native_build.BuildFailed, match="the disk is on fire"):
        native_build.build(output, compilers=[failing, ["/nonexistent/cc"]])
    assert os.listdir(output.parent) == []


def test_the_next_compiler_is_tried(tmp_path: Path) -> None:
    output = tmp_path / native_build.LIBRARY
    native_build.build(output, compilers=[["/nonexistent/cc"], artifacts.compiler()])
    assert native_build.is_current(output, native_build.find_sources())


def test_the_build_script_needs_no_package(tmp_path: Path) -> None:
    """The package build runs it before any dependency is installed (-S -I: no site-packages)."""
    artifacts.compiler()
    output = tmp_path / "out" / native_build.LIBRARY
    script = ROOT / "scripts" / "build_native.py"
    command = [sys.executable, "-S", "-I", str(script), "--output", str(output)]
    for answer in ("built", "up to date"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.startswith(answer)
    assert native_build.is_current(output, native_build.find_sources())


def test_memory_that_is_given_up_serves_the_next_block() -> None:
    spares = native.Spares(100_000)
    first, second = spares.block(), spares.block()
    assert first.pointer != second.pointer
    kept, places = np.asarray(first), {first.pointer, second.pointer}
    del second
    third = spares.block()
    assert third.pointer in places - {first.pointer}
    kept[:] = 7
    del first, third  # the array keeps its memory
    assert spares.block().pointer != kept.ctypes.data
    assert (kept == 7).all()
    del spares
    assert (kept == 7).all()
