# SPDX-License-Identifier: Apache-2.0
"""Loading saved models."""

from __future__ import annotations

import os

from treadle.build.executable import LoadedExecutable


def load(path: str | os.PathLike[str]) -> LoadedExecutable:
    """Return a saved model, ready to run.

    An artifact holds machine code: load only files you trust.

    Raises:
        ArtifactError: the file is missing, damaged, unsafe, or made for another machine.
    """
    return LoadedExecutable(path)
