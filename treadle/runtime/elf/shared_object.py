# SPDX-License-Identifier: Apache-2.0
"""Writing a shared object: where everything stands in the file and in memory, and its tables.

Three parts are loaded, each on pages of its own: what is only read (headers, names, constants),
code, and what is written to before it is made read-only: pointers, which the loader fills in, and
the dynamic section, which older C libraries adjust. See docs/design/linking.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.runtime.elf import objects
from treadle.runtime.elf.objects import AARCH64, PROGRAM, X86_64

PAGE_BYTES = {X86_64: 4096, AARCH64: 65536}
"""The machines of which shared objects are written, and the largest page of each."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ENTRY = struct.Struct("<QQ")
_RELATIVE = struct.Struct("<QQq")
_WORD = 8

_IDENTIFICATION = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_SHARED = 3
_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
_SYMTAB, _STRTAB, _RELA, _HASH, _DYNAMIC_TABLE, _DYNSYM = 2, 3, 4, 5, 6, 11
_WRITE, _ALLOCATE, _EXECUTE = 1, 2, 4
_SEGMENTS = 6
_GLOBAL_FUNCTION = 1 << 4  # with the type below
_NO_TYPE, _OBJECT, _FUNCTION = 0, 1, 2
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT = 4, 5, 6, 10, 11
DT_RELA, DT_RELASZ, DT_RELAENT, DT_RELACOUNT = 7, 8, 9, 0x6FFFFFF9
_RELATIVE_KIND = {X86_64: 8, AARCH64: 1027}


@dataclass(frozen=True, slots=True)
class Name:
    """A symbol of the result: an offset in one of its parts."""

    name: str
    part: objects.Part
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
        self,
        machine: int,
        sizes: Mapping[objects.Part, tuple[int, int]],
        pointers: int,
        names: Sequence[Name],
    ) -> None:
        """Lay out each part of `sizes` (bytes, alignment) and the tables of `names`.

        `pointers` is how many times `add_pointer` is going to be called.
        """
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
        self.rela = Part(".rela.dyn", _RELA, _ALLOCATE, _WORD, _RELATIVE.size * pointers)
        self.rela.entry, self.rela.link = _RELATIVE.size, ".dynsym"
        self._relative: list[bytes] = []
        self.constants = self._part(".rodata", _ALLOCATE, sizes["constants"])
        self.code = self._part(".text", _ALLOCATE | _EXECUTE, sizes["code"])
        self.pointers = self._part(".data.rel.ro", _ALLOCATE | _WRITE, sizes["pointers"])
        self.parts: dict[objects.Part, Part] = {
            "constants": self.constants,
            "code": self.code,
            "pointers": self.pointers,
        }
        size = _ENTRY.size * (10 if pointers else 6)
        self.dynamic = Part(
            ".dynamic", _DYNAMIC_TABLE, _ALLOCATE | _WRITE, _WORD, size, link=".dynstr"
        )
        self.dynamic.entry = _ENTRY.size
        filled_in = [self.pointers] if self.pointers.size else []
        self.loaded = (
            *(self.hash, self.dynsym, self.dynstr, *([self.rela] if pointers else [])),
            *(self.constants, self.code, *filled_in, self.dynamic),
        )
        self._first_writable = (*filled_in, self.dynamic)[0]
        self._lay_out()

    def _part(self, name: str, flags: int, size: tuple[int, int]) -> Part:
        return Part(name, PROGRAM, flags, size[1], size[0])

    def add_pointer(self, address: int, target: int) -> None:
        """Let the loader write where `target` is to `address`; both as laid out here."""
        self._relative.append(_RELATIVE.pack(address, _RELATIVE_KIND[self.machine], target))

    def _lay_out(self) -> None:
        """Place the parts one after the other in the file, code and writable ones on new pages."""
        offset, shift = _HEADER.size + _SEGMENT.size * _SEGMENTS, 0
        for part in self.loaded:
            if part is self.code or part is self._first_writable:
                shift += self.page  # the address moves on, the file does not
            offset = _round_up(offset, part.align)
            part.offset, part.address = offset, offset + shift
            offset += part.size

    def to_bytes(self, data: Mapping[objects.Part, bytes | bytearray]) -> bytes:
        """Return the whole file; what is in each part is of the size laid out."""
        for kind, content in data.items():
            self.parts[kind].data = content
        self.rela.data = b"".join(sorted(self._relative))
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
        file += _section_table(parts, starts)
        return bytes(file)

    def _header(self, table: int, sections: int) -> bytes:
        sizes = (_HEADER.size, _SEGMENT.size, _SEGMENTS, _SECTION.size, sections, sections - 1)
        return _HEADER.pack(
            *(_IDENTIFICATION, _SHARED, self.machine, 1, 0, _HEADER.size, table, 0), *sizes
        )

    def _segments(self) -> bytes:
        code, dynamic, first = self.code, self.dynamic, self._first_writable
        end = self.constants.offset + self.constants.size
        size = dynamic.address + dynamic.size - first.address
        to_page = _round_up(dynamic.address + dynamic.size, self.page) - first.address
        written, text = (first.offset, first.address), (code.offset, code.address)
        at = (dynamic.offset, dynamic.address)
        rows = (
            (_LOAD, _READABLE, 0, 0, end, end, self.page),
            (_LOAD, _READABLE | _EXECUTABLE, *text, code.size, code.size, self.page),
            (_LOAD, _READABLE | _WRITABLE, *written, size, to_page, self.page),
            (_DYNAMIC, _READABLE | _WRITABLE, *at, dynamic.size, dynamic.size, _WORD),
            (_RELRO, _READABLE, *written, size, to_page, 1),
            (_STACK, _READABLE | _WRITABLE, 0, 0, 0, 0, 16),
        )
        return b"".join(
            _SEGMENT.pack(type_, flags, offset, address, address, size, in_memory, align)
            for type_, flags, offset, address, size, in_memory, align in rows
        )

    def _dynamic(self) -> bytes:
        rela = self.rela
        entries = [
            (DT_HASH, self.hash.address),
            (DT_STRTAB, self.dynstr.address),
            (DT_SYMTAB, self.dynsym.address),
            (DT_STRSZ, self.dynstr.size),
            (DT_SYMENT, _SYMBOL.size),
        ]
        if rela.size:
            entries += [(DT_RELA, rela.address), (DT_RELASZ, rela.size)]
            entries += [(DT_RELAENT, rela.entry), (DT_RELACOUNT, rela.size // rela.entry)]
        return b"".join(_ENTRY.pack(*entry) for entry in [*entries, (0, 0)])

    def _symbol(self, name: Name, start: int) -> bytes:
        part = self.parts[name.part]
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
