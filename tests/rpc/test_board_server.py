# SPDX-License-Identifier: Apache-2.0
"""The server for a board: found, built once, refused where it does not fit."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.rpc.services import server_in_c
from treadle.errors import ToolchainError, UsageError
from treadle.rpc import board_server
from treadle.rpc.board_server import find_package
from treadle.rpc.probe import BoardFacts
from treadle.runtime.native_package import SERVER, SOURCES, Toolchain, package_hash
from treadle.settings import use

MACHINE = platform.machine()
HERE = BoardFacts(MACHINE, "gnu", "2.99", "")


def program(machine: int, glibc: str = "") -> bytes:
    head = b"\x7fELF\x02\x01" + bytes(12) + machine.to_bytes(2, "little")
    return head + (b"\0GLIBC_2.17\0GLIBC_" + glibc.encode() if glibc else b"")


def named(folder: Path, content: bytes, facts: BoardFacts) -> str:
    """Return why a server that is named does not fit."""
    (folder / SERVER).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        find_package(facts, folder=folder)
    assert "treadle runtime build --target" in caught.value.hint
    return caught.value.problem


def test_a_server_that_is_named_must_fit(tmp_path: Path) -> None:
    arm, musl = BoardFacts("aarch64", "gnu", "2.31", ""), BoardFacts("aarch64", "musl", "", "")
    for facts, content in ((arm, program(183, "2.31")), (musl, program(183))):
        (tmp_path / SERVER).write_bytes(content)
        assert find_package(facts, folder=tmp_path).origin == f"from {tmp_path}"
    assert "needs glibc 2.34, the board has 2.31" in named(tmp_path, program(183, "2.34"), arm)
    assert "another machine than aarch64" in named(tmp_path, program(62), arm)
    assert "no program of 64 bits" in named(tmp_path, b"#!/bin/sh", arm)
    assert "needs glibc, not musl" in named(tmp_path, program(183, "2.17"), musl)
    with pytest.raises(UsageError, match="holds no treadle-rpc-server"):
        find_package(arm, folder=tmp_path / "none")


def copied(built: list[str]):  # type: ignore[no-untyped-def]
    """Return a build that takes no time, and notes its compilers."""

    def build(folder: Path, toolchain: Toolchain, *, with_server: bool) -> list[Path]:
        built.append(toolchain.compiler[-1])
        folder.mkdir(parents=True)
        needs = "2.36" if toolchain.compiler[-1] == "gcc" else "2.31"
        (folder / SERVER).write_bytes(program(183, needs))
        return []

    return build


def test_the_first_compiler_whose_library_is_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    tools = {"aarch64-linux-gnu": Toolchain(("gcc",), ()),
             "aarch64-linux-gnu.2.31": Toolchain(("zig", "2.31"), ())}  # fmt: skip
    monkeypatch.setattr(board_server, "build_package", copied(built))
    monkeypatch.setattr(board_server, "find_toolchain", lambda machine: tools[machine])
    with use(cache=tmp_path):
        new = find_package(BoardFacts("aarch64", "gnu", "2.39", ""))
        old = find_package(BoardFacts("aarch64", "gnu", "2.31", ""))
        again = find_package(BoardFacts("aarch64", "gnu", "2.31", ""))
    assert (new.origin, old.origin) == ("built by gcc", "built by zig 2.31")
    assert old.server == again.server
    assert built == ["gcc", "2.31"]


def test_without_a_compiler_it_says_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("treadle.runtime.native_package.zig_command", lambda: None)
    with use(cache=tmp_path), pytest.raises(ToolchainError) as caught:
        find_package(BoardFacts("riscv64", "gnu", "2.38", ""))
    assert "no C compiler is found for riscv64-linux-gnu" in caught.value.problem
    assert "glibc 2.38 of riscv64-linux-gnu" in caught.value.problem
    assert 'pip install "treadle[cross]"' in caught.value.hint
    with use(cache=tmp_path), pytest.raises(ToolchainError) as caught:
        find_package(BoardFacts("aarch64", "android", "30", ""))
    assert "aarch64-linux-android30-clang" in caught.value.hint


def test_one_that_came_with_the_package_is_taken_where_it_is_of_this_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_server, "PREBUILT", tmp_path)
    folder = tmp_path / HERE.triple
    folder.mkdir()
    (folder / SERVER).write_bytes(server_in_c().read_bytes())
    (folder / SOURCES).write_text(package_hash() + "\n")
    assert find_package(HERE).origin == "came with Treadle"
    (folder / SOURCES).write_text("0" * 64)
    monkeypatch.setattr(board_server, "_first_that_fits", lambda facts: "built")
    assert find_package(HERE) == "built"
