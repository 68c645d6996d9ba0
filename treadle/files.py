# SPDX-License-Identifier: Apache-2.0
"""Writing files in one step: under a temporary name, renamed when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from treadle.errors import UsageError


def check_writable(path: Path) -> None:
    """Raise UsageError unless a file can be made (or replaced) at `path`."""
    if path.is_dir():
        problem = "it is a folder"
    elif not path.parent.is_dir():
        problem = f"{path.parent} is not a folder"
    elif path.exists() and not path.is_file():
        problem = "it is not a regular file"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"the folder {path.parent} is not writable"
    else:
        return
    raise UsageError(
        f"{path} cannot be written: {problem}", hint="name a file in a folder you can write to"
    )


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a temporary file that becomes `path` when the block ends well, else disappears.

    Raises: UsageError when the system refuses to write, for example because the disk is full.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise refused(path, error) from None
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise refused(path, error) from None
        raise


def refused(path: Path, error: OSError) -> UsageError:
    """Return the error that says why the system does not write `path`."""
    return UsageError(
        f"{path} cannot be written: {error.strerror or error}",
        hint="make room, or name a file in another folder",
    )
