# SPDX-License-Identifier: Apache-2.0
"""Kernels, plans and artifacts for the tests of the runtime, made without the compiler."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import subprocess
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.runtime import native, native_build, toolchain

ROOT = Path(__file__).resolve().parents[2]
KERNELS_C = ROOT / "tests" / "native" / "kernels.c"

Plan = dict[str, Any]


@cache
def compiler() -> list[str]:
    """Return a C compiler; skip the test where there is none."""
    commands = native_build.find_compilers()
    if not commands:
        pytest.skip("no C compiler")
    return commands[0]


def compile_object(source: Path, output: Path) -> bytes:
    """Compile one C file to an object that needs no libc."""
    include = f"-I{ROOT / 'native' / 'include'}"
    flags = ["-std=c11", "-O2", "-fPIC", "-ffreestanding", "-fno-tree-loop-distribute-patterns"]
    command = [*compiler(), *flags, include, "-c", str(source), "-o", str(output)]
    subprocess.run(command, check=True, timeout=120)
    return output.read_bytes()


@cache
def kernel_code() -> bytes:
    """Return the test kernels as a shared object."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        objects = [compile_object(KERNELS_C, Path(folder) / "kernels.o")]
        return toolchain.link_shared(objects, Path(folder) / "kernels.so").read_bytes()


def cut_off(code: bytes) -> bytes:
    """Return a shared object up to the last byte that the loader maps, without that one."""
    table, entry, count = struct.unpack_from("<Q14xHH", code, 32)
    headers = [struct.unpack_from("<I4xQ16xQ", code, table + k * entry) for k in range(count)]
    return code[: max(offset + size for kind, offset, size in headers if kind == 1) - 1]


@cache
def kernel_library() -> native.Library:
    """Return the test kernels, loaded."""
    return native.Library(kernel_code())


def kernel_addresses(*names: str) -> dict[str, int]:
    """Return the addresses of test kernels."""
    return {name: kernel_library().kernel(name) for name in names}


def value(kind: str, **place: object) -> Plan:
    """Return one value of 16 float32 elements."""
    return {"kind": kind, "dtype": "float32", "shape": [4, 4], "bytes": 64, **place}


def small_plan() -> Plan:
    """Return the plan of out = 2 * (data + p0) + p0; also = data + p0."""
    return {
        "version": 1,
        "target": "llvm",
        "triple": "",
        "cpu_features": [],
        "arena_bytes": 192,
        "values": [
            value("input"),
            value("constant", param="p0"),
            value("arena", offset=0),
            value("arena", offset=64),
            value("workspace", offset=128),
            value("output"),
            value("output"),
        ],
        "inputs": [{"name": "data", "value": 0}],
        "outputs": [{"name": "out", "value": 5}, {"name": "sum", "value": 6}],
        "instructions": [
            {"op": "call", "kernel": "add16", "args": [0, 1, 2], "dims": [], "origin": "add_1"},
            {"op": "call", "kernel": "twice16", "args": [2, 3, 4], "dims": [], "origin": "mul"},
            {"op": "call", "kernel": "add16", "args": [3, 1, 5], "dims": [], "origin": "add_2"},
            {"op": "copy", "from": 2, "to": 6, "origin": "identity"},
        ],
    }


def small_constants() -> dict[str, np.ndarray]:
    """Return the constants of `small_plan`."""
    return {"p0": np.arange(16, dtype=np.float32).reshape(4, 4)}


# ---- artifacts -----------------------------------------------------------------------------------

_CODES = {"float32": (2, 32), "int64": (0, 64), "bool": (1, 1), "bfloat16": (4, 16)}


def array_bytes(array: np.ndarray) -> bytes:
    """Return one array in the weights format."""
    code, bits = _CODES[array.dtype.name]
    head = struct.pack("<QQiii", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim)
    head += struct.pack("<BBH", code, bits, 1)
    head += struct.pack(f"<{array.ndim}q", *array.shape) + struct.pack("<q", array.nbytes)
    return head + array.tobytes()


def params_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return named arrays as the content of mod.params."""
    text = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, len(arrays))
    for name in arrays:
        text += struct.pack("<Q", len(name.encode())) + name.encode()
    return text + struct.pack("<Q", len(arrays)) + b"".join(map(array_bytes, arrays.values()))


def members(
    plan: Plan | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    code: bytes | None = None,
    params: bytes | None = None,
    **manifest: object,
) -> dict[str, bytes]:
    """Return the members of an artifact; `manifest` adds to mod.json or replaces parts of it."""
    code = kernel_code() if code is None else code
    params = params_bytes(constants or small_constants()) if params is None else params
    hashes = {
        "mod.so": hashlib.sha256(code).hexdigest(),
        "mod.params": hashlib.sha256(params).hexdigest(),
    }
    content: dict[str, object] = {"nodes": [], "treadle": plan or small_plan(), "hashes": hashes}
    text = json.dumps({**content, **manifest}).encode()
    return {"mod.so": code, "mod.json": text, "mod.params": params}


def tar_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return files as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def write_artifact(path: Path, files: Mapping[str, bytes] | None = None) -> Path:
    """Write an artifact (default: the small one) and return its path."""
    path.write_bytes(tar_bytes(members() if files is None else files))
    return path
