# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels kept on disk under what they are made of, so that nothing is lowered twice.

The key is the whole content: the fused function as text, the target with every number schedules
read, and a digest of the compiler's own source (and of the file of any operator from outside it).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from treadle.graph import nodes as g
from treadle.graph.nodes import Function
from treadle.settings import get as current_settings
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.cache import KernelCache

_PACKAGE = Path(__file__).resolve().parents[1]
_SIZE_BYTES = 8


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Object code and the scratch memory its caller must lend it (as sizes.size_to_json)."""

    code: bytes
    workspace: object


@cache
def compiler_digest() -> str:
    """Return a digest of the source of this package."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(_PACKAGE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _foreign_digests(function: Function) -> list[str]:
    """Digests of the files that define operators from outside this package."""
    found: set[str] = set()
    for node in g.topological([function.body]):
        if not isinstance(node, g.Call) or isinstance(node.op, Function):
            continue
        source = inspect.getsourcefile(node.op.compute) if node.op.compute is not None else None
        if source and not Path(source).resolve().is_relative_to(_PACKAGE):
            found.add(_file_digest(source))
    return sorted(found)


def kernel_key(name: str, text: str, function: Function, target: Target) -> str:
    """Return the key of a kernel: everything its code depends on."""
    versions = [compiler_digest(), backend_of(target).version(target)]
    parts = [name, *versions, repr(asdict(target)), *_foreign_digests(function), text]
    return "\n".join(parts)


@cache
def _store(root: Path) -> KernelCache:
    return KernelCache(root)


def _is_watched() -> bool:
    """True when the user wants to see or to replace what happens between graph and code.

    Then every kernel must be made anew, and an edited one must not be kept under its old key.
    """
    now = current_settings()
    return bool(now.dump or now.override or now.time or now.debug)


def load_kernel(key: str) -> CompiledKernel | None:
    """Return a kernel kept under `key`, None where there is none or the passes are watched."""
    if _is_watched():
        return None
    data = _store(current_settings().cache / "groups").load(key)
    if data is None or len(data) <= _SIZE_BYTES:
        return None
    start = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "little")
    return CompiledKernel(data[start:], json.loads(data[_SIZE_BYTES:start]))


def store_kernel(key: str, kernel: CompiledKernel) -> None:
    """Keep a kernel under `key`, unless the passes are watched."""
    if _is_watched():
        return
    workspace = json.dumps(kernel.workspace).encode()
    head = len(workspace).to_bytes(_SIZE_BYTES, "little") + workspace
    _store(current_settings().cache / "groups").store(key, head + kernel.code)
