# SPDX-License-Identifier: Apache-2.0
"""A compiled model as part of a program: the tables `td_linked` of treadle.h, in machine code.

Code, plan and weights become sections of one relocatable file that shows a single function,
`NAME_model`; or of a shared object, which shows the table to `td_open` as well. See
docs/design/formats.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treadle.errors import ToolchainError
from treadle.runtime import native
from treadle.runtime.elf.combine import DataFile, combined
from treadle.runtime.elf.objects import AARCH64, RISCV, X86_64, ObjectFile, read_object
from treadle.target.names import symbol

if TYPE_CHECKING:
    from treadle.build.executable import Executable

FORMAT = 1
"""TD_LINKED_FORMAT of treadle.h."""

TABLE = "treadle_model"
"""The name under which `td_open` finds the table in a shared object."""

_MACHINES = {"x86_64": X86_64, "aarch64": AARCH64, "riscv64": RISCV}
_MODEL = struct.Struct("<IIIIQQQQQ")
_PLAN_AT, _KERNELS_AT, _CONSTANTS_AT = 16, 32, 40
_SYMBOL_BYTES, _CONSTANT_BYTES = 16, 24
_REACH = 1 << 31  # of an instruction that takes the address of something in the same file


@dataclass(frozen=True)
class LinkedModel:
    """What is linked: `name` is a C identifier, `plan` JSON, `kernels` names of functions."""

    name: str
    plan: bytes
    kernels: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    arena_bytes: int

    @property
    def entry(self) -> str:
        """The function that returns the model."""
        return f"{self.name}_model"

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return sum(v.nbytes for v in self.constants.values())


def linked_model(exe: Executable, name: str, plan: Mapping[str, object]) -> LinkedModel:
    """Return what becomes part of a program; `name` is made a C identifier."""
    text = json.dumps(plan, separators=(",", ":")).encode()
    return LinkedModel(
        symbol(name),
        text,
        tuple(k.name for k in exe.kernels),
        exe.memory.constants,
        lent_bytes(exe),
    )


def lent_bytes(exe: Executable) -> int:
    """Return the bytes `td_open_static` needs: arena, inputs and outputs, however it is aligned."""
    memory = exe.memory
    if memory.is_dynamic:
        return 0
    sizes = [memory.arena_bytes, *(v.nbytes for _, v in (*memory.inputs, *memory.outputs))]
    return native.ALIGNMENT - 1 + sum(size + -size % native.ALIGNMENT for size in sizes)


def raw_bytes(value: np.ndarray) -> memoryview:
    """Return the bytes of an array, where they are if it has no gaps."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data.cast("B")


def linked_object(exe: Executable, model: LinkedModel, *exported: str) -> ObjectFile:
    """Return the model as one relocatable file, with the names `exported` besides its entry.

    Raises: ToolchainError for a machine other than x86-64, AArch64 and RISC-V of 64 bits, and for
    more weights than code in the same file can address.
    """
    if model.weight_bytes + len(model.plan) >= _REACH - (256 << 20):
        raise ToolchainError(
            f"{model.weight_bytes:,} bytes of weights are too many for one object file",
            hint="write a .tar, which has no such limit",
        )
    files = [read_object(code, name) for name, code in exe.objects.items()]
    data = DataFile(files[0].machine if files else _machine(exe.target.triple))
    data.add("treadle.plan", model.plan)
    strings = _Strings()
    _add_kernels(data, model, strings)
    _add_constants(data, model, strings)
    data.add("treadle.names", bytes(strings.data))
    head = (FORMAT, len(model.kernels), len(model.constants), 0)
    row = _MODEL.pack(*head, 0, len(model.plan), 0, 0, model.arena_bytes)
    pointers = {_PLAN_AT: "plan", _KERNELS_AT: "kernels", _CONSTANTS_AT: "constants"}
    places = {at: (f"treadle.{name}", 0) for at, name in pointers.items()}
    data.add_table("treadle.model", row, places)
    data.add_alias(TABLE, "treadle.model")
    data.add_function(model.entry, "treadle.model")
    return combined([*files, data.finish()], {model.entry, *exported})


def _machine(triple: str) -> int:
    name = triple.partition("-")[0]
    if name not in _MACHINES:
        raise ToolchainError(f"object files for {triple} are not possible")
    return _MACHINES[name]


class _Strings:
    """Texts that end with NUL, one after the other."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, text: str) -> tuple[str, int]:
        """Append a text; return what points to it."""
        start = len(self.data)
        self.data += text.encode() + b"\0"
        return "treadle.names", start


def _add_kernels(data: DataFile, model: LinkedModel, strings: _Strings) -> None:
    def pointers() -> Iterator[tuple[int, tuple[str, int]]]:
        for position, name in enumerate(model.kernels):
            yield _SYMBOL_BYTES * position, strings.add(name)
            yield _SYMBOL_BYTES * position + 8, (name, 0)

    size = _SYMBOL_BYTES * max(1, len(model.kernels))
    data.add_table("treadle.kernels", bytes(size), dict(pointers()))


def _add_constants(data: DataFile, model: LinkedModel, strings: _Strings) -> None:
    table = bytearray(_CONSTANT_BYTES * max(1, len(model.constants)))
    pointers: dict[int, tuple[str, int]] = {}
    for position, (name, value) in enumerate(model.constants.items()):
        at, weight = _CONSTANT_BYTES * position, f"treadle.weight{position}"
        # A section of no bytes is none: an empty weight has some that nobody reads.
        data.add(weight, raw_bytes(value) if value.nbytes else bytes(1), native.ALIGNMENT)
        pointers |= {at: strings.add(name), at + 8: (weight, 0)}
        struct.pack_into("<Q", table, at + 16, value.nbytes)
    data.add_table("treadle.constants", bytes(table), pointers)
