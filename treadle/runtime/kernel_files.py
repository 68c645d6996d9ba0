# SPDX-License-Identifier: Apache-2.0
"""Kernels in files: those of an artifact, and libraries that `treadle.build(...).save` wrote.

A library holds, in addition to the kernels, the text `treadle_kernels`: JSON that says what each
kernel takes and which CPU features it needs. An artifact says the first in its mod.json.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from treadle.errors import ArtifactError, UsageError
from treadle.runtime import native
from treadle.runtime.artifact_file import ArtifactFile
from treadle.runtime.module import LoadedKernel, Module, loaded_kernels
from treadle.runtime.signature import Json, Signature

if TYPE_CHECKING:
    pass

TABLE = "kernels"
"""The entry of mod.json, and of the checksums in it."""
LIBRARY_TEXT = "treadle_kernels"
_FORMAT = 1


def kernel_table(kernels: Mapping[str, Signature]) -> Json:
    """Return what kernels take, by name."""
    return {name: signature.to_json() for name, signature in kernels.items()}


def table_checksum(table: Mapping[str, object]) -> str:
    """Return the hash that finds damage in a table."""
    return native.hash64(json.dumps(table, separators=(",", ":"), sort_keys=True).encode())


def load_kernels(file: ArtifactFile) -> list[LoadedKernel]:
    """Return the kernels of an artifact that was loaded, and so fits this machine.

    Raises: ArtifactError when it does not say what they take, or has changed since.
    """
    try:
        manifest, code = _members(file)
        signatures = _signatures(manifest)
    except ArtifactError as error:
        raise error.located(file.name) from None
    except (OSError, ValueError, KeyError, TypeError, UsageError, tarfile.TarError) as error:
        raise ArtifactError(
            f"what the artifact says of its kernels cannot be read: {error!r}", at=file.name
        ) from None
    if native.sha256_at(code, len(code)) != manifest["hashes"]["mod.so"]:
        raise ArtifactError("the artifact has changed since it was loaded", at=file.name)
    return list(loaded_kernels(code, signatures).values()) if signatures else []


def _members(file: ArtifactFile) -> tuple[dict[str, dict[str, object]], bytes]:
    """Return the manifest and the machine code."""
    if os.pread(file.descriptor, 4, 0) == b"\x7fELF":
        raise ArtifactError(
            "a shared object does not say what its kernels take",
            hint="save the model as a .tar to call its kernels alone",
        )
    with os.fdopen(os.dup(file.descriptor), "rb") as stream:
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            texts = [archive.extractfile(name) for name in ("mod.json", "mod.so")]
            manifest, code = (b"" if text is None else text.read() for text in texts)
    data = json.loads(manifest)
    if not isinstance(data, dict):
        raise TypeError("mod.json holds no object")
    return data, code


def _signatures(manifest: Mapping[str, Mapping[str, object]]) -> dict[str, Signature]:
    table = manifest.get(TABLE)
    if table is None:
        raise ArtifactError(
            "the artifact does not say what its kernels take: an older version has written it",
            hint="compile the model again, or time it as a whole",
        )
    if table_checksum(table) != manifest["checksums"][TABLE]:
        raise ArtifactError("the table of kernels (in mod.json) does not match its hash")
    return {name: Signature.from_json(name, row) for name, row in table.items()}


# ---- libraries of kernels ------------------------------------------------------------------------


def described(kernels: Mapping[str, Signature], cpu_features: Sequence[str]) -> str:
    """Return what a library says of its kernels, and of the CPU features they need."""
    return json.dumps(
        {
            "format": _FORMAT,
            "cpu_features": list(cpu_features),
            "kernels": kernel_table(kernels),
        },
        separators=(",", ":"),
    )


def load_module(path: str | os.PathLike[str], text: str | None = None) -> Module[LoadedKernel]:
    """Return kernels that `treadle.build(...).save(path)` wrote, ready to be called.

    Of a library that does not say what its kernels take, `text` says it, see `described`.

    A library holds machine code: load only files you trust.

    Raises:
        ArtifactError: the file is missing, damaged, made for another machine, or holds no kernels.
    """
    place = os.fspath(path)
    library = native.Library(place)
    text = library.text(LIBRARY_TEXT) if text is None else text
    if text is None:
        raise ArtifactError(
            "the library does not say which kernels it holds",
            at=str(place),
            hint="load one that treadle.build(...).save made; models are loaded by treadle.load",
        )
    try:
        data = json.loads(text)
        rows = data["kernels"].items()
        signatures = {name: Signature.from_json(name, row) for name, row in rows}
        needed = set(data["cpu_features"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"what the library says of its kernels cannot be read: {error!r}", at=str(place)
        ) from None
    missing = sorted(needed - set(native.cpu_features()))
    if missing:
        raise ArtifactError(
            f"the kernels need CPU features that this machine lacks: {', '.join(missing)}",
            at=str(place),
            hint="build them for this machine",
        )
    return Module(loaded_kernels(library, signatures))
