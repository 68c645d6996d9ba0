# SPDX-License-Identifier: Apache-2.0
"""Saved models: telling them from others, loading them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.build.loaded import LoadedExecutable
from treadle.runtime.artifact_file import ArtifactFile, Content, is_gpu_artifact

if TYPE_CHECKING:
    from treadle.build.gpu_loaded import LoadedGpuExecutable

_MAGIC_AT, _TAR_MAGIC = 257, b"ustar"
_ELF_MAGIC = b"\x7fELF"


def is_artifact(path: Path) -> bool:
    """True if a file is a tar or a shared object, by its name or its content."""
    if path.suffix in (".tar", ".so"):
        return True
    try:
        with path.open("rb") as file:
            return is_artifact_content(file.read(_MAGIC_AT + len(_TAR_MAGIC)))
    except OSError:
        return False


def is_artifact_content(content: bytes | bytearray | memoryview) -> bool:
    """True if bytes begin as a tar or a shared object does."""
    if bytes(content[: len(_ELF_MAGIC)]) == _ELF_MAGIC:
        return True
    return bytes(content[_MAGIC_AT : _MAGIC_AT + len(_TAR_MAGIC)]) == _TAR_MAGIC


def load(
    artifact: str | os.PathLike[str] | Content, *, verify: bool = False
) -> LoadedExecutable | LoadedGpuExecutable:
    """Return a saved model, ready to run: from a file, or from the bytes of one.

    An artifact holds machine code: load only files you trust. Large weights are mapped, so that all
    that load a file share its memory: do not write to a file that is in use, rename another one to
    its name. `verify` compares all weights with their hash; without it that is done up to 64 MiB.

    Raises:
        ArtifactError: the file is missing, damaged, unsafe, or made for another machine.
        DeviceError: it is made for a GPU, and this machine has none that fits.
    """
    file = ArtifactFile(artifact)
    if is_gpu_artifact(file):
        from treadle.build.gpu_loaded import LoadedGpuExecutable  # not needed to load for a CPU

        return LoadedGpuExecutable(file, verify=verify)
    return LoadedExecutable(file, verify=verify)
