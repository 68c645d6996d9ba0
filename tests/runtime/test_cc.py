# SPDX-License-Identifier: Apache-2.0
"""Linking functions in v0.8's form: what they pass on, and how they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime import artifacts
from treadle.errors import ToolchainError, UsageError
from treadle.runtime import cc


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path) -> None:
    artifacts.compiler()
    source, out = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("int f(void) { return 0 }\n")
    with pytest.raises(ToolchainError, match="expected"):
        cc.create_shared(out, [source])
    with pytest.raises(ToolchainError, match="'no-such-cc' is not found"):
        cc.create_shared(out, [source], cc="no-such-cc")
    with pytest.raises(ToolchainError, match="writes no file"):
        cc.create_shared(out, [source], cc="true")
    with pytest.raises(UsageError, match="a list of words"):
        cc.create_shared(out, [source], "-O1 -g")
    assert [p.name for p in tmp_path.iterdir()] == ["a.c"]
    source.write_text("int f(void) { return 0; }\n")
    cc.create_shared(out, str(source), ["-O1"])
    assert out.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.tiny
def test_options_and_files_are_added_to_those_of_a_call() -> None:
    seen: list[tuple[object, ...]] = []

    def compile_func(output: str, files: list[str], options: list[str]) -> None:
        seen.append((output, files, options))

    link = cc.cross_compiler(
        compile_func, ["-fPIC"], "so", lambda: "aarch64-linux-gnu", add_files=["extra.o"]
    )
    link("m.so", ["a.o"], options=["-O1"])
    link("m.so", "b.o")
    assert seen == [
        ("m.so", ["a.o", "extra.o"], ["-fPIC", "-O1"]),
        ("m.so", ["b.o", "extra.o"], ["-fPIC"]),
    ]
    assert link.output_format == "so"  # type: ignore[attr-defined]
    assert link.get_target_triple() == "aarch64-linux-gnu"  # type: ignore[attr-defined]
