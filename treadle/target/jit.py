# SPDX-License-Identifier: Apache-2.0
"""Object files loaded into this process: addresses of their kernels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import llvmlite.binding as llvm

from treadle.errors import InternalError


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class JitModule:
    """Loaded object files; their code is freed when this object is."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        """Load object files made for this machine.

        Raises: InternalError when the bytes are no object file of this machine's format.
        """
        _initialize()
        machine = llvm.Target.from_default_triple().create_target_machine(
            reloc="pic", codemodel="default"
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
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
