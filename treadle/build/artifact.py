# SPDX-License-Identifier: Apache-2.0
"""Saving a compiled model: a tar of mod.so (code), mod.json (graph and plan), mod.params (weights).

The three members carry TVM v0.8's names and formats; the plan of the native executor stands in
mod.json under "treadle". Every weight begins at a multiple of 64 bytes of the file, so that the
runtime can map it. Weights stream from where they are to the file; they are never joined in
memory. The file is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tarfile
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from treadle import dtype as dt
from treadle.build.plan_json import graph_json
from treadle.files import check_writable, refused, replacing
from treadle.runtime import native
from treadle.runtime.kernel_files import TABLE, kernel_table, table_checksum
from treadle.runtime.pages import release_pages
from treadle.runtime.toolchain import link_shared

if TYPE_CHECKING:
    from treadle.build.executable import Executable

_LIST_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_CPU = 1
_TYPE_CODES = {
    "int": 0,
    "uint": 1,
    "float": 2,
    "bfloat": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
    "float4_e2m1fn": 17,
}


def save_artifact(
    exe: Executable, path: str | os.PathLike[str], linker: str | Sequence[str] | None = None
) -> None:
    """Write `exe` to `path`.

    Raises:
        ToolchainError: nothing links for the target.
        UsageError: the folder of `path` does not exist.
    """
    target = Path(path)
    check_writable(target)
    code = _linked(exe, target, linker)
    with replacing(target) as file:
        add_member(file, "mod.so", code)
        checksums = {"mod.params": add_params(file, exe.memory.constants)}
        add_member(file, "mod.json", _manifest(exe, code, checksums))
        file.write(bytes(2 * tarfile.BLOCKSIZE))


def _linked(exe: Executable, target: Path, linker: str | Sequence[str] | None) -> bytes:
    """Return the kernels as one shared object; nothing for a model without any."""
    if not exe.objects:
        return b""
    try:
        with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
            library = Path(folder) / "mod.so"
            link_shared(list(exe.objects.values()), library, exe.target.triple, linker)
            return library.read_bytes()
    except OSError as error:
        raise refused(target, error) from None


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.GNU_FORMAT)


def _pad(file: IO[bytes], size: int) -> None:
    file.write(bytes(-size % tarfile.BLOCKSIZE))


def add_member(file: IO[bytes], name: str, data: bytes) -> None:
    """Write one member of a tar."""
    file.write(_header(name, len(data)))
    file.write(data)
    _pad(file, len(data))


def _manifest(exe: Executable, code: bytes, checksums: dict[str, str]) -> bytes:
    hashes = {"mod.so": hashlib.sha256(code).hexdigest()}
    plan = _compact(exe.plan)  # these very bytes stand in the manifest
    graph = graph_json(exe.memory, exe.plan, hashes)
    kernels = kernel_table({k.name: k.signature for k in exe.kernels})
    checksums |= {"treadle": native.hash64(plan), TABLE: table_checksum(kernels)}
    return _compact(graph | {TABLE: kernels, "checksums": checksums})


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def add_params(
    file: IO[bytes], constants: Mapping[str, np.ndarray], member: str = "mod.params"
) -> str:
    """Stream the weights as a member; return its checksum."""
    arrays = _aligned(constants, file.tell() + tarfile.BLOCKSIZE)
    head = _list_header(arrays)
    heads = [_array_header(v) for v in arrays.values()]
    size = len(head) + sum(map(len, heads)) + sum(v.nbytes for v in arrays.values())
    file.write(_header(member, size))
    checksum = native.Hash64()

    def write(piece: np.ndarray) -> None:
        checksum.add_at(piece.ctypes.data, piece.nbytes)
        file.write(piece.data)

    write(np.frombuffer(head, np.uint8))
    for array_head, value in zip(heads, arrays.values(), strict=True):
        write(np.frombuffer(array_head, np.uint8))
        write(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        release_pages(value)
    _pad(file, size)
    return checksum.hexdigest()


def _aligned(constants: Mapping[str, np.ndarray], start: int) -> dict[str, np.ndarray]:
    """Return the arrays to write so that each of `constants` can be used where it lies in the file.

    The format has no room for padding. So an array of bytes that nobody asks for comes before every
    constant; readers skip names that they do not know. `start` is where
    in the file the list begins.
    """
    paddings = [f"padding{i}" for i in range(len(constants))]
    names = [name for pair in zip(paddings, constants, strict=True) for name in pair]
    assert len(set(names)) == len(names), "constants are not called like paddings"
    at = start + len(_list_header(names))
    arrays = {}
    for padding, (name, value) in zip(paddings, constants.items(), strict=True):
        data = at + len(_array_header(_filler(0))) + len(_array_header(value))
        arrays[padding] = _filler(-data % native.ALIGNMENT)
        arrays[name] = value
        at = data + arrays[padding].nbytes + value.nbytes
    return arrays


def _filler(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)


def _list_header(names: Collection[str]) -> bytes:
    encoded = [name.encode() for name in names]
    head = struct.pack("<QQQ", _LIST_MAGIC, 0, len(encoded))
    head += b"".join(struct.pack("<Q", len(name)) + name for name in encoded)
    return head + struct.pack("<Q", len(encoded))


def _array_header(value: np.ndarray) -> bytes:
    name = dt.from_numpy(value.dtype)
    code, width = (1, 1) if name == "bool" else _dlpack_type(name)
    shape = struct.pack(f"<{value.ndim}q", *value.shape)
    return (
        struct.pack("<QQiiiBBH", _ARRAY_MAGIC, 0, _CPU, 0, value.ndim, code, width, 1)
        + shape
        + struct.pack("<q", value.nbytes)
    )


def _dlpack_type(name: str) -> tuple[int, int]:
    width = dt.NARROW_BITS[name] if dt.is_narrow(name) else dt.bits(name)
    known = name if name in _TYPE_CODES else name.rstrip("0123456789")
    return _TYPE_CODES[known], width
