# SPDX-License-Identifier: Apache-2.0
"""Reads FlatBuffers: tables, vectors and text, every offset checked against the bytes there are.

The format (https://flatbuffers.dev/internals) is offsets all the way down. Nothing is read ahead of
its use and nothing is followed unchecked, so what a damaged file says can be wrong, but never lies
outside of the file. Numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from treadle.errors import ModelError

Kind: TypeAlias = Literal[
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32"
]
"""The scalar types of fields."""

_FORMATS: dict[str, struct.Struct] = {
    "bool": struct.Struct("<B"),
    "int8": struct.Struct("<b"),
    "uint8": struct.Struct("<B"),
    "int16": struct.Struct("<h"),
    "uint16": struct.Struct("<H"),
    "int32": struct.Struct("<i"),
    "uint32": struct.Struct("<I"),
    "int64": struct.Struct("<q"),
    "uint64": struct.Struct("<Q"),
    "float32": struct.Struct("<f"),
    "float64": struct.Struct("<d"),
}

_OFFSET = 4
"""The bytes of an offset, and of the length before the elements of a vector."""


def read_number(data: memoryview, at: int, kind: str) -> int | float:
    """Return the number at byte `at`. Raises ModelError outside of the data."""
    form = _FORMATS[kind]
    check_range(data, at, form.size)
    number: int | float = form.unpack_from(data, at)[0]
    return number


def check_range(data: memoryview, at: int, size: int) -> None:
    """Raise ModelError unless `size` bytes from byte `at` on are inside of the data."""
    if at < 0 or size < 0 or at + size > len(data):
        raise ModelError(
            f"the file is damaged: {size} bytes at {at} are not inside its {len(data)} bytes"
        )


def _follow(data: memoryview, at: int) -> int:
    """Return the place that the offset at byte `at` leads to."""
    return at + int(read_number(data, at, "uint32"))


@dataclass(frozen=True, slots=True)
class Table:
    """A table at byte `at` of the data; fields are numbered from 0 as the schema lists them."""

    data: memoryview
    at: int

    @staticmethod
    def root(data: memoryview) -> Table:
        """Return the table that a file consists of."""
        return Table(data, _follow(data, 0))

    def _place(self, field: int) -> int | None:
        """Return where a field is held, None where it is left out."""
        fields = self.at - int(read_number(self.data, self.at, "int32"))
        size = int(read_number(self.data, fields, "uint16"))
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        inside = int(read_number(self.data, fields + entry, "uint16"))
        return self.at + inside if inside else None

    def number(self, field: int, kind: str, default: int | float = 0) -> int | float:
        """Return a scalar field, `default` where it is left out."""
        place = self._place(field)
        return default if place is None else read_number(self.data, place, kind)

    def integer(self, field: int, kind: str, default: int = 0) -> int:
        """Return a scalar field of an integer type."""
        return int(self.number(field, kind, default))

    def table(self, field: int) -> Table | None:
        """Return a field that is a table (or a union's), None where it is left out."""
        place = self._place(field)
        return None if place is None else Table(self.data, _follow(self.data, place))

    def _elements(self, field: int, itemsize: int) -> tuple[int, int] | None:
        """Return where the elements of a vector begin, and how many there are."""
        place = self._place(field)
        if place is None:
            return None
        start = _follow(self.data, place)
        count = int(read_number(self.data, start, "uint32"))
        check_range(self.data, start + _OFFSET, count * itemsize)
        return start + _OFFSET, count

    def bytes(self, field: int) -> memoryview:
        """Return a vector of bytes as a view of the file, empty where it is left out."""
        found = self._elements(field, 1)
        return self.data[:0] if found is None else self.data[found[0] : sum(found)]

    def numbers(self, field: int, kind: str) -> np.ndarray | None:
        """Return a vector of scalars, None where it is left out."""
        found = self._elements(field, _FORMATS[kind].size)
        if found is None:
            return None
        return np.frombuffer(
            self.data, np.dtype(kind).newbyteorder("<"), count=found[1], offset=found[0]
        )

    def tables(self, field: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        start, count = self._elements(field, _OFFSET) or (0, 0)
        for k in range(count):
            yield Table(self.data, _follow(self.data, start + _OFFSET * k))

    def text(self, field: int) -> str:
        """Return a text, empty where it is left out. Raises ModelError for what is no UTF-8."""
        raw = bytes(self.bytes(field))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"the file is damaged: {raw[:40]!r} is no text") from None
