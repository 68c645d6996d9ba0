# SPDX-License-Identifier: Apache-2.0
"""Long contents on their way to a device: bytes in memory or in a file, a piece at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from treadle.errors import UsageError
from treadle.rpc.wire import WRITTEN_BYTES

STRETCH_BYTES = 8 * WRITTEN_BYTES
"""Of several calls, sent by one step of Python."""


def offsets(start: int, size: int, piece: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of every piece of `size` bytes from byte `start` on."""
    for offset in range(start, size, piece):
        yield offset, min(piece, size - offset)


class Pieces:
    """Bytes in memory or in a file, a piece of up to STRETCH_BYTES at a time."""

    def __init__(self, source: memoryview | int) -> None:
        self._source = source
        self._buffer = bytearray(STRETCH_BYTES if isinstance(source, int) else 0)

    def at(self, offset: int, size: int) -> memoryview:
        """Return a piece, valid until the next one is asked for. Raises: UsageError, OSError."""
        if not isinstance(self._source, int):
            return self._source[offset : offset + size]
        view = memoryview(self._buffer)[:size]
        if os.preadv(self._source, [view], offset) != size:
            raise UsageError("the file has become shorter while it was read")
        return view

    def hash(self, size: int) -> str:
        """Return the SHA-256 of the first bytes."""
        found = hashlib.sha256()
        for offset, count in offsets(0, size, WRITTEN_BYTES):
            found.update(self.at(offset, count))
        return found.hexdigest()
