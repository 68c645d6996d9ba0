# SPDX-License-Identifier: Apache-2.0
"""Kernels built from te as a shared object that describes itself: saving."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from treadle.files import check_writable, replacing
from treadle.runtime.kernel_files import LIBRARY_TEXT, described
from treadle.runtime.signature import Signature
from treadle.runtime.toolchain import link_shared
from treadle.target.backend import backend_of
from treadle.target.base import Target


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
    text = described(kernels, target.required_features)
    backend = backend_of(target)
    source = backend.constant(LIBRARY_TEXT, text.encode() + b"\0", target)
    (code,) = backend.compile([(LIBRARY_TEXT, source)], target, None).values()
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        linked = link_shared([*objects, code], Path(folder) / "lib.so", target.triple, linker)
        with replacing(out) as file:
            file.write(linked.read_bytes())
