# SPDX-License-Identifier: Apache-2.0
"""`treadle deploy` on boards that are this machine, or qemu: the server in C is the real one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import treadle
from tests.rpc.fake_boards import FakeBoard, become_arm, fake_board
from tests.rpc.services import device_of, server_for_arm, server_in_c, service
from treadle.cli.main import main
from treadle.rpc.keys import make_key

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBoard]:
    with fake_board(tmp_path, monkeypatch) as made:
        yield made


def deploy(board: FakeBoard, way: str, *words: str, model: Path = DIGITS) -> int:
    there = [] if way.startswith("rpc:") else ["--board-folder", board.tmp]
    if there and "--runtime" not in words:
        there += ["--runtime", str(server_in_c().parent)]
    return main(["deploy", str(model), "--board", way, "--repeat", "3", *there, *words])


@pytest.mark.parametrize("way", ["ssh:me@board", "adb:SER1"])
def test_a_model_is_brought_run_compared_and_timed(
    way: str, board: FakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(board, way) == 0
    said = capsys.readouterr().out
    assert re.search(rf"board    {way}: \w+, glibc ", said)
    assert re.search(r"output   probabilities: (equal|max)", said)
    assert re.search(r"(?m)^board +\d+( +\d+\.\d{4}){5}$", said)
    assert re.search(r"(?m)^this machine +\d+( +\d+\.\d{4}){5}$", said)
    assert board.left() == []
    if way.startswith("adb"):
        assert (board.folder / "forward").read_text() == ""


def test_what_is_kept_is_what_a_program_needs(
    board: FakeBoard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert deploy(board, "ssh:board", "--keep", "--threads", "1") == 0
    (left,) = board.left()
    found = {path.name for path in (Path(board.tmp) / left).iterdir()}
    assert found >= {"model.tar", "libtreadle.so", "treadle-rpc-server"}
    said = capsys.readouterr().out
    assert f"kept     ssh:board {board.tmp}/{left}/model.tar" in said
    model = treadle.load(Path(board.tmp) / left / "model.tar")
    assert [name for name, _, _ in model.outputs] == ["probabilities"]


def test_an_artifact_for_another_machine_is_refused_by_the_board(
    board: FakeBoard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = "aarch64" if "x86" in treadle.compile(DIGITS).target.triple else "x86_64"
    path = tmp_path / "other.tar"
    treadle.compile(DIGITS, target=f"llvm -mtriple={other}-linux-gnu").save(path)
    assert deploy(board, "ssh:board", model=path) == 2
    assert f"made for {other}" in capsys.readouterr().err
    assert deploy(board, "ssh:board", "--target", f"llvm -mtriple={other}-linux-gnu") == 2
    assert f"the target is for {other}, the board is" in capsys.readouterr().err
    assert board.left() == []


def test_a_device_of_a_tracker_is_a_board(
    board: FakeBoard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    make_key(tmp_path / "key")
    key = ("--key-file", str(tmp_path / "key"))
    with (
        service(logs, "tracker", *key) as tracker,
        device_of(logs, tracker, "phone", *key, language="c"),
    ):
        way = f"rpc:127.0.0.1:{tracker.port}/phone"
        assert deploy(board, way, "--rpc-key-file", str(tmp_path / "key")) == 0
        assert "board    phone at 127.0.0.1:" in capsys.readouterr().out
        assert deploy(board, way) == 2
        assert "it wants a key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["adb:NONE"], "adb knows no board NONE"),
        (["ssh:-x"], "is no board for ssh"),
        (["tty:1"], "is no board"),
        (["rpc:127.0.0.1:9190"], "names no kind of device"),
        (["rpc:127.0.0.1:9190/a", "--keep"], "--keep is for boards that have no server"),
        (["ssh:b", "--rpc-key-file", "x"], "--rpc-key-file is for boards of a tracker"),
        (["ssh:b", "--runtime", "/nothing"], "holds no treadle-rpc-server"),
    ],
)
def test_mistakes_are_said(
    words: list[str], problem: str, board: FakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", str(DIGITS), "--board", *words]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "hint" in said
    assert board.left() == []


def test_a_folder_that_is_not_there_is_said(
    board: FakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(board, "ssh:b", "--board-folder", "/nothing") == 2
    said = capsys.readouterr().err
    assert "the board refuses a command: mktemp" in said
    assert "at    ssh:b" in said


def test_outputs_that_depart_are_an_error(
    board: FakeBoard, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.build.remote_executable import RemoteExecutable
    from treadle.runtime.array import array

    run = RemoteExecutable.run
    monkeypatch.setattr(
        RemoteExecutable, "run", lambda *given: [array(x.numpy() + 1) for x in run(*given)]
    )
    assert deploy(board, "ssh:b") == 1
    said = capsys.readouterr()
    assert "← departs" in said.out
    assert "1 output of 1 departs" in said.err


def test_a_board_of_another_machine(board: FakeBoard, capsys: pytest.CaptureFixture[str]) -> None:
    """aarch64 under qemu: its CPU is found, the server is cross-built, numbers agree."""
    server, emulator = server_for_arm()
    become_arm(board, emulator)
    assert deploy(board, "ssh:board", "--runtime", str(server.parent)) == 0
    said = capsys.readouterr().out
    assert "-mcpu=cortex-a76" in said
    assert re.search(r"output   probabilities: (equal|max)", said)
    assert deploy(board, "ssh:board") == 2
    assert "is built for another machine than aarch64" in capsys.readouterr().err
