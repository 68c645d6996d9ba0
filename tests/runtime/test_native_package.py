# SPDX-License-Identifier: Apache-2.0
"""The runtime for a machine: which compiler builds it, and what is made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from tests.runtime import artifacts
from treadle.errors import ToolchainError, UsageError
from treadle.runtime import native, native_package, toolchain
from treadle.runtime.native_package import (
    Toolchain,
    build_package,
    find_toolchain,
    parse_machine,
)


@pytest.mark.tiny
def test_machines_are_triples_with_a_version_of_glibc() -> None:
    assert parse_machine("aarch64-linux-gnu") == ("aarch64-linux-gnu", "")
    assert parse_machine("aarch64-linux-gnu.2.17") == ("aarch64-linux-gnu", "2.17")
    assert parse_machine("x86_64-unknown-linux-gnu.2.31") == ("x86_64-unknown-linux-gnu", "2.31")
    for wrong in (
        "",
        "aarch64",
        "aarch64-windows-msvc",
        "aarch64-linux-gnu.2",
        "-linux-",
        "a b-linux",
    ):
        with pytest.raises(UsageError, match="no machine the runtime is built for"):
            parse_machine(wrong)


def test_the_compiler_is_the_named_one_then_gcc_then_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_package, "zig_command", lambda: ["zig"])
    found = toolchain.Tool("gcc", ("true",), "driver")
    monkeypatch.setattr(native_package, "find_compiler", lambda _: found)
    assert find_toolchain("aarch64-linux-gnu").compiler == ("true",)
    versioned = find_toolchain("aarch64-unknown-linux-gnu.2.17")
    assert versioned.compiler == ("zig", "cc", "-target", "aarch64-linux-gnu.2.17")
    assert versioned.archiver == ("zig", "ar")
    assert find_toolchain("riscv64-linux-gnu", ["true", "-O1"]).compiler == ("true", "-O1")
    with pytest.raises(UsageError, match="zig takes any version"):
        find_toolchain("aarch64-linux-gnu.2.17", ["true"])
    monkeypatch.setattr(native_package, "find_compiler", lambda _: None)
    assert find_toolchain("armv7-linux-gnueabihf").compiler[2:] == (
        "-target",
        "armv7-linux-gnueabihf",
    )
    monkeypatch.setattr(native_package, "zig_command", lambda: None)
    with pytest.raises(ToolchainError, match=r"no C compiler is found for glibc 2\.17 of aarch64"):
        find_toolchain("aarch64-linux-gnu.2.17")
    with pytest.raises(ToolchainError, match="no C compiler is found for riscv64-linux-gnu"):
        find_toolchain("riscv64-linux-gnu")


def test_a_compiler_that_fails_leaves_no_file(tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text(
        "#!/bin/sh\ncase $1 in -print*) echo ar;; *) echo no board >&2; exit 1;; esac\n"
    )
    script.chmod(0o755)
    with pytest.raises(ToolchainError, match="no board"):
        build_package(tmp_path / "out", find_toolchain(None, [str(script)]))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_the_libraries_are_small_and_need_nothing_else(tmp_path: Path) -> None:
    artifacts.compiler()
    shared, static, header, server = build_package(tmp_path, find_toolchain(None), with_server=True)
    assert header.name == "treadle.h"
    for path in (shared, static, server):
        assert path.stat().st_size < 1_000_000
    assert b"libpython" not in shared.read_bytes()
    if shutil.which("readelf"):
        own = ("libc.", "ld-", "libdl.", "libm.", "libpthread.")
        for path in (shared, server):
            command = ["readelf", "--dynamic", str(path)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=PATIENCE
            )
            lines = [line for line in done.stdout.splitlines() if "NEEDED" in line]
            assert all(line.split("[")[1].startswith(own) for line in lines)


@pytest.mark.slow
def test_cmake_and_one_command_build_it(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    root = artifacts.ROOT
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", root / "native", "-B", build, "-DCMAKE_BUILD_TYPE=Release"],
                   check=True, capture_output=True, timeout=120)  # fmt: skip
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True, timeout=300)
    subprocess.run(["cmake", "--install", build, "--prefix", tmp_path / "usr"], check=True,
                   capture_output=True, timeout=PATIENCE)  # fmt: skip
    installed = {p.name for p in (tmp_path / "usr").rglob("*") if p.is_file()}
    assert installed == {"libtreadle.a", "libtreadle.so", "treadle.h", "treadle-rpc-server"}
    text = (root / "docs" / "how-to" / "deploy_c.md").read_text(encoding="utf-8")
    line = text.split("   cc -std=c11 -O2 -fPIC", 1)[1].split("```", 1)[0]
    command = "cc -std=c11 -O2 -fPIC" + line.replace("-o libtreadle.so", f"-o {tmp_path}/one.so")
    subprocess.run(command, cwd=root, shell=True, check=True, timeout=120)
    assert (tmp_path / "one.so").stat().st_size < 1_000_000
    text = (root / "docs" / "how-to" / "rpc.md").read_text(encoding="utf-8")
    line = text.split("cc -std=c11", 1)[1].split("```", 1)[0]
    command = "cc -std=c11" + line.replace("-o treadle", f"-o {tmp_path}/treadle")
    subprocess.run(command, cwd=root, shell=True, check=True, timeout=240)
    server = [str(tmp_path / "treadle-rpc-server"), "--version"]
    done = subprocess.run(server, check=True, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == f"treadle-rpc-server {native.version()}\n"


def test_a_package_for_a_board_says_what_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[Path, tuple[str, ...]]] = []

    def build(folder: Path, tools: Toolchain, *, with_server: bool) -> None:
        assert with_server
        folder.mkdir()
        built.append((folder, tools.compiler))

    monkeypatch.setattr(native_package, "build_package", build)
    monkeypatch.setattr(native_package, "zig_command", lambda: ["zig"])
    made = native_package.build_for_board(tmp_path, "aarch64-linux-gnu.2.17")
    assert made == tmp_path / "aarch64-linux-gnu"
    assert built == [(made, ("zig", "cc", "-target", "aarch64-linux-gnu.2.17"))]
    assert (made / native_package.SOURCES).read_text() == native_package.package_hash() + "\n"
    with pytest.raises(UsageError, match="no machine the runtime is built for"):
        native_package.build_for_board(tmp_path, "../x")


@pytest.mark.parametrize("libc", ["musl", "android30"])
def test_compilers_of_another_c_library_are_not_taken(
    libc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program for glibc does not start there, on the same machine either."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(native_package, "zig_command", lambda: None)
    for name in ("cc", "x86_64-linux-gnu-gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ToolchainError, match=f"no C compiler is found for x86_64-linux-{libc}"):
        find_toolchain(f"x86_64-linux-{libc}")
    own = tmp_path / f"x86_64-linux-{libc}-clang"
    own.write_text("#!/bin/sh\necho ar\n")
    own.chmod(0o755)
    assert find_toolchain(f"x86_64-linux-{libc}").compiler == (own.name,)
