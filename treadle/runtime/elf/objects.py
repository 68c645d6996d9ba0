# SPDX-License-Identifier: Apache-2.0
"""Reading relocatable ELF files: the sections that are loaded, symbols and relocations.

Only what code generators write for 64-bit little-endian machines is read; anything else is an
error that names it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal

from treadle.errors import ToolchainError

X86_64, AARCH64, RISCV = 62, 183, 243

Part = Literal["constants", "code", "pointers"]
"""What a section holds: pointers are constants that the loader fills in."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")

_IDENTIFICATION = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE = 1

PROGRAM, _SYMBOLS, _STRINGS, _RELA, _NOTE, _NO_BITS, _REL = 1, 2, 3, 4, 7, 8, 9
_UNWIND = 0x70000001  # x86-64's kind of .eh_frame
_WRITE, _ALLOCATE, _EXECUTE, _THREAD_LOCAL = 1, 2, 4, 0x400
_LARGEST_ALIGNMENT = 4096
_FIRST_RESERVED = 0xFF00  # from here on a section number means something else
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_PLAIN_TYPES = range(5)  # none, object, function, section, file
_VISIBLE = (0, 3)  # default, protected


@dataclass(frozen=True, slots=True)
class Relocation:
    """At `offset` of its section: the place of symbol number `symbol`, plus `addend`."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(slots=True)
class Section:
    """Bytes to load, at a multiple of `align`, with what must be filled in."""

    name: str
    data: bytes | memoryview
    align: int
    part: Part
    relocations: list[Relocation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for a place: `section` is a key of ObjectFile.sections, None where undefined."""

    name: str
    section: int | None
    value: int
    size: int
    type: int
    is_global: bool
    is_weak: bool
    is_visible: bool


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """A relocatable file: its machine, the sections to load by number, and all symbols.

    `flags` is what the file says of its calling convention, with a meaning of each machine's own.
    """

    label: str
    machine: int
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    flags: int = 0


@dataclass(frozen=True, slots=True)
class _Header:
    """A row of the section table."""

    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


def read_object(data: bytes, label: str) -> ObjectFile:
    """Return the content of a relocatable file; `label` names it in errors.

    Raises: ToolchainError for what is no such file, is damaged, or holds more than code and
    constants.
    """
    try:
        return _read(data, label)
    except (struct.error, IndexError, ValueError) as error:
        raise ToolchainError(f"{label} is damaged: {error}") from None


def _read(data: bytes, label: str) -> ObjectFile:
    if not data.startswith(_IDENTIFICATION):
        raise ToolchainError(f"{label} is not a 64-bit little-endian ELF file")
    _, type_, machine, *rest = _HEADER.unpack_from(data)
    if type_ != _RELOCATABLE:
        raise ToolchainError(f"{label} is not a relocatable file")
    headers = _section_headers(data)
    sections = {
        number: _section(data, header, label)
        for number, header in enumerate(headers)
        if _is_loaded(header)
    }
    tables = [header for header in headers if header.type == _SYMBOLS]
    symbols = _symbols(data, headers, tables[0], sections, label) if tables else ()
    for header in headers:
        if header.info in sections and header.type in (_RELA, _REL):
            sections[header.info].relocations += _relocations(data, header, label)
    return ObjectFile(label, machine, sections, symbols, flags=rest[4])


def _section_headers(data: bytes) -> list[_Header]:
    fields = _HEADER.unpack_from(data)
    start, size, count, names = fields[6], fields[11], fields[12], fields[13]
    rows = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    strings = _slice(data, rows[names][4], rows[names][5]) if rows else b""
    return [
        _Header(_string(strings, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(r[8], 1))
        for r in rows
    ]


def _slice(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise IndexError("it is cut off")
    return data[offset : offset + size]


def _string(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode() if start < len(strings) else ""


def _is_loaded(header: _Header) -> bool:
    return bool(header.flags & _ALLOCATE) and header.size > 0 and header.type != _NOTE


def _section(data: bytes, header: _Header, label: str) -> Section:
    is_filled_in = header.name.startswith(".data.rel.ro")
    forbidden = _THREAD_LOCAL if is_filled_in else _WRITE | _THREAD_LOCAL
    if header.flags & forbidden or header.type not in (PROGRAM, _UNWIND):
        raise ToolchainError(f"{label}: section {header.name} is neither code nor constants")
    if header.align > _LARGEST_ALIGNMENT or header.align & (header.align - 1):
        raise ToolchainError(f"{label}: section {header.name} asks for a strange alignment")
    return Section(
        header.name,
        _slice(data, header.offset, header.size),
        header.align,
        "pointers" if is_filled_in else "code" if header.flags & _EXECUTE else "constants",
    )


def _symbols(
    data: bytes,
    headers: list[_Header],
    table: _Header,
    sections: dict[int, Section],
    label: str,
) -> tuple[Symbol, ...]:
    names = headers[table.link]
    strings = _slice(data, names.offset, names.size)
    rows = _SYMBOL.iter_unpack(_slice(data, table.offset, table.size))
    return tuple(_symbol(row, strings, sections, label) for row in rows)


def _symbol(
    row: tuple[int, ...], strings: bytes, sections: dict[int, Section], label: str
) -> Symbol:
    name_at, info, other, section, value, size = row
    name, binding, type_ = _string(strings, name_at), info >> 4, info & 15
    if binding != _LOCAL and (
        binding not in (_GLOBAL, _WEAK) or type_ not in _PLAIN_TYPES or section >= _FIRST_RESERVED
    ):
        raise ToolchainError(f"{label}: symbol {name} is of a kind that is not supported")
    if section in sections and value + size > len(sections[section].data):
        raise ToolchainError(f"{label}: symbol {name} lies outside of its section")
    return Symbol(
        name,
        section if section in sections else None,
        value,
        size,
        type_,
        is_global=binding != _LOCAL,
        is_weak=binding == _WEAK,
        is_visible=other & 3 in _VISIBLE,
    )


def _relocations(data: bytes, header: _Header, label: str) -> list[Relocation]:
    if header.type == _REL:
        raise ToolchainError(f"{label}: section {header.name} is of a kind that is not supported")
    rows = _RELOCATION.iter_unpack(_slice(data, header.offset, header.size))
    return [Relocation(offset, kind, symbol, addend) for offset, kind, symbol, addend in rows]
