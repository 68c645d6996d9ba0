# SPDX-License-Identifier: Apache-2.0
"""What tells this compiler from any other state of it: a digest of its own source."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_LOADED_NS = time.time_ns()


@cache
def compiler_digest() -> str | None:
    """Return a digest of the source of this package.

    None where the source that was loaded cannot be read: it is not there (an archive, bytecode
    only), or somebody has edited it since.
    """
    digest = hashlib.sha256()
    try:
        files = sorted(_sources(_PACKAGE))
        for name, changed_ns in files:
            if changed_ns > _LOADED_NS:
                return None
            digest.update(name.encode())
            with (_PACKAGE / name).open("rb", buffering=0) as file:
                digest.update(file.read())
    except OSError:
        return None
    return digest.hexdigest() if files else None


def _sources(folder: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the Python files under a folder by name, and when each was written (nanoseconds)."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if name.endswith(".py"):
                yield name, entry.stat().st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(folder / entry.name, f"{name}/")
