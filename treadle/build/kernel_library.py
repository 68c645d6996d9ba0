# SPDX-License-Identifier: Apache-2.0
"""Kernels built from te as a shared object that describes itself: saving and loading.

Beside the kernels the object holds the text `treadle_kernels`: JSON that says what each kernel
takes and which CPU features it needs. Nothing else is needed to call them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from treadle.errors import ArtifactError
from treadle.files import check_writable, replacing
from treadle.runtime import native
from treadle.runtime.module import LoadedKernel, Module, loaded_kernels
from treadle.runtime.signature import Signature
from treadle.runtime.toolchain import link_shared
from treadle.target.backend import backend_of
from treadle.target.base import Target

_TEXT = "treadle_kernels"
_FORMAT = 1


def save_kernels(
    path: str | os.PathLike[str],
    kernels: Mapping[str, Signature],
    objects: Sequence[bytes],
    target: Target,
    linker: str | Sequence[str] | None = None,
) -> None:
    """Write kernels as the shared object `path`.

    Raises:
        ToolchainError: there is no linker. UsageError: the file cannot be written.
    """
    out = Path(path)
    check_writable(out)
    described = _described(kernels, target)
    backend = backend_of(target)
    text = backend.constant(_TEXT, described.encode() + b"\0", target)
    (code,) = backend.compile([(_TEXT, text)], target, None).values()
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        linked = link_shared([*objects, code], Path(folder) / "lib.so", target.triple, linker)
        with replacing(out) as file:
            file.write(linked.read_bytes())


def load_module(path: str | os.PathLike[str]) -> Module[LoadedKernel]:
    """Return kernels that `treadle.build(...).save(path)` wrote, ready to be called.

    A library holds machine code: load only files you trust.

    Raises:
        ArtifactError: the file is missing, damaged, made for another machine, or holds no kernels.
    """
    place = os.fspath(path)
    library = native.Library(place)
    text = library.text(_TEXT)
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


def _described(kernels: Mapping[str, Signature], target: Target) -> str:
    return json.dumps(
        {
            "format": _FORMAT,
            "cpu_features": list(target.required_features),
            "kernels": {name: signature.to_json() for name, signature in kernels.items()},
        },
        separators=(",", ":"),
    )
