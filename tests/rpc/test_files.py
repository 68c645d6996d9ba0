# SPDX-License-Identifier: Apache-2.0
"""Files of a session: parts, limits, and folders that dead servers left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.errors import RpcError
from treadle.rpc.files import WorkFolder, prepare_folder, session_folder


def test_parts_of_uploads_do_not_pile_up(tmp_path: Path) -> None:
    root = prepare_folder(tmp_path / "work")
    files = WorkFolder(root, session_folder(root), quota=1000)
    for number in range(10):
        files.begin(f"part{number}", 400, True)
        files.write(0, b"x" * 399)
        os.utime(root / "partial" / files._current().partial, (number, number))
    assert len(list((root / "partial").iterdir())) == 2
    assert files.begin("part9", 400, True) == 399
    assert files.begin("part0", 400, True) == 0
    files.close()


def test_work_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RpcError, match="is not this user's"):
        prepare_folder(tmp_path / "work")
    (tmp_path / "file").write_text("")
    with pytest.raises(RpcError, match="cannot be used"):
        prepare_folder(tmp_path / "file")


def test_what_dead_servers_left_is_removed(tmp_path: Path) -> None:
    root = prepare_folder(tmp_path / "work")
    (root / "session-999999999-x").mkdir()
    mine = session_folder(root)
    old, new = root / "partial" / "old", root / "partial" / "new"
    old.write_text("")
    new.write_text("")
    os.utime(old, (0, 0))
    prepare_folder(tmp_path / "work")
    assert sorted(path.name for path in root.iterdir()) == sorted(["partial", mine.name])
    assert [path.name for path in (root / "partial").iterdir()] == ["new"]
