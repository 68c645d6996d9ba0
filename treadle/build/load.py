# SPDX-License-Identifier: Apache-2.0
"""Loading saved models."""

from __future__ import annotations

import os

from treadle.build.executable import LoadedExecutable
from treadle.runtime.artifact_file import Content


def load(artifact: str | os.PathLike[str] | Content, *, verify: bool = False) -> LoadedExecutable:
    """Return a saved model, ready to run: from a file, or from the bytes of one.

    An artifact holds machine code: load only files you trust. Large weights are mapped, so that all
    that load a file share its memory: do not write to a file that is in use, rename another one to
    its name. `verify` compares all weights with their hash; without it that is done up to 64 MiB.

    Raises:
        ArtifactError: the file is missing, damaged, unsafe, or made for another machine.
    """
    return LoadedExecutable(artifact, verify=verify)
