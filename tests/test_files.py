# SPDX-License-Identifier: Apache-2.0
"""Files appear complete or not at all, and the error says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.errors import UsageError
from treadle.files import check_writable, replacing

pytestmark = pytest.mark.tiny


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "replaced"
    plain.write_bytes(b"")
    with replacing(path) as file:
        file.write(b"x")
    assert path.stat().st_mode == plain.stat().st_mode


def test_an_error_in_the_block_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("half")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result"]


def test_a_full_disk_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No space left") as raised, replacing(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert raised.value.hint
    assert not os.listdir(tmp_path)


def test_a_name_too_long_for_a_temporary_one_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    with replacing(path) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize(("name", "problem"), [("", "a folder"), ("no/x", "not a folder")])
def test_where_no_file_can_be_is_said_before(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        check_writable(tmp_path / name)
    check_writable(tmp_path / "free")
