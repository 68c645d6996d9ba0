# SPDX-License-Identifier: Apache-2.0
"""Object files loaded into this process: addresses of their kernels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import llvmlite.binding as llvm

from treadle.errors import InternalError

_ELF_START = 20  # the identification, the type and the machine
_OTHER_START = 2
_ELF64_HEADER = 64


class JitModule:
    """Loaded object files; their code is freed when this object is."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        """Load object files made for this machine.

        Raises: InternalError when the bytes are no object file of this machine's format.
        """
        machine = _host_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
            _check(data)
            try:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            except (RuntimeError, ValueError) as error:
                raise InternalError(f"a compiled kernel cannot be loaded: {error}") from error
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the address of a function. Raises InternalError when there is none."""
        found = int(self._engine.get_function_address(name))
        if not found:
            raise InternalError(f"the loaded code has no function {name}")
        return found


def _host_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="default")


@cache
def _own_start() -> bytes:
    """Return how every object file for this machine begins."""
    sample = bytes(_host_machine().emit_object(llvm.parse_assembly("")))
    return sample[: _ELF_START if sample.startswith(b"\x7fELF") else _OTHER_START]


def _check(data: bytes) -> None:
    """Refuse what LLVM's loader would crash on: other formats, other machines, cut files."""
    start = _own_start()
    if not data.startswith(start):
        raise InternalError("a compiled kernel cannot be loaded: it is not for this machine")
    if start.startswith(b"\x7fELF\x02\x01") and not _has_sections(data):
        raise InternalError("a compiled kernel cannot be loaded: the file is cut short")


def _has_sections(data: bytes) -> bool:
    if len(data) < _ELF64_HEADER:
        return False
    offset = int.from_bytes(data[40:48], "little")
    size, count = (int.from_bytes(data[i : i + 2], "little") for i in (58, 60))
    return offset + size * count <= len(data)
