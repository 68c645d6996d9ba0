# SPDX-License-Identifier: Apache-2.0
"""A file of records that any number of processes append to at the same time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.build.method_records import MethodRecord
from treadle.build.records import Record, read_lines
from treadle.errors import UsageError

_CHUNK = 1 << 20


class RecordFile:
    """Appends records, each whole or not at all, and reads what others have appended.

    What is read of the file stays as it is; a line that breaks off at the end (of a process that
    died) is ended, so that the next begins on a line of its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file, or make it.

        Raises: UsageError where the system refuses.
        """
        self.path = Path(path)
        self._seen = 0
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise UsageError(
                f"the records {self.path} cannot be written: {error.strerror}",
                hint="name a file in a folder that you may write to",
            ) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def read_new(self) -> list[Record]:
        """Return the records that were appended since the last call, by whoever did it.

        Raises: ConfigError naming the line that is no record.
        """
        with self._locked():
            size = os.fstat(self._file).st_size
            first = 1 + _lines_before(self._file, self._seen)
            found = list(read_lines(self.path, self._seen, first)) if size > self._seen else []
            self._seen = size
        return found

    def append(self, record: Record | MethodRecord) -> None:
        """Write one record at the end.

        Raises: UsageError where there is no room; the file is as it was then.
        """
        line = record.line()
        with self._locked():
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                line = b"\n" + line
            try:
                written = os.write(self._file, line)
                if written < len(line):
                    raise OSError(28, "No space left on device")
            except OSError as error:
                os.ftruncate(self._file, size)
                raise UsageError(
                    f"the records {self.path} cannot be written: {error.strerror}",
                    hint="make room and run the same command: it goes on from the records there",
                ) from None
            if self._seen == size:
                self._seen = size + len(line)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _lines_before(file: int, end: int) -> int:
    """Return how many lines end within the first bytes of a file."""
    found = place = 0
    while place < end and (chunk := os.pread(file, min(_CHUNK, end - place), place)):
        found += chunk.count(b"\n")
        place += len(chunk)
    return found
