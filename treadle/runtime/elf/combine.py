# SPDX-License-Identifier: Apache-2.0
"""Joining relocatable files and data into one relocatable file, which shows chosen names only.

What a linker calls `-r`, for what `read_object` reads: sections stay as they are, relocations are
passed on. A model in such a file meets no name of another one in the same program.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

from treadle.errors import ToolchainError
from treadle.runtime.elf.objects import (
    AARCH64,
    RISCV,
    X86_64,
    ObjectFile,
    Part,
    Relocation,
    Section,
    Symbol,
)
from treadle.runtime.elf.relocations import POINTERS

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_IDENTIFICATION = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_RELOCATABLE = 1
_PROGRAM, _SYMTAB, _STRTAB, _RELA = 1, 2, 3, 4
_FLAGS: dict[Part, int] = {"constants": 2, "code": 6, "pointers": 3}
_INFO_LINK = 0x40
_MOST_SECTIONS = 0xFF00 // 2 - 8
_OBJECT, _FUNCTION, _SECTION_TYPE = 1, 2, 3
_RISCV_FLAGS = 5  # compressed instructions, floats of 64 bits in registers: what Linux has

_ADDRESS_OF: dict[int, tuple[str, tuple[tuple[int, int, int], ...]]] = {
    X86_64: ("488d0500000000c3", ((3, 2, -4),)),  # lea rax, [rip + PC32]; ret
    AARCH64: ("0000009000000091c0035fd6", ((0, 275, 0), (4, 277, 0))),  # adrp, add, ret
    RISCV: ("170500001305050067800000", ((0, 23, 0), (4, 24, 0))),  # auipc, addi, ret
}
"""Code of a function without arguments that returns an address: relocations (offset, kind, addend)
in it name the address, but RISC-V's second one, which names the function's first instruction."""


@dataclass
class DataFile:
    """A relocatable file in the making: data with pointers, and functions that return addresses."""

    machine: int
    sections: dict[int, Section] = field(default_factory=dict)
    symbols: list[Symbol] = field(default_factory=lambda: [Symbol("", None, 0, 0, 0, *[False] * 3)])
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, data: bytes | memoryview, align: int = 1) -> None:
        """Define `name` as constant bytes."""
        self._define(name, Section(f".rodata.{name}", data, align, "constants"), _OBJECT)

    def add_table(self, name: str, data: bytes, pointers: Mapping[int, tuple[str, int]]) -> None:
        """Define `name` as bytes with pointers in them: a symbol and an addend by offset."""
        kind = POINTERS[self.machine]
        section = Section(f".data.rel.ro.{name}", data, 8, "pointers")
        section.relocations += [
            Relocation(offset, kind, self._number(symbol), addend)
            for offset, (symbol, addend) in pointers.items()
        ]
        self._define(name, section, _OBJECT)

    def add_function(self, name: str, of: str) -> None:
        """Define `name` as a function that takes nothing and returns the address of `of`."""
        code, relocations = _ADDRESS_OF[self.machine]
        section = Section(f".text.{name}", bytes.fromhex(code), 4, "code")
        for position, (offset, kind, addend) in enumerate(relocations):
            is_label = self.machine == RISCV and position == 1
            symbol = self._number(name if is_label else of)
            section.relocations.append(Relocation(offset, kind, symbol, addend))
        self._define(name, section, _FUNCTION)

    def add_alias(self, name: str, of: str) -> None:
        """Define `name` as another name of data; code in the file is to use the first one.

        A name that a shared object exports may be another library's in the end, and so code cannot
        take its address directly.
        """
        self.symbols[self._number(name)] = replace(self.symbols[self.numbers[of]], name=name)

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.symbols)
            self.symbols.append(Symbol(name, None, 0, 0, 0, True, False, True))
        return self.numbers[name]

    def _define(self, name: str, section: Section, type_: int) -> None:
        number = len(self.sections) + 1
        self.sections[number] = section
        made = Symbol(name, number, 0, len(section.data), type_, True, False, True)
        self.symbols[self._number(name)] = made

    def finish(self) -> ObjectFile:
        """Return the file."""
        flags = _RISCV_FLAGS if self.machine == RISCV else 0
        return ObjectFile("data", self.machine, self.sections, tuple(self.symbols), flags)


def combined(files: Sequence[ObjectFile], exported: Collection[str]) -> ObjectFile:
    """Return one file with the sections of all; of global names only `exported` stay global.

    Raises: ToolchainError when files are for different machines or a name is missing or defined
    twice.
    """
    machine = files[0].machine
    for file in files:
        if file.machine != machine:
            raise ToolchainError(f"{file.label} is for another machine (number {file.machine})")
    sections: dict[int, Section] = {}
    first: list[int] = []  # number of each file's sections, less the number in the file
    for file in files:
        first.append(len(sections))
        for position, section in enumerate(file.sections.values(), 1):
            sections[first[-1] + position] = replace(section, relocations=[])
    numbers = [_numbers(file, base) for file, base in zip(files, first, strict=True)]
    symbols, places = _join_symbols(files, numbers, exported)
    for index, file in enumerate(files):
        for number, section in file.sections.items():
            sections[numbers[index][number]].relocations.extend(
                _moved(file, index, section, places)
            )
    flags = next((f.flags for f in files if f.label != "data"), files[0].flags)
    return ObjectFile("the model", machine, sections, tuple(symbols), flags)


def _numbers(file: ObjectFile, base: int) -> dict[int, int]:
    return {number: base + position for position, number in enumerate(file.sections, 1)}


def _join_symbols(
    files: Sequence[ObjectFile], numbers: Sequence[dict[int, int]], exported: Collection[str]
) -> tuple[list[Symbol], dict[tuple[int, int], int]]:
    """Return all symbols, local ones first, and the place of each one of a file among them."""
    found: dict[str, tuple[int, int]] = {}
    for index, file in enumerate(files):
        for position, symbol in enumerate(file.symbols):
            if not symbol.is_global or symbol.section is None:
                continue
            earlier = found.get(symbol.name)
            if earlier is None or files[earlier[0]].symbols[earlier[1]].is_weak:
                found[symbol.name] = index, position
            elif not symbol.is_weak:
                raise ToolchainError(f"{symbol.name} is defined twice")
    kept: list[tuple[tuple[int, int], Symbol]] = []
    for index, file in enumerate(files):
        for position, symbol in enumerate(file.symbols):
            key = index, position
            if symbol.section is None or (symbol.is_global and found[symbol.name] != key):
                continue
            shown = symbol.is_global and symbol.name in exported
            section = numbers[index][symbol.section]
            kept.append((key, replace(symbol, section=section, is_global=shown, is_weak=False)))
    kept.sort(key=lambda row: row[1].is_global)
    places = {key: place for place, (key, _) in enumerate(kept, 1)}
    for index, file in enumerate(files):
        for position, symbol in enumerate(file.symbols):
            if symbol.is_global and symbol.name in found:
                places[index, position] = places[found[symbol.name]]
    return [Symbol("", None, 0, 0, 0, *[False] * 3), *(symbol for _, symbol in kept)], places


def _moved(
    file: ObjectFile, index: int, section: Section, places: Mapping[tuple[int, int], int]
) -> Iterator[Relocation]:
    for relocation in section.relocations:
        # Number 0 is no symbol: RISC-V marks instructions that a linker may shorten with it.
        place = 0 if relocation.symbol == 0 else places.get((index, relocation.symbol))
        if place is None:
            known = relocation.symbol < len(file.symbols)
            name = file.symbols[relocation.symbol].name if known else "a symbol"
            raise ToolchainError(f"no object defines {name}", at=file.label)
        yield replace(relocation, symbol=place)


class _Table:
    """Names, each once, as an ELF string table."""

    def __init__(self) -> None:
        self.data = bytearray(1)

    def add(self, name: str) -> int:
        start = len(self.data)
        self.data += name.encode() + b"\0"
        return start


def write_relocatable(out: IO[bytes], file: ObjectFile) -> None:
    """Write a file of `combined` as ELF; large data goes from where it lies to `out`."""
    if len(file.sections) > _MOST_SECTIONS:
        raise ToolchainError(f"{len(file.sections)} sections are more than one object file holds")
    names, strings = _Table(), _Table()
    relocated = [n for n, s in file.sections.items() if s.relocations]
    local = sum(not s.is_global for s in file.symbols)
    count = len(file.sections)
    symtab = count + len(relocated) + 2  # after sections, relocations and the mark of the stack
    rows: list[bytes] = [bytes(_SECTION.size)]
    offset = out.write(bytes(_HEADER.size))

    def put(
        name: str, type_: int, flags: int, data: bytes | bytearray | memoryview, align: int,
        link: int = 0, info: int = 0, entry: int = 0,
    ) -> None:  # fmt: skip
        nonlocal offset
        offset += out.write(bytes(-offset % align))
        row = (names.add(name), type_, flags, 0, offset, len(data), link, info, align, entry)
        rows.append(_SECTION.pack(*row))
        offset += out.write(data)

    for section in file.sections.values():
        put(section.name, _PROGRAM, _FLAGS[section.part], section.data, section.align)
    for number in relocated:
        section = file.sections[number]
        data = b"".join(
            _RELOCATION.pack(r.offset, r.kind, r.symbol, r.addend) for r in section.relocations
        )
        put(f".rela{section.name}", _RELA, _INFO_LINK, data, 8, symtab, number, _RELOCATION.size)
    put(".note.GNU-stack", _PROGRAM, 0, b"", 1)
    symbols = b"".join(_symbol_row(s, strings) for s in file.symbols)
    put(".symtab", _SYMTAB, 0, symbols, 8, symtab + 1, local, _SYMBOL.size)
    put(".strtab", _STRTAB, 0, strings.data, 1)
    start = names.add(".shstrtab")
    offset += out.write(bytes(-offset % 8))
    at = offset + len(names.data)
    rows.append(_SECTION.pack(start, _STRTAB, 0, 0, offset, len(names.data), 0, 0, 1, 0))
    out.write(names.data)
    at += out.write(bytes(-at % 8))
    out.write(b"".join(rows))
    out.seek(0)
    out.write(
        _HEADER.pack(
            *(_IDENTIFICATION, _RELOCATABLE, file.machine, 1, 0, 0, at, file.flags),
            *(_HEADER.size, 0, 0, _SECTION.size, len(rows), len(rows) - 1),
        )
    )


def _symbol_row(symbol: Symbol, strings: _Table) -> bytes:
    if symbol.section is None:
        return bytes(_SYMBOL.size)
    name = strings.add(symbol.name) if symbol.name and symbol.type != _SECTION_TYPE else 0
    info = (1 << 4 if symbol.is_global else 0) | symbol.type
    return _SYMBOL.pack(name, info, 0, symbol.section, symbol.value, symbol.size)
