# SPDX-License-Identifier: Apache-2.0
"""Weights kept in files next to the model: opened only inside its folder, mapped, never copied.

A model file is data from a stranger. An external location must be a regular file inside the
model's folder, reached without symbolic links, with one name on disk, and large enough.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from treadle.errors import ModelError

_OFFSET_LIMIT = 1 << 62


class ExternalFiles:
    """The weight files of one model; each is checked and mapped once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else Path(os.path.realpath(folder))
        self._open: dict[str, memoryview] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The files that were read, by their names in the model's folder."""
        return tuple(self._open)

    def read(self, entries: dict[str, str], nbytes: int) -> memoryview:
        """Return the bytes of a tensor whose `external_data` entries are given, as a view.

        Raises:
            ModelError: the location is unsafe or missing, or does not hold `nbytes` bytes there.
        """
        location = entries.get("location", "")
        data = self._file(location)
        offset = _number(entries, "offset", 0)
        length = _number(entries, "length", nbytes)
        if length != nbytes:
            raise ModelError(
                f"external data {location!r} has {length} bytes for a tensor of {nbytes} bytes"
            )
        if offset + length > len(data):
            raise ModelError(
                f"external data {location!r} has {len(data)} bytes, "
                f"the tensor needs bytes {offset} to {offset + length}",
                hint="the weight file is truncated or belongs to another model",
            )
        return data[offset : offset + length]

    def _file(self, location: str) -> memoryview:
        if location not in self._open:
            self._open[location] = _map(self._resolve(location), location)
        return self._open[location]

    def _resolve(self, location: str) -> Path:
        if self._folder is None:
            raise ModelError(
                f"the weights are in the external file {location!r}, but the model has no folder",
                hint="give the path of the .onnx file, or load it with its external data",
            )
        check_location(location)
        path = self._folder
        for part in PurePosixPath(location).parts:
            path = path / part
            if path.is_symlink():
                raise _unsafe(location, "is or passes through a symbolic link")
        if Path(os.path.realpath(path)) != path:
            raise _unsafe(location, "leads outside the model's folder")
        return path


def check_location(location: str) -> None:
    """Raise ModelError unless `location` is a plain relative path without `..`."""
    windows = PureWindowsPath(location)
    if not location or "\0" in location:
        raise _unsafe(location, "is not a file name")
    if location.startswith("/") or windows.drive or windows.root:
        raise _unsafe(location, "is an absolute path")
    if ".." in PurePosixPath(location).parts or ".." in windows.parts:
        raise _unsafe(location, "leads outside the model's folder")


def _map(path: Path, location: str) -> memoryview:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as e:
        raise ModelError(
            f"external data {location!r} cannot be opened: {e.strerror}",
            hint="keep the weight files in the model's folder",
        ) from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise _unsafe(location, "is not a regular file")
        if info.st_nlink != 1:
            raise _unsafe(location, f"is a hard link ({info.st_nlink} names on disk)")
        if info.st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(handle, info.st_size, access=mmap.ACCESS_READ))
    finally:
        os.close(handle)


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > _OFFSET_LIMIT:
        raise ModelError(f"the {key} of external data is {text[:40]!r}, not a byte count")
    return int(text)


def _unsafe(location: str, why: str) -> ModelError:
    return ModelError(
        f"external data {location[:200]!r} {why}",
        hint="weight files must be regular files inside the model's folder",
    )
