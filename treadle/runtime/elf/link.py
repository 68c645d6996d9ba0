# SPDX-License-Identifier: Apache-2.0
"""Linking relocatable files into one shared object that needs no library.

Relocations are resolved; what is left to the loader are pointers in sections made for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.errors import ToolchainError
from treadle.runtime.elf.objects import ObjectFile, Part, Section, Symbol, read_object
from treadle.runtime.elf.relocations import Place, fill_in, is_pointer
from treadle.runtime.elf.shared_object import PAGE_BYTES, Name, SharedObject

MACHINE_NAMES = {"x86_64": 62, "aarch64": 183}
"""Architectures for which `link_objects` writes shared objects, and their numbers in ELF."""

_NAMED = 8
_OBJECT, _FUNCTION = 1, 2


@dataclass(slots=True)
class _Merged:
    """Sections of one kind, one after the other."""

    data: bytearray = field(default_factory=bytearray)
    align: int = 1

    def add(self, section: Section) -> int:
        """Append a section; return its offset."""
        self.data += bytes(-len(self.data) % section.align)
        offset = len(self.data)
        self.data += section.data
        self.align = max(self.align, section.align)
        return offset


class _Linker:
    def __init__(self, files: Sequence[ObjectFile]) -> None:
        self.files = files
        self.merged: dict[Part, _Merged] = {
            part: _Merged() for part in ("constants", "code", "pointers")
        }
        self.offsets: dict[tuple[str, int], int] = {}
        for file in files:
            for number, section in file.sections.items():
                self.offsets[file.label, number] = self.merged[section.part].add(section)
        self.globals = self._definitions()
        self._check_defined()

    def _definitions(self) -> dict[str, tuple[ObjectFile, Symbol]]:
        """Return the definition of every global name: the first, a weak one gives way."""
        found: dict[str, tuple[ObjectFile, Symbol]] = {}
        for file in self.files:
            for symbol in file.symbols:
                if not symbol.is_global or symbol.section is None:
                    continue
                earlier = found.get(symbol.name)
                if earlier is None or (earlier[1].is_weak and not symbol.is_weak):
                    found[symbol.name] = (file, symbol)
                elif not symbol.is_weak:
                    raise ToolchainError(
                        f"{symbol.name} is defined twice, in {earlier[0].label} and {file.label}"
                    )
        return found

    def _check_defined(self) -> None:
        """A name that stands in a table of symbols alone needs no definition."""
        used = {
            file.symbols[relocation.symbol]
            for file in self.files
            for section in file.sections.values()
            for relocation in section.relocations
            if relocation.symbol < len(file.symbols)
        }
        missing = sorted({s.name for s in used if s.is_global} - self.globals.keys())
        if missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise ToolchainError(f"no object defines {', '.join(missing[:_NAMED])}{more}")

    def link(self, machine: int) -> bytes:
        """Return the shared object."""
        names = [self._name(f, s) for f in self.files for s in f.symbols if self._is_kept(f, s)]
        if not any(n.is_exported for n in names):
            raise ToolchainError("the object code defines no function that can be called")
        sizes = {part: (len(m.data), m.align) for part, m in self.merged.items()}
        out = SharedObject(machine, sizes, self._count_pointers(machine), names)
        for file in self.files:
            for number, section in file.sections.items():
                self._relocate(file, number, section, out)
        return out.to_bytes({part: m.data for part, m in self.merged.items()})

    def _count_pointers(self, machine: int) -> int:
        sections = [s for f in self.files for s in f.sections.values() if s.part == "pointers"]
        return sum(is_pointer(machine, r.kind) for s in sections for r in s.relocations)

    def _is_kept(self, file: ObjectFile, symbol: Symbol) -> bool:
        """True for what a debugger shows: functions, objects and the marks of code and data."""
        if symbol.section is None or not symbol.name:
            return False
        if symbol.is_global:
            return self.globals[symbol.name] == (file, symbol)
        return symbol.type in (_OBJECT, _FUNCTION) or symbol.name.startswith("$")

    def _name(self, file: ObjectFile, symbol: Symbol) -> Name:
        assert symbol.section is not None
        return Name(
            symbol.name,
            file.sections[symbol.section].part,
            self.offsets[file.label, symbol.section] + symbol.value,
            symbol.size,
            symbol.type,
            symbol.is_global and symbol.is_visible,
        )

    def _relocate(self, file: ObjectFile, number: int, section: Section, out: SharedObject) -> None:
        merged, part = self.merged[section.part], out.parts[section.part]
        start = self.offsets[file.label, number]
        for relocation in section.relocations:
            if not relocation.offset < len(section.data):
                raise ToolchainError(f"{file.label}: a relocation lies outside of its section")
            offset = start + relocation.offset
            target = self._address(file, relocation.symbol, out) + relocation.addend
            place = Place(merged.data, offset, part.address + offset, target)
            if section.part == "pointers" and is_pointer(out.machine, relocation.kind):
                place.write(target, 8)
                out.add_pointer(place.address, target)
                continue
            try:
                fill_in(out.machine, relocation.kind, place)
            except ToolchainError as error:
                raise ToolchainError(f"{file.label}: {error.problem}") from None

    def _address(self, file: ObjectFile, number: int, out: SharedObject) -> int:
        if number >= len(file.symbols):
            raise ToolchainError(f"{file.label}: a relocation names a symbol that does not exist")
        symbol = file.symbols[number]
        if symbol.is_global:
            file, symbol = self.globals[symbol.name]
        if symbol.section is None:
            raise ToolchainError(f"{file.label}: {symbol.name or 'a symbol'} is not in the file")
        part = out.parts[file.sections[symbol.section].part]
        return part.address + self.offsets[file.label, symbol.section] + symbol.value


def link_objects(objects: Sequence[bytes], machine: int | None = None) -> bytes:
    """Return one shared object of relocatable files, the same bytes for the same files.

    It exports every visible global symbol and depends on no library. `machine` is the number of
    the machine the files must be for (None: that of the first).

    Raises: ToolchainError when a file is damaged, holds more than code and constants, or uses a
    symbol that none defines; and for machines other than those of MACHINE_NAMES.
    """
    files = [read_object(data, f"object {number}") for number, data in enumerate(objects)]
    return link_files(files, machine)


def link_files(files: Sequence[ObjectFile], machine: int | None = None) -> bytes:
    """Do what `link_objects` does with files that are read already."""
    for file in files:
        machine = file.machine if machine is None else machine
        if file.machine not in PAGE_BYTES:
            raise ToolchainError(f"{file.label} is for a machine (number {file.machine}) without "
                                 "a linker of Treadle's")  # fmt: skip
        if file.machine != machine:
            raise ToolchainError(f"{file.label} is for another machine (number {file.machine})")
    if machine is None:
        raise ToolchainError("there is no object code to link")
    return _Linker(files).link(machine)
