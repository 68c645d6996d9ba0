# SPDX-License-Identifier: Apache-2.0
"""What adb is called with: boards, commands on old and new systems, ports and their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rpc.fake_boards import FakeBoard, fake_board
from treadle.errors import RpcError, TreadleError
from treadle.rpc.adb import Adb, adb_board, devices


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBoard]:
    with fake_board(tmp_path, monkeypatch) as made:
        yield made


def test_boards_are_listed(board: FakeBoard) -> None:
    board.write("devices", "SER1\tdevice\n192.0.2.7:5555\toffline\nX\tno permissions; see [...]")
    assert devices() == {"SER1": "device", "192.0.2.7:5555": "offline", "X": "no permissions"}


@pytest.mark.parametrize(
    ("states", "serial", "problem", "hint"),
    [
        ("", "", "adb knows 0 boards", "allow debugging over USB"),
        ("", "SER9", "adb knows no board SER9", "adb devices"),
        ("A\tdevice\nB\tdevice", "", "adb knows 2 boards", "name one of A, B"),
        ("A\tunauthorized", "A", "the board is unauthorized", "on the board's screen"),
        ("A\toffline", "", "the board is offline", "adb reconnect"),
    ],
)
def test_boards_that_cannot_be_used(
    states: str, serial: str, problem: str, hint: str, board: FakeBoard
) -> None:
    board.write("devices", states)
    with pytest.raises(TreadleError) as caught:
        adb_board(serial)
    assert problem in caught.value.problem
    assert hint in caught.value.hint


@pytest.mark.parametrize("is_old", [False, True])
def test_commands_end_with_their_status(is_old: bool, board: FakeBoard) -> None:
    if is_old:
        board.write("is-old", "yes")
    there = adb_board("")
    assert there.shell("echo 1; echo '2  $HOME'") == "1\n2  $HOME\n"
    with pytest.raises(RpcError, match="refuses a command: out of order"):
        there.shell("echo out of order >&2; exit 3")
    board.write("adb-fault", "error: device 'SER1' not found")
    with pytest.raises(RpcError, match="device 'SER1' not found"):
        there.shell("true")


def test_ports_are_listed_and_removed(board: FakeBoard) -> None:
    board.write("forward", "OTHER tcp:5 tcp:6")
    there = adb_board("SER1")
    assert there.forward(9090) == 9090
    assert there.reverse(9190) == 9190
    assert there.reverse(9191, 9192) == 9192
    assert there.forwards() == [("tcp:9090", "tcp:9090")]
    assert there.reverses() == [("tcp:9190", "tcp:9190"), ("tcp:9192", "tcp:9191")]
    there.remove_reverse(9190)
    assert there.reverses() == [("tcp:9192", "tcp:9191")]
    there.close()
    assert there.forwards() == there.reverses() == []
    assert (board.folder / "forward").read_text() == "OTHER tcp:5 tcp:6"
    count = len(board.calls())
    there.close()
    assert len(board.calls()) == count


def test_a_port_that_is_none_is_an_error(board: FakeBoard) -> None:
    there = adb_board("SER1")
    (board.folder / "path" / "adb").write_text("#!/bin/sh\necho started\n")
    with pytest.raises(RpcError, match="forwards to no port: it says 'started'"):
        there.forward(1)
    assert isinstance(there, Adb)
