# SPDX-License-Identifier: Apache-2.0
"""Saved models: telling them from others, loading them."""

from __future__ import annotations

import os
from pathlib import Path

from treadle.build.executable import LoadedExecutable

_TAR_MAGIC = (257, b"ustar")


def is_artifact(path: Path) -> bool:
    """True if a file is a tar by its name or its content."""
    if path.suffix == ".tar":
        return True
    offset, magic = _TAR_MAGIC
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(len(magic)) == magic
    except OSError:
        return False


def load(path: str | os.PathLike[str]) -> LoadedExecutable:
    """Return a saved model, ready to run.

    An artifact holds machine code: load only files you trust.

    Raises:
        ArtifactError: the file is missing, damaged, unsafe, or made for another machine.
    """
    return LoadedExecutable(path)
