# SPDX-License-Identifier: Apache-2.0
"""The files of a session: all in one folder, by names that lead nowhere else.

A file being uploaded lies in a folder that sessions of one server share, so that an upload that was
cut off goes on where it ended. No name has a folder in it and no link is followed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from treadle.errors import RpcError

_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,127}")
_PARTIAL = "partial"
_PREFIX = "session-"
_KEPT_SECONDS = 24 * 3600.0
_CHUNK = 1 << 20
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC


def check_name(name: str) -> str:
    """Return a file's name. Raises: RpcError for one that is a path, hidden, or not plain."""
    if not _NAME.fullmatch(name):
        raise RpcError(
            f"{name[:100]!r} is no name for a file on a device",
            hint="use letters, digits, '_', '-', '+' and '.', no folders: files lie side by side",
        )
    return name


def prepare_folder(root: Path) -> Path:
    """Return the folder of a server with all links resolved, made where it is not there.

    What other servers have left behind is removed: sessions, and parts of files of days ago.

    Raises: RpcError when it cannot be used.
    """
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = root.resolve(strict=True)
        partial = root / _PARTIAL
        partial.mkdir(mode=0o700, exist_ok=True)
        status = partial.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise RpcError("the folder 'partial' in it is not this user's", at=str(root))
        partial.chmod(0o700)
    except OSError as error:
        raise RpcError(f"the work folder cannot be used: {error.strerror}", at=str(root)) from None
    for left in root.glob(f"{_PREFIX}*"):
        if not _is_in_use(left):
            shutil.rmtree(left, ignore_errors=True)
    for left in partial.iterdir():
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > _KEPT_SECONDS:
                left.unlink()
    return root


def session_folder(root: Path) -> Path:
    """Return a new folder for a session, which nobody but this user may enter."""
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def _is_in_use(folder: Path) -> bool:
    """True where the server that made a session's folder runs."""
    number = folder.name.removeprefix(_PREFIX).partition("-")[0]
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


@dataclass
class _Upload:
    name: str
    size: int
    descriptor: int
    partial: str
    length: int


class WorkFolder:
    """The files of one session; `quota` are the bytes it may hold."""

    def __init__(self, root: Path, folder: Path, quota: int) -> None:
        self.path = folder
        self._quota = quota
        flags = os.O_RDONLY | os.O_DIRECTORY | _OPEN
        self._folder = os.open(folder, flags)
        self._partials = os.open(root / _PARTIAL, flags)
        self._upload: _Upload | None = None

    def close(self) -> None:
        """Close what is open."""
        self._drop_upload()
        os.close(self._folder)
        os.close(self._partials)

    # ---- uploading -------------------------------------------------------------------------------

    def begin(self, name: str, size: int, resume: bool) -> int:
        """Begin an upload; return how many bytes of it are here. One goes on at a time."""
        check_name(name)
        self._drop_upload()
        partial = hashlib.sha256(f"{size} {name}".encode()).hexdigest()
        if size > self._quota - sum(size for _, size in self.listed()):
            raise RpcError(
                f"{name} of {size:,} bytes is more than the {self._quota:,} a session may hold",
                hint="remove files, or start the server with a larger --quota",
            )
        self._forget_partials(self._quota - size, partial)
        descriptor = self._open(self._partials, partial, os.O_RDWR | os.O_CREAT)
        length = os.fstat(descriptor).st_size
        if length and (not resume or length > size):
            os.ftruncate(descriptor, 0)
            length = 0
        self._upload = _Upload(name, size, descriptor, partial, length)
        return length

    def _forget_partials(self, most: int, but: str) -> None:
        """Remove the oldest parts of other uploads until those left take `most` bytes or fewer."""
        found = []
        with os.scandir(self._partials) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if entry.name != but:
                    found.append((status.st_mtime, status.st_size, entry.name))
        held = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if held <= most:
                return
            with suppress(OSError, RpcError):  # one that another session writes to stays
                os.close(self._open(self._partials, name, os.O_RDWR))
                os.unlink(name, dir_fd=self._partials)
                held -= size

    def uploaded_hash(self) -> str:
        """Return the SHA-256 of what is here of the upload."""
        upload = self._current()
        found = hashlib.sha256()
        for start in range(0, upload.length, _CHUNK):
            found.update(os.pread(upload.descriptor, _CHUNK, start))
        return found.hexdigest()

    def write(self, offset: int, data: bytes | memoryview) -> int:
        """Append to the upload; return how many bytes of it are here."""
        upload = self._current()
        if offset != upload.length:
            raise RpcError(f"{upload.name} goes on at {upload.length}, not at {offset}")
        if upload.length + len(data) > upload.size:
            raise RpcError(f"{upload.name} is longer than the {upload.size} bytes that were said")
        while data:
            count = os.pwrite(upload.descriptor, data, upload.length)
            upload.length += count
            data = data[count:]
        return upload.length

    def end(self) -> None:
        """Give the upload its name; it takes the place of a file that has it."""
        upload = self._current()
        if upload.length != upload.size:
            raise RpcError(f"{upload.name} has {upload.length} of {upload.size} bytes")
        os.rename(upload.partial, upload.name, src_dir_fd=self._partials, dst_dir_fd=self._folder)
        self._drop_upload()

    def _current(self) -> _Upload:
        if self._upload is None:
            raise RpcError("no upload has begun")
        return self._upload

    def _drop_upload(self) -> None:
        if self._upload is not None:
            os.close(self._upload.descriptor)
        self._upload = None

    # ---- files -----------------------------------------------------------------------------------

    def _open(self, folder: int, name: str, flags: int) -> int:
        """Open a regular file in a folder; links are not followed."""
        try:
            descriptor = os.open(name, flags | _OPEN | os.O_NONBLOCK, 0o600, dir_fd=folder)
        except OSError as error:
            raise self._refused(name, error) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise RpcError(f"{name} is not a regular file")
        if folder == self._partials:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise RpcError(f"{name} is being uploaded by another session") from None
        return descriptor

    def _refused(self, name: str, error: OSError) -> RpcError:
        if error.errno == errno.ELOOP:
            return RpcError(f"{name} is a symbolic link, which is not followed")
        if error.errno == errno.ENOENT:
            listed = ", ".join(name for name, _ in self.listed()) or "none"
            return RpcError(f"the session has no file {name!r}", hint=f"its files are {listed}")
        return RpcError(f"{name} cannot be opened: {error.strerror}")

    def located(self, name: str) -> Path:
        """Return the path of a file that is here."""
        os.close(self._open(self._folder, check_name(name), os.O_RDONLY))
        return self.path / name

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return some bytes of a file; fewer at its end."""
        descriptor = self._open(self._folder, check_name(name), os.O_RDONLY)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove a file."""
        try:
            os.unlink(check_name(name), dir_fd=self._folder)
        except OSError as error:
            raise self._refused(name, error) from None

    def listed(self) -> list[tuple[str, int]]:
        """Return the names and sizes of the files."""
        return sorted(self._listed())

    def _listed(self) -> Iterator[tuple[str, int]]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield entry.name, status.st_size
