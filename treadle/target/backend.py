# SPDX-License-Identifier: Apache-2.0
"""The contract of a back end: what turns loop nests into code, and the table of those there are.

A back end owns its road: its list of lowering passes, its source text, its object code and how
that is loaded into this process. Dumping, overriding and caching of the stages is written once, in
`build`, over this contract; nothing outside this package names a back end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from treadle.errors import InternalError, UsageError
from treadle.target.base import Target

if TYPE_CHECKING:  # who asks for a version or loads object code needs no loop nests
    from treadle.loop.nodes import PrimFunc
    from treadle.passes import Pipeline

OnDone = Callable[[str, bool], None]
"""Called with a kernel's name and whether it came from the cache, as each is ready."""


class CompileError(Exception):
    """A back end's compiler refuses a source text; the message is the compiler's."""


class LoadedCode(Protocol):
    """Object code in this process; it is freed with this object."""

    def address(self, name: str) -> int:
        """Return the address of a kernel. Raises InternalError when there is none."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The stages from a loop nest to code that runs, for targets of one kind.

    `kind` is the first word of its target strings; `suffix` names the files of its source text.
    `lowering(target)` lists the passes over loop nests; `emit(func, target)` prints what they give
    as source text, the same text for the same function; `constant(name, data, target)` is source
    text that defines a symbol of constant bytes. `check(text, target)` raises CompileError where
    the text does not compile. `compile(jobs, target, on_done)` takes (name, text) pairs and
    returns the object code by name, cached on disk; it raises InternalError naming the kernels
    that fail. `assembly(texts, target)` returns the assembly of each text by name.
    `version(target)` says what, in addition to the text and the target, decides the object code.
    `load(objects)` loads object code made for this machine. `describe()` says in a line which
    compiler is at hand, for `treadle doctor`; it raises ToolchainError where there is none.
    """

    kind: str
    suffix: str
    lowering: Callable[[Target], Pipeline[PrimFunc]]
    emit: Callable[[PrimFunc, Target], str]
    constant: Callable[[str, bytes, Target], str]
    check: Callable[[str, Target], None]
    compile: Callable[[Iterable[tuple[str, str]], Target, OnDone | None], dict[str, bytes]]
    assembly: Callable[[Mapping[str, str], Target], dict[str, str]]
    version: Callable[[Target], str]
    load: Callable[[Iterable[bytes]], LoadedCode]
    describe: Callable[[], str]


_BUILT_IN: Mapping[str, str] = {
    "llvm": "treadle.target.llvm_backend",
    "c": "treadle.target.c_backend",
    "cuda": "treadle.target.cuda_backend",
    "opencl": "treadle.target.opencl_backend",
}
"""The module that defines `BACKEND` for each kind of target; loaded at the first use."""

_VERSIONS: Mapping[str, str] = {"llvm": "treadle.target.workers"}
"""Modules whose `compiler_version` is the version of a back end, for those who need no more."""

_registered: dict[str, Backend] = {}


def backend_kinds() -> tuple[str, ...]:
    """Return the kinds of target that code can be made for."""
    return (*_BUILT_IN, *_registered)


def register_backend(backend: Backend) -> None:
    """Make a back end from outside this package known under its kind, for this process.

    Raises: UsageError when there is one of that kind already.
    """
    if backend.kind in backend_kinds():
        raise UsageError(
            f"there is a back end for targets of kind {backend.kind!r} already",
            hint="give yours another kind",
        )
    _registered[backend.kind] = backend


def backend_of(target: Target | str) -> Backend:
    """Return the back end that makes code for a target, or for targets of a kind.

    Raises: InternalError for a kind that `parse_target` does not accept.
    """
    kind = target if isinstance(target, str) else target.kind
    if kind in _registered:
        return _registered[kind]
    if kind not in _BUILT_IN:
        raise InternalError(f"there is no back end for targets of kind {kind!r}")
    backend = import_module(_BUILT_IN[kind]).BACKEND
    assert isinstance(backend, Backend)
    return backend


def version_of(target: Target) -> str:
    """Return `Backend.version` of a target, without the back end where that can be told."""
    if target.kind in _VERSIONS:
        version = import_module(_VERSIONS[target.kind]).compiler_version()
        assert isinstance(version, str)
        return version
    return backend_of(target).version(target)
