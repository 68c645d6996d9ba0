# SPDX-License-Identifier: Apache-2.0
"""Saving a model for a GPU: an artifact with one member more, mod.gpu, which comes first.

mod.gpu is a line of JSON, which says where the code of each kernel lies behind it and what its
parameters are; the other members are those of `treadle.build.artifact`. mod.so holds the kernels
that run on the CPU.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.build.artifact import add_member, add_params
from treadle.build.gpu_places import host_target
from treadle.files import check_writable, replacing
from treadle.runtime.artifact_file import GPU_MEMBER
from treadle.runtime.gpu.artifact import FORMAT
from treadle.runtime.kernel_files import kernel_table
from treadle.runtime.toolchain import link_shared

if TYPE_CHECKING:
    from treadle.build.gpu_executable import GpuExecutable


def save_gpu_artifact(
    exe: GpuExecutable, path: Path, linker: str | Sequence[str] | None = None
) -> None:
    """Write `exe` to `path`. Raises: ToolchainError, UsageError as `save_artifact`."""
    check_writable(path)
    codes = {k.name: k.object_code().code for k in exe.on_device}
    library = _linked(exe, linker)
    head = {
        "format": FORMAT,
        "kind": exe.target.kind,
        "architecture": exe.target.cpu,
        "sizes": {name: len(code) for name, code in codes.items()},
        "kernels": kernel_table({k.name: k.signature for k in exe.kernels}),
        "cpu_features": list(host_target().required_features) if exe.on_host else [],
        "plan": exe.plan,
        "hashes": {
            "code": hashlib.sha256(b"".join(codes.values())).hexdigest(),
            "mod.so": hashlib.sha256(library).hexdigest(),
        },
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    with replacing(path) as file:
        add_member(file, GPU_MEMBER, text + b"\n" + b"".join(codes.values()))
        add_member(file, "mod.so", library)
        checksum = add_params(file, exe.memory.constants)
        tail = {"hashes": {GPU_MEMBER: hashlib.sha256(text).hexdigest()}}
        tail["checksums"] = {"mod.params": checksum}
        add_member(file, "mod.json", json.dumps(tail).encode())
        file.write(bytes(1024))


def _linked(exe: GpuExecutable, linker: str | Sequence[str] | None) -> bytes:
    """Return the kernels of the CPU as a shared object; nothing where there are none."""
    objects = [k.object_code().code for k in exe.on_host]
    if not objects:
        return b""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        library = Path(folder) / "mod.so"
        link_shared(objects, library, host_target().triple, linker)
        return library.read_bytes()
