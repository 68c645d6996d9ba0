# SPDX-License-Identifier: Apache-2.0
"""Reads protobuf messages without their schema, every length checked against the bytes there are.

A message is a list of numbered fields (https://protobuf.dev/programming-guides/encoding). Nothing
is copied: a field of bytes, as a tensor's weights, is a view of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from treadle.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""How the value of a field is written."""

_MOST_FIELDS = 1 << 22
"""How many fields a message may have: the list of them takes memory."""

_SIGN, _WIDTH = 1 << 63, 1 << 64


class Field(NamedTuple):
    """A field: its bytes with the tag begin at `start`, those of the value at `body`."""

    number: int
    wire: int
    start: int
    body: int
    end: int


def fields(data: memoryview, start: int, end: int, kind: str = "a protobuf") -> Iterator[Field]:
    """Yield the fields of the message from byte `start` to before `end`.

    Raises: ModelError, which says what `kind` of file it is not, for bytes that are no message.
    """
    at = start
    while at < end:
        tag, body = _varint(data, at, end, kind)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _malformed(at, kind)
        stop = _field_end(data, Field(number, wire, at, body, end), kind)
        if wire == BYTES:
            length, body = _varint(data, body, end, kind)
            stop = body + length
        if stop > end:
            raise _truncated(at, stop - end, kind)
        yield Field(number, wire, at, body, stop)
        at = stop


def _field_end(data: memoryview, field: Field, kind: str) -> int:
    """Return where a value ends that is no bytes, or where the length of one begins that is."""
    if field.wire == VARINT:
        return _varint(data, field.body, field.end, kind)[1]
    if field.wire == FIXED64:
        return field.body + 8
    if field.wire == FIXED32:
        return field.body + 4
    if field.wire == BYTES:
        return field.body
    raise _malformed(field.start, kind)


def _varint(data: memoryview, at: int, end: int, kind: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _truncated(at, 1, kind)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _malformed(at, kind)


def _malformed(at: int, kind: str) -> ModelError:
    return ModelError(f"this is not {kind} file: byte {at} starts no protobuf field")


def _truncated(at: int, missing: int, kind: str) -> ModelError:
    name = kind.split()[-1]
    return ModelError(f"the {name} data is cut off: the field at byte {at} lacks {missing} bytes")


@dataclass(frozen=True)
class Message:
    """A message; what is asked for by number and left out has the default of its type.

    Of a field that is there several times, the last one counts where one is asked for.
    """

    data: memoryview
    kind: str = "a protobuf"
    """What the file should be, for messages: as "an ONNX"."""

    @cached_property
    def _fields(self) -> dict[int, list[Field]]:
        found: dict[int, list[Field]] = {}
        for count, field in enumerate(fields(self.data, 0, len(self.data), self.kind)):
            if count == _MOST_FIELDS:
                raise ModelError(f"a message has more than {_MOST_FIELDS} fields")
            found.setdefault(field.number, []).append(field)
        return found

    def has(self, number: int) -> bool:
        """True when a field is there."""
        return number in self._fields

    def unsigned(self, number: int, default: int = 0) -> int:
        """Return a whole number as its bits."""
        found = self._fields.get(number)
        if not found:
            return default
        field = found[-1]
        if field.wire == FIXED32:
            return int.from_bytes(self.data[field.body : field.end], "little")
        return self._varint_of(field)

    def integer(self, number: int, default: int = 0) -> int:
        """Return a whole number of 64 bits with its sign."""
        return _signed(self.unsigned(number, default % _WIDTH))

    def number(self, number: int, default: float = 0.0) -> float:
        """Return a float32."""
        found = self._fields.get(number)
        if not found:
            return default
        self._check(found[-1], FIXED32)
        value: float = struct.unpack_from("<f", self.data, found[-1].body)[0]
        return value

    def bytes(self, number: int) -> memoryview:
        """Return bytes as a view of the message, empty where they are left out."""
        found = self._fields.get(number)
        return self._bytes_of(found[-1]) if found else self.data[:0]

    def text(self, number: int) -> str:
        """Return a text, empty where it is left out."""
        return text_of(self.bytes(number))

    def texts(self, number: int) -> list[str]:
        """Return all texts of a field."""
        return [text_of(self._bytes_of(f)) for f in self._fields.get(number, [])]

    def message(self, number: int) -> Message | None:
        """Return a message, None where it is left out."""
        return Message(self.bytes(number), self.kind) if self.has(number) else None

    def messages(self, number: int) -> Iterator[Message]:
        """Yield all messages of a field."""
        for field in self._fields.get(number, []):
            yield Message(self._bytes_of(field), self.kind)

    def entries(self, number: int) -> Iterator[tuple[str, Message]]:
        """Yield key and value of a map from texts to messages."""
        for entry in self.messages(number):
            yield entry.text(1), entry.message(2) or Message(self.data[:0], self.kind)

    def integers(self, number: int) -> list[int]:
        """Return whole numbers with their signs, packed or one per field."""
        made: list[int] = []
        for field in self._fields.get(number, []):
            if field.wire == VARINT:
                made.append(_signed(self._varint_of(field)))
                continue
            raw, at = self._bytes_of(field), 0
            while at < len(raw):
                value, at = _varint(raw, at, len(raw), self.kind)
                made.append(_signed(value))
        return made

    def array(self, number: int, dtype: str) -> np.ndarray:
        """Return floats or doubles, packed or one per field."""
        fixed = FIXED32 if np.dtype(dtype).itemsize == 4 else FIXED64
        parts = []
        for field in self._fields.get(number, []):
            if field.wire != BYTES:
                self._check(field, fixed)
            raw = self.data[field.body : field.end]
            if len(raw) % np.dtype(dtype).itemsize:
                raise ModelError(f"{len(raw)} bytes are no numbers of {dtype}")
            parts.append(np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")))
        return np.concatenate(parts) if parts else np.zeros(0, dtype)

    def _varint_of(self, field: Field) -> int:
        self._check(field, VARINT)
        return _varint(self.data, field.body, field.end, self.kind)[0] % _WIDTH

    def _bytes_of(self, field: Field) -> memoryview:
        self._check(field, BYTES)
        return self.data[field.body : field.end]

    def _check(self, field: Field, wire: int) -> None:
        if field.wire != wire:
            raise ModelError(
                f"this is not {self.kind} file: its field {field.number} is written as type "
                f"{field.wire}, not {wire}"
            )


def _signed(value: int) -> int:
    return value - _WIDTH if value >= _SIGN else value


def text_of(raw: memoryview) -> str:
    """Return bytes as text. Raises ModelError for what is no UTF-8."""
    try:
        return bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"the file is damaged: {bytes(raw[:40])!r} is no text") from None
