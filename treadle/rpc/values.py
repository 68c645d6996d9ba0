# SPDX-License-Identifier: Apache-2.0
"""Values in messages: null, booleans, integers, floats, text, bytes and lists, as bytes.

A value is a tag byte and what follows from it, see docs/design/rpc.md. What is read is checked
before memory is taken for it, so that no message asks for more than it brings.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from treadle.errors import RpcError

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | None"

DEEPEST = 8
"""Lists in lists."""

_NULL, _FALSE, _TRUE, _INT, _FLOAT, _TEXT, _BYTES, _LIST = range(8)
_INT64 = struct.Struct("<q")
_FLOAT64 = struct.Struct("<d")
_COUNT = struct.Struct("<I")


def encode(values: Sequence[Value]) -> bytes:
    """Return a list of values as bytes. Raises: RpcError for integers of more than 64 bits."""
    out = bytearray()
    _encode(list(values), out, 0)
    return bytes(out)


def _encode(value: Value, out: bytearray, depth: int) -> None:
    if value is None:
        out.append(_NULL)
    elif isinstance(value, bool):
        out.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        _encode_int(value, out)
    elif isinstance(value, float):
        out.append(_FLOAT)
        out += _FLOAT64.pack(value)
    elif isinstance(value, str):
        _encode_bytes(_TEXT, value.encode("utf-8", "replace"), out)
    elif isinstance(value, bytes):
        _encode_bytes(_BYTES, value, out)
    else:
        _encode_list(value, out, depth)


def _encode_int(value: int, out: bytearray) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise RpcError(f"{value} does not fit into 64 bits, so it cannot be sent")
    out.append(_INT)
    out += _INT64.pack(value)


def _encode_bytes(tag: int, data: bytes, out: bytearray) -> None:
    out.append(tag)
    out += _COUNT.pack(len(data))
    out += data


def _encode_list(values: list[Value], out: bytearray, depth: int) -> None:
    if depth >= DEEPEST:
        raise RpcError(f"a message holds lists more than {DEEPEST} deep")
    out.append(_LIST)
    out += _COUNT.pack(len(values))
    for value in values:
        _encode(value, out, depth + 1)


def decode(data: bytes | memoryview) -> list[Value]:
    """Return the list of values that `encode` wrote. Raises: RpcError for any other bytes."""
    reader = _Reader(bytes(data))
    value = reader.value(0)
    if not isinstance(value, list):
        raise RpcError("a message does not begin with a list")
    if reader.position != len(reader.data):
        raise RpcError(f"a message has {len(reader.data) - reader.position} bytes too many")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def value(self, depth: int) -> Value:
        tag = self._take(1)[0]
        if tag <= _TRUE:
            return None if tag == _NULL else tag == _TRUE
        if tag == _INT:
            return int(_INT64.unpack(self._take(8))[0])
        if tag == _FLOAT:
            return float(_FLOAT64.unpack(self._take(8))[0])
        if tag == _TEXT:
            return self._text()
        if tag == _BYTES:
            return self._take(self._count())
        if tag == _LIST:
            return self._list(depth)
        raise RpcError(f"a message holds a value of an unknown kind, {tag}")

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise RpcError("a message ends in the middle of a value")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def _count(self) -> int:
        return int(_COUNT.unpack(self._take(4))[0])

    def _text(self) -> str:
        try:
            return self._take(self._count()).decode("utf-8")
        except UnicodeDecodeError:
            raise RpcError("a message holds text that is not UTF-8") from None

    def _list(self, depth: int) -> list[Value]:
        count = self._count()
        if depth >= DEEPEST:
            raise RpcError(f"a message holds lists more than {DEEPEST} deep")
        if count > len(self.data) - self.position:  # every value takes a byte or more
            raise RpcError("a message promises more values than it holds")
        return [self.value(depth + 1) for _ in range(count)]


# ---- arguments of functions ----------------------------------------------------------------------


class Arguments:
    """The values a function was called with, taken in order; each has the kind it must have."""

    def __init__(self, function: str, values: list[Value]) -> None:
        self._function = function
        self._values = values
        self._next = 0

    def _value(self, wanted: str) -> Value:
        if self._next >= len(self._values):
            raise RpcError(f"{self._function} lacks argument {self._next} ({wanted})")
        self._next += 1
        return self._values[self._next - 1]

    def _refuse(self, wanted: str, value: Value) -> RpcError:
        kind = type(value).__name__
        place = self._next - 1
        return RpcError(f"argument {place} of {self._function} is {kind}, it must be {wanted}")

    def integer(self, low: int = 0, high: int = (1 << 63) - 1) -> int:
        """Take an integer from `low` to `high`."""
        value = self._value("an integer")
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._refuse("an integer", value)
        if not low <= value <= high:
            raise RpcError(f"argument {self._next - 1} of {self._function} is {value}")
        return value

    def number(self, low: float = 0.0, high: float = 1e9) -> float:
        """Take an integer or a float from `low` to `high`."""
        value = self._value("a number")
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._refuse("a number", value)
        if not low <= value <= high:  # false for NaN, too
            raise RpcError(f"argument {self._next - 1} of {self._function} is {value}")
        return float(value)

    def text(self, longest: int = 4096) -> str:
        """Take a text of at most so many characters."""
        value = self._value("a text")
        if not isinstance(value, str):
            raise self._refuse("a text", value)
        if len(value) > longest:
            raise RpcError(f"argument {self._next - 1} of {self._function} is too long")
        return value

    def data(self, longest: int = 4096) -> bytes:
        """Take bytes, at most so many."""
        value = self._value("bytes")
        if not isinstance(value, bytes):
            raise self._refuse("bytes", value)
        if len(value) > longest:
            raise RpcError(f"argument {self._next - 1} of {self._function} is too long")
        return value

    def values(self) -> list[Value]:
        """Take a list."""
        value = self._value("a list")
        if not isinstance(value, list):
            raise self._refuse("a list", value)
        return value

    def integers(self, low: int = 0, high: int = (1 << 63) - 1) -> list[int]:
        """Take a list of integers from `low` to `high`."""
        inner = Arguments(self._function, self.values())
        return inner.all_integers(low, high)

    def all_integers(self, low: int = 0, high: int = (1 << 63) - 1) -> list[int]:
        """Take all values that are left, integers."""
        return [self.integer(low, high) for _ in range(len(self._values) - self._next)]

    def texts(self, longest: int = 4096) -> list[str]:
        """Take a list of texts."""
        inner = Arguments(self._function, self.values())
        return [inner.text(longest) for _ in range(len(inner._values))]

    def rows(self) -> list[Arguments]:
        """Take a list of lists."""
        inner = Arguments(self._function, self.values())
        return [Arguments(self._function, inner.values()) for _ in range(len(inner._values))]

    @property
    def is_empty(self) -> bool:
        """True when all values have been taken."""
        return self._next == len(self._values)

    def end(self) -> None:
        """Raise RpcError where values are left."""
        if self._next < len(self._values):
            extra = len(self._values) - self._next
            raise RpcError(f"{self._function} is given {extra} arguments too many")
