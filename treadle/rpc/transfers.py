# SPDX-License-Identifier: Apache-2.0
"""Files on their way to a device and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from treadle.errors import UsageError
from treadle.rpc.calls import Calls, Content
from treadle.rpc.pieces import Pieces
from treadle.rpc.wire import PIECE_BYTES


def upload_bytes(calls: Calls, content: Content, name: str, *, resume: bool) -> None:
    """Copy bytes to a file of a device."""
    view = memoryview(content).cast("B")
    _upload(calls, name, len(view), resume, Pieces(view))


def upload_file(calls: Calls, path: Path, name: str, *, resume: bool) -> None:
    """Copy a file to a device. Raises: UsageError where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            _upload(calls, name, size, resume, Pieces(file.fileno()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _upload(calls: Calls, name: str, size: int, resume: bool, pieces: Pieces) -> None:
    with calls.lock:
        start = calls.call("file.begin", name, size, int(resume)).integer()
        if start and pieces.hash(start) != calls.call("file.check").text():
            start = calls.call("file.begin", name, size, 0).integer()
        calls.stream("file.write", start, size, pieces)
        calls.call("file.end")


def downloaded(calls: Calls, name: str) -> Iterator[bytes]:
    """Yield the pieces of a file of a device."""
    offset = 0
    while True:
        piece = bytes(calls.call_for_bytes("file.read", name, offset, PIECE_BYTES)[1])
        if not piece:
            return
        yield piece
        offset += len(piece)


def download_to(calls: Calls, name: str, path: str | os.PathLike[str]) -> None:
    """Copy a file of a device to a path. Raises: UsageError where it cannot be written."""
    try:
        with open(path, "wb") as file:
            for piece in downloaded(calls, name):
                file.write(piece)
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be written: {error.strerror}") from None
