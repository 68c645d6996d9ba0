# SPDX-License-Identifier: Apache-2.0
"""`treadle rpc`, and the commands that use a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.rpc.services import Service, device_of, service
from treadle.cli.main import main
from treadle.cli.rpc import parse_address
from treadle.errors import UsageError
from treadle.rpc.keys import make_key

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rpc")
    make_key(made / "key")
    return made


@pytest.fixture(scope="module")
def tracker(folder: Path) -> Iterator[Service]:
    options = ("--key-file", str(folder / "key"))
    more = (*options, "--custom-addr", "127.0.0.1")
    with service(folder, "tracker", *options) as found, device_of(folder, found, "board", *more):
        yield found


def on_board(tracker: Service, folder: Path) -> list[str]:
    address = f"127.0.0.1:{tracker.port}"
    key_file = str(folder / "key")
    return ["--rpc-tracker", address, "--rpc-key", "board", "--rpc-key-file", key_file]


@pytest.mark.parametrize("suffix", ["onnx", "tar"])
def test_a_model_runs_on_a_device(
    tracker: Service, folder: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    model = folder / "digits.tar"
    treadle.compile(DIGITS).save(model)
    given = DIGITS if suffix == "onnx" else model
    results = []
    for options in ([], on_board(tracker, folder)):
        out = folder / "out.npz"
        words = ["--print-time", "--profile", "--repeat", "2", "--threads", "1"]
        assert main(["run", str(given), "-o", str(out), *words, *options]) == 0
        with np.load(out) as arrays:
            (result,) = arrays.values()
            results.append(result)
    said = capsys.readouterr().out
    assert said.count("Execution time summary:") == 2
    assert np.array_equal(results[0], results[1])


def test_query_prints_what_tools_read(
    tracker: Service, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = str(tracker.port)
    assert main(["rpc", "query", "--port", port, "--key-file", str(folder / "key")]) == 0
    said = capsys.readouterr().out
    assert re.match(
        rf"Tracker address 127\.0\.0\.1:{port}\n\nServer List\n-+\nserver-address\tkey\n-+\n"
        r"127\.0\.0\.1:\d+\tserver:board\n-+\n\n"
        r"Queue Status\n-+\nkey     total  free  pending\n-+\n"
        r"board   1      [01]     0      \n-+\n",
        said,
    )
    assert "Device Status" in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["rpc", "server", "--host", "0.0.0.0"], "there is no key"),
        (["rpc", "tracker", "--host", "0.0.0.0"], "there is no key"),
        (["rpc", "server", "--key", "board"], "--tracker and --key are given together"),
        (["rpc", "server", "--work-dir", "/proc/nothing"], "work folder cannot be used"),
        (["rpc", "tracker", "--key-file", "/nothing"], "key file cannot be read"),
        (["rpc", "query", "--port", "1"], "nothing can be reached"),
        (["run", str(DIGITS), "--rpc-tracker", "127.0.0.1:9190"], "--rpc-key are given together"),
        (["run", str(DIGITS), "--rpc-key-file", "x"], "--rpc-key-file is for --rpc-tracker"),
        (["run", str(DIGITS), "--rpc-tracker", "a:b", "--rpc-key", "x"], "is no address"),
    ],
)
def test_mistakes_are_said(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "Traceback" not in said


def test_a_device_that_is_not_there_is_said(
    tracker: Service, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = on_board(tracker, folder)[:4]
    assert main(["run", str(DIGITS), *options]) == 2
    assert "it wants a key" in capsys.readouterr().err


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9190", 1) == ("127.0.0.1", 9190)
    assert parse_address("board", 9190) == ("board", 9190)
    assert parse_address("[::1]:80", 1) == ("::1", 80)
    assert parse_address("[::1]", 9) == ("::1", 9)
    for text in ("", ":1", "a:", "a:0", "a:70000", "a:-1", "a:x"):
        with pytest.raises(UsageError, match="is no address"):
            parse_address(text, 1)
