# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels on disk, keyed by everything that decides their bytes.

An entry holds its full key, compared on reading, so that neither a hash collision nor a planted
file is taken for another kernel. Damaged entries, and what is no file of this user, are misses.
Several processes may share a folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from treadle.settings import get as get_settings

DEFAULT_LIMIT = 2 << 30
"""Bytes a cache folder may take before the entries unused for longest are removed."""

_MAGIC = b"TDKERN01"
_HEAD = struct.Struct("<8sQQ32s")  # magic, key bytes, object bytes, digest of both
_SUFFIX = ".kernel"
_SHARD_LETTERS = 2  # entries lie in folders of the first letters of their names
_KEEP = 0.8  # eviction goes down to this part of the limit
_STORES_PER_CHECK = 256
_LARGEST_ENTRY = 256 << 20


class KernelCache:
    """A folder of object files. Reading and writing never fail: what goes wrong is a miss.

    `problem` says why nothing is read or kept, "" where entries are read at least.
    """

    def __init__(self, root: Path, limit: int = DEFAULT_LIMIT) -> None:
        """Use (and make) the folder `root`, private to this user."""
        self.root = root
        self.limit = limit
        self._stores = 0
        self.problem = make_private(root)

    @property
    def is_usable(self) -> bool:
        """True where entries are read."""
        return not self.problem

    def load(self, key: str) -> bytes | None:
        """Return the object stored under a key, None when there is none."""
        if not self.is_usable:
            return None
        path = self._path(key)
        data = read_own_file(path)
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
        paths = self.root.glob(f"{'?' * _SHARD_LETTERS}/*{_SUFFIX}")
        evict_unused(((path,) for path in paths), self.limit)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.root / name[:_SHARD_LETTERS] / f"{name[_SHARD_LETTERS:]}{_SUFFIX}"


@cache
def kernel_cache(root: Path) -> KernelCache:
    """Return the cache in a folder, one for a process."""
    return KernelCache(root)


def object_cache_folder() -> Path:
    """Return the folder of object code by source text, of every back end."""
    return get_settings().cache / "kernels"


def evict_unused(entries: Iterable[tuple[Path, ...]], limit: int) -> None:
    """Where entries take more than `limit` bytes, remove those unused for longest, to well below.

    An entry is some files; its first one's time is that of its last use.
    """
    found: list[tuple[float, int, tuple[Path, ...]]] = []
    for files in entries:
        with suppress(OSError):
            facts = [path.stat() for path in files]
            found.append((facts[0].st_mtime, sum(f.st_size for f in facts), files))
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, files in sorted(found):
        for path in files:
            with suppress(OSError):
                path.unlink()
        total -= size
        if total <= limit * _KEEP:
            return


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


def read_own_file(path: Path, most: int = _LARGEST_ENTRY) -> bytes | None:
    """Return the bytes of a regular file of this user, None for anything else and above `most`."""
    # O_NONBLOCK: opening a pipe would wait for somebody who writes to it.
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or not _is_own(facts):
            return None
        if facts.st_size > most:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(handle)


def _is_own(facts: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or facts.st_uid == os.geteuid()


def make_private(root: Path) -> str:
    """Make a folder only this user can enter; return why that is not possible, "" if it is.

    Where the mode of a folder cannot be changed it is used if nobody else can write to it.
    """
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        facts = root.lstat()
    except OSError as error:
        return f"{root} cannot be made: {error.strerror}"
    if not stat.S_ISDIR(facts.st_mode) or not _is_own(facts):
        return f"{root} is not a folder of this user"
    if not stat.S_IMODE(facts.st_mode) & 0o077:
        return ""
    try:
        root.chmod(0o700)
    except OSError as error:
        if stat.S_IMODE(facts.st_mode) & 0o022:
            return f"others can write to {root}, and its mode cannot be changed: {error.strerror}"
    return ""


def obstacles(root: Path) -> list[str]:
    """Return why kernels are not kept (or not found again) in the cache folder `root`.

    Makes the folder, as compiling does; changes nothing that stands in it.
    """
    problem = make_private(root)
    if problem:
        return [problem]
    try:
        with tempfile.TemporaryFile(dir=root):
            pass
        places = list(root.iterdir())
    except OSError as error:
        return [f"nothing can be kept in {root}: {error.strerror}"]
    shards = [p for p in places if len(p.name) == _SHARD_LETTERS]
    found = [why for p in shards if (why := _wrong_kind(p, stat.S_ISDIR, "folder"))]
    for path in root.glob(f"{'?' * _SHARD_LETTERS}/*{_SUFFIX}"):
        if why := _wrong_kind(path, stat.S_ISREG, "file"):
            found.append(why)
    return found


def _wrong_kind(path: Path, is_right: Callable[[int], bool], kind: str) -> str:
    try:
        facts = path.lstat()
    except OSError:  # another process has just removed it
        return ""
    if not is_right(facts.st_mode) or not _is_own(facts):
        return f"{path} is not a {kind} of this user"
    needed = os.R_OK | (os.W_OK | os.X_OK if kind == "folder" else 0)
    return "" if os.access(path, needed) else f"{path} cannot be read or written"
