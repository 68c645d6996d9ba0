# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels on disk, keyed by everything that decides their bytes.

An entry holds its full key, compared on reading, so that neither a hash collision nor a planted
file is taken for another kernel. Damaged entries are misses. Several processes may share a folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from treadle.errors import SettingError

DEFAULT_LIMIT = 2 << 30
"""Bytes a cache folder may take before the entries unused for longest are removed."""

_MAGIC = b"TDKERN01"
_HEAD = struct.Struct("<8sQQ32s")  # magic, key bytes, object bytes, digest of both
_SUFFIX = ".kernel"
_KEEP = 0.8  # eviction goes down to this part of the limit
_STORES_PER_CHECK = 256
_LARGEST_ENTRY = 256 << 20


class KernelCache:
    """A folder of object files. Reading and writing never fail: what goes wrong is a miss."""

    def __init__(self, root: Path, limit: int = DEFAULT_LIMIT) -> None:
        """Use (and make) the folder `root`, private to this user.

        Raises: SettingError when the folder belongs to somebody else.
        """
        self.root = root
        self.limit = limit
        self._stores = 0
        self.is_usable = _make_private(root)

    def load(self, key: str) -> bytes | None:
        """Return the object stored under a key, None when there is none."""
        if not self.is_usable:
            return None
        path = self._path(key)
        data = _read_own_file(path)
        if data is None:
            return None
        found = _unpack(data, key)
        with suppress(OSError):
            if found is None:
                path.unlink()
            else:
                os.utime(path)  # the time of last use
        return found

    def store(self, key: str, data: bytes) -> None:
        """Keep an object under a key; does nothing where the disk refuses it."""
        if not self.is_usable:
            return
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_pack(key, data))
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
        if self._stores % _STORES_PER_CHECK == 0:
            self.evict()
        self._stores += 1

    def evict(self) -> None:
        """Remove the entries unused for longest until the folder is within its limit."""
        entries: list[tuple[float, int, Path]] = []
        for path in self.root.glob(f"??/*{_SUFFIX}"):
            with suppress(OSError):
                facts = path.stat()
                entries.append((facts.st_mtime, facts.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            with suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.limit * _KEEP:
                return

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.root / name[:2] / f"{name[2:]}{_SUFFIX}"


def _pack(key: str, data: bytes) -> bytes:
    packed = zlib.compress(key.encode(), 1)
    digest = hashlib.sha256(packed + data).digest()
    return _HEAD.pack(_MAGIC, len(packed), len(data), digest) + packed + data


def _unpack(entry: bytes, key: str) -> bytes | None:
    if len(entry) < _HEAD.size:
        return None
    magic, key_bytes, data_bytes, digest = _HEAD.unpack_from(entry)
    body = entry[_HEAD.size :]
    if magic != _MAGIC or len(body) != key_bytes + data_bytes:
        return None
    if hashlib.sha256(body).digest() != digest:
        return None
    # Compressing again instead of expanding: a planted entry cannot be a bomb.
    return body[key_bytes:] if body[:key_bytes] == zlib.compress(key.encode(), 1) else None


def _read_own_file(path: Path) -> bytes | None:
    """Return the bytes of a regular file of this user, None for anything else."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or not _is_own(facts):
            return None
        if facts.st_size > _LARGEST_ENTRY:
            return None
        try:
            return file.read()
        except OSError:
            return None


def _is_own(facts: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or facts.st_uid == os.geteuid()


def _make_private(root: Path) -> bool:
    """Make a folder only this user can enter; False where the system refuses to make it."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        facts = root.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(facts.st_mode) or not _is_own(facts):
        raise SettingError(
            f"the kernel cache {root} is not a folder of this user",
            hint="set TREADLE_CACHE to a folder of your own",
        )
    if stat.S_IMODE(facts.st_mode) & 0o077:
        root.chmod(0o700)
    return True
