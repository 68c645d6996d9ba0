# SPDX-License-Identifier: Apache-2.0
"""Files that several processes append to, and that one may replace, at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from treadle.build.json_lines import LONGEST_LINE, is_torn
from treadle.errors import UsageError


@contextmanager
def appending(path: Path, *, make: bool = True) -> Iterator[int]:
    """Give the descriptor of a file to append to and to read; nobody else is given it meanwhile.

    Who waits here while another replaces the file inside of this block (`files.replacing`) is given
    the new one: no line is appended to a file that has no name any more. `make`: the file is made
    where there is none.

    Raises: UsageError where the system refuses to open it.
    """
    file = _locked(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if make else 0))
    try:
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # a process forked in between holds it, too
        os.close(file)


def _locked(path: Path, how: int) -> int:
    while True:
        try:
            file = os.open(path, how, 0o666)
        except OSError as error:
            raise UsageError(
                f"the records {path} cannot be written: {error.strerror}",
                hint="name a file in a folder that you may write to",
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_at(path: Path, file: int) -> bool:
    """Tell whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def ended(file: int) -> int:
    """Let the last line of a file of JSON lines end; return the size of the file then.

    One that a process left which died while it wrote is cut off: it says nothing, and in front of
    other lines it would be no torn one any more but a wrong one.

    Raises: OSError where the system refuses.
    """
    size = os.fstat(file).st_size
    start = max(0, size - LONGEST_LINE - 1)
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return size
    tail = os.pread(file, size - start, start)
    last = tail[tail.rfind(b"\n") + 1 :]
    if not is_torn(last):
        return size + os.write(file, b"\n")
    os.ftruncate(file, size - len(last))
    return size - len(last)


def append(file: int, lines: bytes) -> int:
    """Write lines at the end of a file of JSON lines, all or none; return its size then.

    Raises: OSError where there is no room.
    """
    size = ended(file)
    try:
        if os.write(file, lines) < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)
        raise
    return size + len(lines)
