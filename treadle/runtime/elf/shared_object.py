# SPDX-License-Identifier: Apache-2.0
"""Writing a shared object: where everything stands in the file and in memory, and its tables.

Three parts are loaded, each on pages of its own: what is only read (headers, names, constants),
code, and the dynamic section, which older C libraries write to before it is made read-only. See
docs/design/linking.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.runtime.elf.objects import AARCH64, PROGRAM, X86_64

PAGE_BYTES = {X86_64: 4096, AARCH64: 65536}
"""The machines of which shared objects are written, and the largest page of each."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ENTRY = struct.Struct("<QQ")
_WORD = 8

_IDENTIFICATION = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_SHARED = 3
_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
_SYMTAB, _STRTAB, _HASH, _DYNAMIC_TABLE, _DYNSYM = 2, 3, 5, 6, 11
_WRITE, _ALLOCATE, _EXECUTE = 1, 2, 4
_SEGMENTS = 6
_GLOBAL_FUNCTION = 1 << 4  # with the type below
_NO_TYPE, _OBJECT, _FUNCTION = 0, 1, 2
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT = 4, 5, 6, 10, 11


@dataclass(frozen=True, slots=True)
class Name:
    """A symbol of the result: an offset in the code or in the constants."""

    name: str
    is_code: bool
    offset: int
    size: int
    type: int
    is_exported: bool


@dataclass(slots=True)
class Part:
    """A section of the result; `address` is 0 where it is not loaded."""

    name: str
    type: int
    flags: int
    align: int
    size: int
    data: bytes | bytearray = b""
    link: str = ""
    info: int = 0
    entry: int = 0
    offset: int = 0
    address: int = 0


class SharedObject:
    """A shared object in the making: its layout is known first, its bytes are filled in later."""

    def __init__(
        self, machine: int, constants: tuple[int, int], code: tuple[int, int], names: Sequence[Name]
    ) -> None:
        """Lay out constants and code, each (bytes, alignment), and the tables of `names`."""
        self.machine = machine
        self.page = PAGE_BYTES[machine]
        self.names = list(names)
        exported = [n for n in names if n.is_exported]
        strings, starts = _strings([n.name for n in exported])
        symbols = _SYMBOL.size * (1 + len(exported))
        self._exported = list(zip(exported, starts, strict=True))
        self.hash = Part(".hash", _HASH, _ALLOCATE, _WORD, 0, _hash_table(exported), ".dynsym")
        self.hash.size, self.hash.entry = len(self.hash.data), 4
        self.dynsym = Part(".dynsym", _DYNSYM, _ALLOCATE, _WORD, symbols, link=".dynstr", info=1)
        self.dynsym.entry = _SYMBOL.size
        self.dynstr = Part(".dynstr", _STRTAB, _ALLOCATE, 1, len(strings), strings)
        self.constants = Part(".rodata", PROGRAM, _ALLOCATE, constants[1], constants[0])
        self.code = Part(".text", PROGRAM, _ALLOCATE | _EXECUTE, code[1], code[0])
        size = _ENTRY.size * 6
        self.dynamic = Part(
            ".dynamic", _DYNAMIC_TABLE, _ALLOCATE | _WRITE, _WORD, size, link=".dynstr"
        )
        self.dynamic.entry = _ENTRY.size
        self.loaded = (
            *(self.hash, self.dynsym, self.dynstr, self.constants),
            *(self.code, self.dynamic),
        )
        self._lay_out()

    def _lay_out(self) -> None:
        """Place the parts one after the other in the file, code and dynamic on new pages."""
        offset, shift = _HEADER.size + _SEGMENT.size * _SEGMENTS, 0
        for part in self.loaded:
            if part in (self.code, self.dynamic):
                shift += self.page  # the address moves on, the file does not
            offset = _round_up(offset, part.align)
            part.offset, part.address = offset, offset + shift
            offset += part.size

    def to_bytes(self, constants: bytes, code: bytes) -> bytes:
        """Return the whole file; `constants` and `code` are of the sizes laid out."""
        self.constants.data, self.code.data = constants, code
        rows = [self._symbol(n, start) for n, start in self._exported]
        self.dynsym.data = bytes(_SYMBOL.size) + b"".join(rows)
        self.dynamic.data = self._dynamic()
        parts = [*self.loaded, *self._debug_tables()]
        names, starts = _strings([p.name for p in parts] + [".shstrtab"])
        parts.append(Part(".shstrtab", _STRTAB, 0, 1, len(names), names))
        file = bytearray(_HEADER.size) + self._segments()
        for part in parts:
            file += bytes(_round_up(len(file), part.align) - len(file))
            part.offset = len(file)
            file += part.data
        file += bytes(-len(file) % _WORD)
        file[: _HEADER.size] = self._header(len(file), len(parts) + 1)
        return bytes(file) + _section_table(parts, starts)

    def _header(self, table: int, sections: int) -> bytes:
        sizes = (_HEADER.size, _SEGMENT.size, _SEGMENTS, _SECTION.size, sections, sections - 1)
        return _HEADER.pack(
            *(_IDENTIFICATION, _SHARED, self.machine, 1, 0, _HEADER.size, table, 0), *sizes
        )

    def _segments(self) -> bytes:
        code, dynamic = self.code, self.dynamic
        end = self.constants.offset + self.constants.size
        to_page = _round_up(dynamic.address + dynamic.size, self.page) - dynamic.address
        at, text = (dynamic.offset, dynamic.address), (code.offset, code.address)
        rows = (
            (_LOAD, _READABLE, 0, 0, end, end, self.page),
            (_LOAD, _READABLE | _EXECUTABLE, *text, code.size, code.size, self.page),
            (_LOAD, _READABLE | _WRITABLE, *at, dynamic.size, to_page, self.page),
            (_DYNAMIC, _READABLE | _WRITABLE, *at, dynamic.size, dynamic.size, _WORD),
            (_RELRO, _READABLE, *at, dynamic.size, to_page, 1),
            (_STACK, _READABLE | _WRITABLE, 0, 0, 0, 0, 16),
        )
        return b"".join(
            _SEGMENT.pack(type_, flags, offset, address, address, size, in_memory, align)
            for type_, flags, offset, address, size, in_memory, align in rows
        )

    def _dynamic(self) -> bytes:
        entries = (
            (DT_HASH, self.hash.address),
            (DT_STRTAB, self.dynstr.address),
            (DT_SYMTAB, self.dynsym.address),
            (DT_STRSZ, self.dynstr.size),
            (DT_SYMENT, _SYMBOL.size),
            (0, 0),
        )
        return b"".join(_ENTRY.pack(*entry) for entry in entries)

    def _symbol(self, name: Name, start: int) -> bytes:
        part = self.code if name.is_code else self.constants
        number = self.loaded.index(part) + 1
        binding = _GLOBAL_FUNCTION if name.is_exported else 0
        type_ = name.type if name.type in (_NO_TYPE, _OBJECT, _FUNCTION) else _NO_TYPE
        address = part.address + name.offset
        return _SYMBOL.pack(start, binding | type_, 0, number, address, name.size)

    def _debug_tables(self) -> list[Part]:
        """All names, local ones first, for debuggers and profilers; nothing of it is loaded."""
        names = sorted(self.names, key=lambda n: n.is_exported)
        strings, starts = _strings([n.name for n in names])
        rows = [self._symbol(n, start) for n, start in zip(names, starts, strict=True)]
        data = bytes(_SYMBOL.size) + b"".join(rows)
        local = 1 + sum(not n.is_exported for n in names)
        table = Part(".symtab", _SYMTAB, 0, _WORD, len(data), data, ".strtab", local)
        table.entry = _SYMBOL.size
        return [table, Part(".strtab", _STRTAB, 0, 1, len(strings), strings)]


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """Return a string table and where each name starts in it."""
    table = bytearray(1)
    starts = []
    for name in names:
        starts.append(len(table))
        table += name.encode() + b"\0"
    return bytes(table), starts


def _section_table(parts: Sequence[Part], names: Sequence[int]) -> bytes:
    numbers = {part.name: number for number, part in enumerate(parts, 1)}
    rows = [
        _SECTION.pack(
            *(name, p.type, p.flags, p.address, p.offset, p.size),
            *(numbers.get(p.link, 0), p.info, p.align, p.entry),
        )
        for p, name in zip(parts, names, strict=True)
    ]
    return bytes(_SECTION.size) + b"".join(rows)


def hash_of(name: str) -> int:
    """Return the hash of a symbol's name that the System V ABI defines."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names: Sequence[Name]) -> bytes:
    """Chains of symbol numbers, one chain per bucket; number 0 ends a chain."""
    buckets = [0] * max(1, len(names))
    chains = [0] * (1 + len(names))
    for number, name in enumerate(names, 1):
        bucket = hash_of(name.name) % len(buckets)
        chains[number], buckets[bucket] = buckets[bucket], number
    words = [len(buckets), len(chains), *buckets, *chains]
    return struct.pack(f"<{len(words)}I", *words)
