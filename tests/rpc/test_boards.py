# SPDX-License-Identifier: Apache-2.0
"""Sessions on boards without a server: both ways there, what is left, what can go wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.processes import wait_until
from tests.rpc.fake_boards import FakeBoard, fake_board
from tests.rpc.services import kernels, server_in_c
from treadle.errors import RpcError, TreadleError, UsageError
from treadle.rpc.boards import Board, board_of, opened_board

WAYS = ("ssh:me@board:2222", "adb:SER1")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBoard]:
    with fake_board(tmp_path, monkeypatch) as made:
        yield made
        assert servers(made) == []


def servers(board: FakeBoard) -> list[int]:
    """Return the processes of servers that run in the board's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if words.startswith(board.tmp.encode()):
                found.append(int(entry.name))
    return found


def opened(way: str, board: FakeBoard, **options: object):  # type: ignore[no-untyped-def]
    return opened_board(
        board_of(way),
        package=server_in_c().parent,
        folder=board.tmp,
        **options,  # type: ignore[arg-type]
    )


def use(there: Board) -> None:
    with there.session() as session:
        assert session.info()["system"].startswith("Linux")
        session.upload(os.urandom(3_000_000), "data")
        session.upload(kernels(), "kernels.so")
        given, out = session.array(np.arange(16, dtype="float32")), session.empty((16,))
        session.load_module("kernels.so")["twice"](given, out)
        assert np.array_equal(out.numpy(), 2 * np.arange(16, dtype="float32"))


@pytest.mark.parametrize("way", WAYS)
def test_a_session_leaves_nothing_behind(way: str, board: FakeBoard) -> None:
    with opened(way, board) as there:
        assert there.facts.triple.endswith("-linux-gnu")
        for _ in range(2):
            use(there)
        assert (Path(there.folder).stat().st_mode & 0o777) == 0o700
        assert there.push(server_in_c(), "extra") == f"{there.folder}/extra"
    assert board.left() == []


def test_a_server_that_starts_late_is_not_taken_for_the_last_one(board: FakeBoard) -> None:
    """The log of an earlier session tells a port that is closed by now."""
    board.write("seconds-to-start", "0.5")
    with opened("adb:SER1", board) as there:
        for _ in range(2):
            use(there)


def test_what_is_kept_is_there(board: FakeBoard) -> None:
    with opened("adb:", board, keep=True) as there:
        use(there)
    (left,) = board.left()
    assert (Path(board.tmp) / left / "treadle-rpc-server").stat().st_mode & 0o777 == 0o700


def spin(there: Board) -> None:
    with there.session(call_timeout=0.3) as session:
        session.upload(kernels(), "kernels.so")
        session.load_module("kernels.so")["spin"](session.empty((16,)))


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_that_does_not_end_is_ended(way: str, board: FakeBoard) -> None:
    with opened(way, board) as there, pytest.raises(RpcError, match="took longer"):
        spin(there)
    assert board.left() == []


def break_way(board: FakeBoard) -> None:
    """End the program that leads to the server, as a cable that is pulled does."""
    for call in board.calls():
        if "server" in str(call["words"]).split():
            with suppress(ProcessLookupError):
                os.kill(int(str(call["pid"])), signal.SIGKILL)


def use_until_broken(way: str, board: FakeBoard) -> None:
    with opened(way, board) as there, there.session() as session:
        session.info()
        assert servers(board)
        break_way(board)
        wait_until(lambda: servers(board) == [], "no server")
        session.info()


@pytest.mark.parametrize("way", WAYS)
def test_a_way_that_breaks_ends_the_server(way: str, board: FakeBoard) -> None:
    """An error here, and nothing runs on over there."""
    with pytest.raises(RpcError, match=r"closed the connection|connection broke"):
        use_until_broken(way, board)
    assert board.left() == []


def lose(board: FakeBoard) -> None:
    with opened("ssh:board", board):
        board.write("ssh-fault", "ssh: connect to host board port 22: No route to host")
        raise UsageError("mistake", hint="think")


def test_a_folder_that_cannot_be_removed_is_named(board: FakeBoard) -> None:
    with pytest.raises(UsageError, match="mistake") as caught:
        lose(board)
    assert "think; " in caught.value.hint
    assert f"{board.left()[0]} is left on the board" in caught.value.hint


def test_a_full_board_is_said(board: FakeBoard) -> None:
    board.program("cat", 'test $# -gt 0 && exec /bin/cat "$@"\n'
                  'echo "cat: write error: No space left on device" >&2; exit 1')  # fmt: skip
    with pytest.raises(RpcError, match="No space left on device") as caught, opened("ssh:b", board):
        pass
    assert "--board-folder" in caught.value.hint
    board.write("push-fault", "adb: error: failed to copy: remote No space left on device")
    with pytest.raises(RpcError, match="No space left on device") as caught, opened("adb:", board):
        pass
    assert "--board-folder" in caught.value.hint
    assert board.left() == []


def test_a_copy_that_is_cut_off_is_not_used(board: FakeBoard) -> None:
    board.program("cat", 'test $# -gt 0 && exec /bin/cat "$@"\nexec /usr/bin/head -c 1000')
    with pytest.raises(RpcError, match="the copy is cut off"), opened("ssh:b", board):
        pass
    assert board.left() == []


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_does_not_start_is_explained(way: str, board: FakeBoard) -> None:
    with opened(way, board) as there:
        (Path(there.folder) / "treadle-rpc-server").write_text(
            '#!/bin/sh\necho "no version GLIBC_2.99 found" >&2\nexit 1\n'
        )
        with pytest.raises(RpcError, match=r"does not start: .*GLIBC_2\.99"), there.session():
            pass


@pytest.mark.parametrize(
    "said", ["/", "/etc", "nothing", "/tmp/../treadle-deploy.x", "/a b/treadle-deploy.x"]
)
def test_only_folders_of_our_own_are_used(said: str, board: FakeBoard) -> None:
    board.program("mktemp", f"echo '{said}'")
    with pytest.raises(RpcError, match="makes no folder"), opened("ssh:b", board):
        pass
    assert not [line for line in board.lines() if "rm -rf" in line]


@pytest.mark.parametrize(
    "text",
    [
        "board", "ssh:", "ssh:-oProxyCommand=x", "ssh:a@-b", "ssh:a b", "ssh:a;reboot", "ssh:$(x)",
        "ssh:a:0", "ssh:a:70000", "ssh:a@b@c", "ssh:a\nb", "adb:-s", "adb:a b", "adb:$(x)", "usb:1",
    ],
)  # fmt: skip
def test_names_that_are_no_boards_run_nothing(text: str, board: FakeBoard) -> None:
    with pytest.raises(TreadleError):
        board_of(text)
    assert board.calls() == []


def test_folders_are_quoted(board: FakeBoard) -> None:
    parent = f"{board.tmp}; touch {board.folder}/owned"
    with (
        pytest.raises(RpcError),
        opened_board(board_of("ssh:b"), package=server_in_c().parent, folder=parent),
    ):
        pass
    assert not (board.folder / "owned").exists()
