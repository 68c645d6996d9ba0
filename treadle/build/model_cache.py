# SPDX-License-Identifier: Apache-2.0
"""Compiled models kept on disk under what they are made of, so that none is compiled twice.

An entry is an artifact and a JSON file of its name with everything that decided it: the content of
the model and of the files it names, how it was to be compiled, the target with every number that
schedules read, and digests of the compiler and its back end. Who finds an entry needs neither
importer nor compiler, and this module imports neither.

Finding and keeping never fail: what goes wrong is a miss. The folder is private to its user;
entries that are damaged, or are no files of this user, are misses, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treadle.build.compiler_digest import compiler_digest
from treadle.errors import ArtifactError, ModelError, ToolchainError, UsageError
from treadle.files import replacing
from treadle.frontend.onnx.external import check_location
from treadle.runtime import native
from treadle.runtime.artifact_file import ArtifactFile
from treadle.settings import get as current_settings
from treadle.target.backend import version_of
from treadle.target.base import Target
from treadle.target.cache import evict_unused, make_private, read_own_file

Row = tuple[str, str]
"""A label, and what is printed after it."""

_FORMAT = 1
_LARGEST_SHARE = 2
"""An entry takes at most one of so many parts of the limit, and of the room there is."""
_MEGABYTE = 1 << 20
_PIECE = 16 << 20
"""Bytes of a file that are hashed by one thread, and then by their digests."""
_CHECKED_BYTES = 32 << 20
"""Bytes of a large artifact, at its begin and at its end, that are checked when it is found."""
_ENTRY_BYTES = 1 << 20
"""What the JSON file of an entry may hold at most."""
_CLOCK_NS = 20_000_000
"""By how much the time of a change may lie behind that of the clock."""
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading an entry of another form raises."""
_READERS = ("numpy", "onnx", "torch")
"""Packages whose versions may decide how a model is read."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """A compilation of a file, with records: what decides its result, as far as these alone say.

    `facts` are that, as JSON; `began_ns` is when neither had been read yet, by the clock, in ns.
    """

    model: Path
    records: Path | None
    facts: Mapping[str, object]
    began_ns: int

    @property
    def name(self) -> str:
        """The name of its entry."""
        return hashlib.sha256(_json(self.facts)).hexdigest()


class Kept(NamedTuple):
    """A model that was compiled before: its artifact, open, and what compiling it printed."""

    artifact: ArtifactFile
    rows: Sequence[Row]


def compilation(
    model: Path, target: Target, options: Mapping[str, object], records: Path | None = None
) -> Compilation | None:
    """Return what decides how a file is compiled; None where models are not kept, or more decides.

    `options` are what compiling is told, as JSON: shapes, level and the like. More decides where
    the passes are watched, checked or replaced, or where the compiler's source is not known.
    """
    settings, compiler = current_settings(), compiler_digest()
    if not settings.model_cache or settings.is_watched or settings.verify > 1 or compiler is None:
        return None
    if target.is_source_only or not model.is_file():
        return None
    began = time.time_ns()
    try:
        digests = [None if file is None else file_digest(file) for file in (model, records)]
    except OSError:
        return None
    facts = {
        "format": _FORMAT,
        "model": digests[0],
        "records": digests[1],
        "options": dict(options),
        "target": repr(asdict(target)),
        "compiler": compiler,
        "backend": version_of(target),
        "readers": {name: _version(name) for name in _READERS},
    }
    return Compilation(model, records, facts, began)


def find(wanted: Compilation) -> Kept | None:
    """Return the model that was compiled so before, None where it was not, or is kept no more."""
    folder = model_folder()
    entry, artifact = _paths(folder, wanted)
    text = None if make_private(folder) else read_own_file(entry, _ENTRY_BYTES)
    if text is None:
        return None
    with suppress(OSError, ArtifactError, ModelError, *_MALFORMED):
        said = json.loads(text)
        if said["facts"] != json.loads(_json(wanted.facts)):
            return None
        for name, digest in said["files"].items():
            if file_digest(_sibling(wanted.model, name)) != digest:
                return None  # the entry of other weights, which the new one replaces
        rows = [(str(label), str(value)) for label, value in said["rows"]]
        opened = ArtifactFile(artifact)
        if _checksum(opened.descriptor) == said["artifact"]:
            os.utime(entry)  # the time of last use
            return Kept(opened, rows)
    _remove(entry, artifact)
    return None


def keep(
    wanted: Compilation,
    files: Iterable[str],
    rows: Sequence[Row],
    nbytes: int,
    write: Callable[[Path], None],
) -> None:
    """Keep the artifact, of about `nbytes`, that `write` makes at a path, with what was printed.

    `files` are those in the model's folder that it names. Does nothing where one of all these was
    changed since the compilation began, where there is little room, or where the disk refuses it.
    """
    folder = model_folder()
    limit = current_settings().model_cache * _MEGABYTE
    entry, artifact = _paths(folder, wanted)
    with suppress(OSError, ArtifactError, ToolchainError, UsageError):
        if make_private(folder) or not _has_room(folder, nbytes, limit):
            return
        digests = {name: file_digest(_sibling(wanted.model, name)) for name in files}
        read = [wanted.model, wanted.records, *(_sibling(wanted.model, n) for n in digests)]
        if any(file is not None and _changed_since(file, wanted.began_ns) for file in read):
            return
        entry.unlink(missing_ok=True)  # never an old entry of a new artifact
        write(artifact)
        with closing(ArtifactFile(artifact)) as made:
            checksum = _checksum(made.descriptor)
        said = {"facts": wanted.facts, "files": digests, "rows": rows, "artifact": checksum}
        with replacing(entry) as file:
            file.write(_json(said))
        evict_unused(_entries(folder), limit)


def model_folder() -> Path:
    """Return the folder of the models that are kept."""
    return current_settings().cache / "models"


def file_digest(path: Path) -> str:
    """Return the digest of a file's content: that of its pieces', which threads make.

    Raises: OSError where it cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        starts = range(0, size, _PIECE)
        with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1) or 1) as threads:
            pieces = list(threads.map(lambda start: _piece_digest(descriptor, start), starts))
    finally:
        os.close(descriptor)
    return hashlib.sha256(b"".join([size.to_bytes(8, "little"), *pieces])).hexdigest()


def _piece_digest(descriptor: int, start: int) -> bytes:
    digest, buffer = hashlib.sha256(), bytearray(_MEGABYTE)
    for at in range(start, start + _PIECE, len(buffer)):
        count = os.preadv(descriptor, [buffer], at)
        digest.update(memoryview(buffer)[:count])
        if count < len(buffer):
            break
    return digest.digest()


def _checksum(descriptor: int) -> str:
    """Return what tells damage of an artifact; it is no proof against intent.

    Of a large one, whose weights `treadle.load` does not look through either, code and plan count:
    they are at its begin and at its end.
    """
    checksum, buffer = native.Hash64(), bytearray(_MEGABYTE)
    view, size = np.frombuffer(buffer, np.uint8), os.fstat(descriptor).st_size
    is_large = size > 2 * _CHECKED_BYTES
    pieces = [(0, _CHECKED_BYTES), (size - _CHECKED_BYTES, size)] if is_large else [(0, size)]
    for start, end in pieces:
        for at in range(start, end, len(buffer)):
            checksum.add_at(view.ctypes.data, os.preadv(descriptor, [buffer], at))
    return f"{checksum.hexdigest()} of {size}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _paths(folder: Path, wanted: Compilation) -> tuple[Path, Path]:
    """Return the JSON file of an entry, and its artifact."""
    name = wanted.name
    return folder / f"{name}.json", folder / f"{name}.tar"


def _entries(folder: Path) -> Iterator[tuple[Path, ...]]:
    """Yield the files of every entry, and each file that a process left that was ended."""
    for path in folder.iterdir():
        if path.suffix == ".json":
            yield path, path.with_suffix(".tar")
        elif path.suffix != ".tar" or not path.with_suffix(".json").exists():
            yield (path,)


def _sibling(model: Path, name: str) -> Path:
    """Return a file in the model's folder. Raises: ModelError for a name that leads out of it."""
    check_location(name)
    return model.parent / name


def _changed_since(file: Path, began_ns: int) -> bool:
    facts = file.stat()
    return max(facts.st_mtime_ns, facts.st_ctime_ns) > began_ns - _CLOCK_NS


def _has_room(folder: Path, nbytes: int, limit: int) -> bool:
    return nbytes * _LARGEST_SHARE <= min(limit, shutil.disk_usage(folder).free)


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
