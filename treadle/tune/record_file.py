# SPDX-License-Identifier: Apache-2.0
"""A file of records that any number of processes append to at the same time."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from treadle.build.appending import append, appending, ended
from treadle.build.method_records import MethodRecord
from treadle.build.records import Record, read_lines
from treadle.errors import UsageError

_CHUNK = 1 << 20


class RecordFile:
    """Appends records, each whole or not at all, and reads what others have appended.

    What is read of the file stays as it is, unless another process prunes it, which replaces it: of
    the new file, too, only what is not known yet is read. A line that breaks off at the end, of a
    process that died, is cut off.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the file where there is none.

        Raises: UsageError where the system refuses.
        """
        self.path = Path(path)
        self._seen = 0
        self._known: set[bytes] = set()
        self._is_other = False
        """The file replaced the one that was read before."""
        with appending(self.path) as file:
            self._held = os.dup(file)
            """Open, so that no file that replaces it is given its number."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._held)

    def read_new(self) -> list[Record]:
        """Return the records that were appended since the last call, by whoever did it.

        Raises: ConfigError naming the line that is no record.
        """
        with appending(self.path) as file:
            self._follow(file)
            try:
                size = ended(file)
            except OSError as error:
                raise self._refused(error) from None
            first = 1 + _lines_before(file, self._seen)
            found = list(read_lines(self.path, self._seen, first)) if size > self._seen else []
            self._seen = size
        digests = [_digest(record) for record in found]
        known = self._known if self._is_other else set()
        self._known, self._is_other = self._known.union(digests), False
        return [r for r, d in zip(found, digests, strict=True) if d not in known]

    def append(self, record: Record | MethodRecord) -> None:
        """Write one record at the end.

        Raises: UsageError where there is no room; the file is as it was then.
        """
        line = record.line()
        with appending(self.path) as file:
            self._follow(file)
            try:
                after = append(file, line)
            except OSError as error:
                raise self._refused(error) from None
            self._known.add(_digest(record))
            if self._seen == after - len(line):
                self._seen = after

    def _follow(self, file: int) -> None:
        """Note a file that replaced the one that was open: it is read from its start."""
        if not os.path.samestat(os.fstat(file), os.fstat(self._held)):
            os.close(self._held)
            self._held, self._seen, self._is_other = os.dup(file), 0, True

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(
            f"the records {self.path} cannot be written: {error.strerror}",
            hint="make room and run the same command: it goes on from the records there",
        )


def _digest(record: Record | MethodRecord) -> bytes:
    return blake2b(record.line(), digest_size=16).digest()


def _lines_before(file: int, end: int) -> int:
    """Return how many lines end within the first bytes of a file."""
    found = place = 0
    while place < end and (chunk := os.pread(file, min(_CHUNK, end - place), place)):
        found += chunk.count(b"\n")
        place += len(chunk)
    return found
