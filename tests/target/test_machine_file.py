# SPDX-License-Identifier: Apache-2.0
"""The facts of a machine in a file: they read back, and what a file may not hold is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.errors import TargetError, UsageError
from treadle.target.machine_file import read_machine, save_machine
from treadle.target.machine_rows import GENERIC, machine_of
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny

ROW = machine_of("x86_64-linux-gnu", "znver5")
ARM = GENERIC["aarch64"].machine


def test_what_is_saved_reads_back_on_any_row(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    machine = replace(ROW, fork_cycles=7777, memory_bytes_per_cycle=3.3)
    save_machine(path, machine, "a processor", "a test")
    assert read_machine(path, ARM) == machine
    assert [p.name for p in tmp_path.iterdir()] == ["machine.json"]


def test_a_target_takes_a_file_and_options_over_it(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    save_machine(path, replace(ROW, fork_cycles=7777), "a processor", "a test")
    text = f"llvm -mtriple=x86_64-linux-gnu -mcpu=znver3 -machine={path} -caches=1K,2K,3K"
    target = parse_target(text)
    assert target.machine.fork_cycles == 7777
    assert target.machine.fma_bits == ROW.fma_bits
    assert str(target.machine.sizes) == "1K,2K,3K"
    assert str(path) not in str(target)  # an artifact says what it was made for by itself
    path.unlink()
    assert parse_target(str(target)) == target


def test_what_a_file_leaves_out_is_the_row_s(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text('{"format": 1, "facts": {"fork-cycles": "12"}}')
    assert read_machine(path, ARM) == replace(ARM, fork_cycles=12)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "this is not JSON"),
        ("\x00", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ("[]", "does not hold the facts of a machine"),
        ('{"format": 2, "facts": {}}', "does not hold the facts of a machine"),
        ('{"format": 1}', "does not hold the facts of a machine"),
        ('{"format": 1, "facts": {"fork-cycles": 3}}', "is not a text"),
        ('{"format": 1, "facts": {"fork_cycles": "3"}}', "'fork_cycles' is not a fact"),
        ('{"format": 1, "facts": {"fork-cycles": "0"}}', "-fork-cycles=0 is not a whole number"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(TargetError, match=problem) as error:
        parse_target(f"llvm -machine={path}")
    assert error.value.at == str(path)
    assert error.value.hint


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(TargetError, match="cannot be read"):
            read_machine(path, ROW)
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"format": 1, "facts": {}, "name": "x" * (2 << 20)}))
    with pytest.raises(TargetError, match="does not hold"):
        read_machine(large, ROW)
    with pytest.raises(UsageError, match="cannot be written"):
        save_machine(tmp_path / "none" / "machine.json", ROW, "", "")
