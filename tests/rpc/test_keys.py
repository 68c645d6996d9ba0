# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import stat
from pathlib import Path

import pytest

from treadle.errors import UsageError
from treadle.rpc.keys import make_key, read_key

pytestmark = pytest.mark.tiny


def test_a_key_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(read_key(path)) == 64
    make_key(tmp_path / "other")
    assert read_key(path) != read_key(tmp_path / "other")
    with pytest.raises(UsageError, match="not replaced"):
        make_key(path)


def test_keys_that_protect_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(UsageError, match="cannot be read"):
        read_key(path)
    path.write_text("short\n")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="has 5 bytes"):
        read_key(path)
    path.write_text("k" * 32)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        read_key(path)
