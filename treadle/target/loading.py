# SPDX-License-Identifier: Apache-2.0
"""Object code into this process: linked by Treadle itself, or where it cannot, loaded by LLVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module

from treadle.errors import ArtifactError, InternalError, TreadleError
from treadle.runtime import native
from treadle.runtime.elf.link import link_objects
from treadle.runtime.toolchain import own_machine
from treadle.target.backend import LoadedCode


class LinkedCode:
    """Object files linked into one shared object in memory; it is unloaded with this object."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        """Link and load object files made for this machine.

        Raises: TreadleError where Treadle cannot link them, or the system does not load them.
        """
        self._library = native.Library(link_objects(objects, own_machine(None)))

    def address(self, name: str) -> int:
        """Return the address of a function. Raises InternalError when there is none."""
        try:
            return self._library.kernel(name)
        except ArtifactError:
            raise InternalError(f"the loaded code has no function {name}") from None


def load_objects(objects: Iterable[bytes]) -> LoadedCode:
    """Return object files made for this machine, loaded.

    LLVM, which takes fifty megabytes, is asked where Treadle does not link: for machines that it
    does not know, and for code that calls functions of the C library.

    Raises: InternalError when the bytes are no object file of this machine's format.
    """
    files = list(objects)
    if files and own_machine(None) is not None:
        try:
            return LinkedCode(files)
        except TreadleError:
            pass
    loaded: LoadedCode = import_module("treadle.target.jit").JitModule(files)
    return loaded
