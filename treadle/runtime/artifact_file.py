# SPDX-License-Identifier: Apache-2.0
"""Artifacts as open files: what was loaded stays at hand, whatever becomes of its name."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import IO

from treadle.errors import ArtifactError, UsageError

Content = bytes | bytearray | memoryview

GPU_MEMBER = "mod.gpu"
"""The member that the artifact of a model for a GPU begins with."""
_PIECE = 1 << 20
_NAME_BYTES = 100  # of the first member, where a tar begins


def is_gpu_artifact(file: ArtifactFile) -> bool:
    """True where an artifact begins with the code of a GPU."""
    return os.pread(file.descriptor, _NAME_BYTES, 0).rstrip(b"\0") == GPU_MEMBER.encode()


class ArtifactFile:
    """An artifact, open for reading; closed with the object.

    One that is given by its content lies in a file without a name.
    """

    def __init__(self, artifact: str | os.PathLike[str] | Content) -> None:
        """Open the file at a path, or copy the content. Raises: ArtifactError, UsageError."""
        self._descriptor: int | None = None
        if isinstance(artifact, Content):
            content = memoryview(bytes(artifact) if _has_gaps(artifact) else artifact).cast("B")
            self.name = f"an artifact of {content.nbytes:,} bytes in memory"
            self._descriptor = _anonymous_file(content)
        else:
            self.name = os.fspath(artifact)
            self._descriptor = _open(self.name)
        self._state = _state(self._descriptor)

    @property
    def descriptor(self) -> int:
        """The number of the open file."""
        if self._descriptor is None:
            raise UsageError("the artifact is closed")
        return self._descriptor

    def copy_to(self, file: IO[bytes]) -> None:
        """Write the artifact to another file.

        Raises: ArtifactError when somebody has written to it since it was opened.
        """
        offset = 0
        while piece := os.pread(self.descriptor, _PIECE, offset):
            file.write(piece)
            offset += len(piece)
        if _state(self.descriptor) != self._state:
            raise ArtifactError(
                "the artifact has changed since it was loaded",
                at=self.name,
                hint="replace files that are in use by renaming others to their names",
            )

    def is_at(self, path: Path) -> bool:
        """True where a regular file of its own at `path` holds the same bytes."""
        try:
            other = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            mine, found = os.fstat(self.descriptor), os.fstat(other)
            if not stat.S_ISREG(found.st_mode) or found.st_size != mine.st_size:
                return False
            return not os.path.samestat(mine, found) and self._holds_bytes_of(other, mine.st_size)
        except OSError:
            return False
        finally:
            os.close(other)

    def _holds_bytes_of(self, other: int, size: int) -> bool:
        mine, theirs = bytearray(_PIECE), bytearray(_PIECE)  # a short piece leaves equal ends
        for at in range(0, size, _PIECE):
            counts = {os.preadv(self.descriptor, [mine], at), os.preadv(other, [theirs], at)}
            if counts != {min(_PIECE, size - at)} or mine != theirs:
                return False
        return True

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()


def _has_gaps(content: Content) -> bool:
    return isinstance(content, memoryview) and not content.c_contiguous


def _open(path: str) -> int:
    if not path:
        raise UsageError("the artifact's path is empty")
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ArtifactError(f"cannot open the artifact: {reason}", at=path) from None


def _anonymous_file(content: memoryview) -> int:
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("treadle", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
    except OSError as error:
        raise ArtifactError(f"the artifact cannot be kept in memory: {error.strerror}") from None
    return descriptor


def _state(descriptor: int) -> tuple[int, ...]:
    status = os.fstat(descriptor)
    return (status.st_size, status.st_mtime_ns)  # not ctime: that is when the name went, too
