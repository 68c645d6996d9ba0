# SPDX-License-Identifier: Apache-2.0
"""`treadle run --inputs` refuses files that do not fit the model, or that want to do more."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.abuse.conftest import Cli

GOOD = np.ones((2, 3), np.float32)

MISFITS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # Any: arrays and worse
    "nothing": ({}, ("1 of 1 inputs", "x: float32[2, 3]")),
    "wrong name": ({"X": GOOD}, ("no input 'X'", "x")),
    "one too many": ({"x": GOOD, "z": GOOD}, ("no input 'z'",)),
    "wrong rank": ({"x": np.ones((1, 2, 3), np.float32)}, ("'x'", "[1, 2, 3]", "[2, 3]")),
    "wrong shape": ({"x": np.ones((3, 2), np.float32)}, ("'x'", "[3, 2]", "[2, 3]")),
    "scalar": ({"x": np.float32(1)}, ("'x'", "[]", "[2, 3]")),
    "wrong dtype": ({"x": np.ones((2, 3))}, ("float64", "float32", ".astype('float32')")),
    "integers": ({"x": np.ones((2, 3), np.int32)}, ("int32", "float32")),
    "text": ({"x": np.array([["a"] * 3] * 2)}, ("float32",)),
    "records": ({"x": np.zeros((2, 3), [("a", "f4")])}, ("float32",)),
    "dates": ({"x": np.zeros((2, 3), "datetime64[s]")}, ("float32",)),
}


@pytest.mark.parametrize("case", MISFITS)
def test_arrays_that_do_not_fit(cli: Cli, tmp_path: Path, artifact: Path, case: str) -> None:
    arrays, said = MISFITS[case]
    np.savez(tmp_path / "in.npz", **arrays)
    error = cli.fails("run", artifact, "--inputs", tmp_path / "in.npz")
    for words in said:
        assert words in error


class Bomb:
    """Its pickle would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.path), "w"))


def test_objects_are_never_loaded(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    exploded = tmp_path / "exploded"
    np.savez(tmp_path / "in.npz", x=np.array([[Bomb(exploded)] * 3] * 2, dtype=object))
    assert "objects" in cli.fails("run", artifact, "--inputs", tmp_path / "in.npz")
    assert not exploded.exists()


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text.encode("latin1")


def described(descr: str = "'<f4'", shape: str = "(2, 3)", more: str = "") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {more}}}\n")


ARRAYS = {
    "empty": b"",
    "no magic": b"nothing of the kind",
    "magic only": b"\x93NUMPY",
    "future version": b"\x93NUMPY\x09\x00" + bytes(100),
    "version 3": header("{}", (3, 0)),
    "header cut off": described()[:20],
    "header without end": header("{'descr':"),
    "header is code": header("__import__('os').abort()\n"),
    "header is deep": header("(" * 9000),
    "header is huge": header(" " * 60_000 + "{}\n"),
    "header lies about its size": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}",
    "huge shape": described(shape=f"({1 << 40}, {1 << 40})"),
    "negative shape": described(shape="(-2, 3)"),
    "shape is text": described(shape="'23'"),
    "shape of booleans": described(shape="(True, 3)"),
    "more keys": described(more="'evil': 1"),
    "unknown dtype": described("'<f99'"),
    "huge dtype": described("'V1000000000000'"),
    "objects": described("'|O'") + bytes(48),
    "no data": described(),
    "short data": described() + bytes(23),
    "long data": described() + bytes(25),
}


@pytest.mark.parametrize("case", ARRAYS)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_arrays_that_are_none(
    cli: Cli, tmp_path: Path, artifact: Path, case: str, method: int
) -> None:
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", ARRAYS[case])
    assert "in.npz" in cli.fails("run", artifact, "--inputs", path)


def zip_of(name: str, data: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, data)
    return file.getvalue()


WHOLE = zip_of("x.npy", described() + bytes(24))

ARCHIVES = {
    "empty": b"",
    "text": b"no archive",
    "zip of nothing": b"PK\x05\x06" + bytes(18),
    "one array": described() + bytes(24),
    "bomb": zip_of("x.npy", described() + bytes(50 << 20)),
    "bomb of another name": zip_of("y.npy", bytes(50 << 20)),
    "wrong checksum": WHOLE.replace(WHOLE[14:18], b"abcd"),
    "encrypted": WHOLE.replace(WHOLE[4:8], b"\x14\x00\x01\x00").replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"
    ),
    "unknown method": WHOLE.replace(b"\x08\x00", b"\x63\x00"),
    "folder": zip_of("x.npy/", b""),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_are_none(cli: Cli, tmp_path: Path, artifact: Path, case: str) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(ARCHIVES[case])
    assert "in.npz" in cli.fails("run", artifact, "--inputs", path)


def test_every_cut_and_every_changed_byte(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    path = tmp_path / "in.npz"
    for length in range(0, len(WHOLE), 7):
        path.write_bytes(WHOLE[:length])
        cli.fails("run", artifact, "--inputs", path)
    for position in range(0, len(WHOLE), 3):
        changed = bytearray(WHOLE)
        changed[position] ^= 0xA5
        path.write_bytes(changed)
        assert cli("run", artifact, "--inputs", path).code in (0, 2), position


def test_no_file(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    assert "does not exist" in cli.fails("run", artifact, "--inputs", "absent.npz")
    assert "is a folder" in cli.fails("run", artifact, "--inputs", tmp_path)
    os.mkfifo(tmp_path / "pipe.npz")
    assert "not a regular file" in cli.fails("run", artifact, "--inputs", tmp_path / "pipe.npz")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("bytes_first", ["<", ">"])
def test_what_numpy_writes_is_read(
    cli: Cli, tmp_path: Path, artifact: Path, order: Any, bytes_first: str
) -> None:
    x = np.asarray(np.arange(6).reshape(2, 3), dtype=f"{bytes_first}f4", order=order)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "in.npz", x=x)
        done = cli("run", artifact, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
        assert done.code == 0, done
        with np.load(tmp_path / "out.npz", allow_pickle=False) as outputs:
            expected = np.maximum(x.astype("f4") + np.arange(6).reshape(2, 3) - 3, 0)
            np.testing.assert_array_equal(outputs["y"], expected)
