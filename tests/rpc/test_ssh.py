# SPDX-License-Identifier: Apache-2.0
"""What ssh is called with, and what it says when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rpc.fake_boards import fake_board
from treadle.errors import RpcError, ToolchainError
from treadle.rpc.ssh import ssh_board


def test_ssh_decides_about_hosts_and_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No option loosens the check of host keys; one login serves all commands, and then ends."""
    with fake_board(tmp_path, monkeypatch) as board:
        there = ssh_board("root@[fe80::1%eth0]:2222")
        with (tmp_path / "devices").open("rb") as file:
            assert there.shell("echo 'a  b'; cat", file) == "a  b\nSER1\tdevice"
        there.close()
        first, last = board.lines()
    assert "StrictHostKeyChecking" not in first
    assert first.split(" -- ")[1].startswith("root@fe80::1%eth0 exec sh -c ")
    assert " -p 2222 " in first
    way = next(word for word in first.split() if word.startswith("ControlPath="))
    assert way in last
    assert "-O exit" in last
    assert not Path(way.partition("=")[2]).parent.exists()


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Host key verification failed.", "log in once by hand, to see whose key it is: ssh me@b"),
        ("me@b: Permission denied (publickey).", "ssh-copy-id me@b"),
        ("ssh: Could not resolve hostname b", "ssh me@b true"),
    ],
)
def test_failures_of_ssh_say_what_to_do(
    said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_board(tmp_path, monkeypatch) as board:
        board.write("ssh-fault", said)
        there = ssh_board("me@b")
        with pytest.raises(RpcError) as caught:
            there.shell("true")
        there.close()
    assert said in caught.value.problem
    assert caught.value.at == "ssh:me@b"
    assert hint in caught.value.hint


def test_without_ssh_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match="ssh is not installed"):
        ssh_board("b")
