# SPDX-License-Identifier: Apache-2.0
"""Reads the numbers of a FlexBuffer map, which holds the options of custom operators.

The format (https://flatbuffers.dev/flexbuffers) is read from its end: the width and type of the
root, then offsets backwards, every one checked against the bytes there are.
"""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.tflite.wire import check_range, read_number

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_INTEGERS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_MOST_ENTRIES = 1 << 10
_MOST_LETTERS = 256


def numbers_of(data: memoryview) -> dict[str, float]:
    """Return the entries of a map that are numbers or truth values, by name.

    Raises: ModelError for bytes that are no such map.
    """
    if len(data) < 3:
        raise ModelError("the custom options are no FlexBuffer")
    width, packed = data[-1], data[-2]
    if width not in _INTEGERS or packed >> 2 != _MAP:
        raise ModelError("the custom options are no FlexBuffer map")
    place = len(data) - 2 - width
    inner = 1 << (packed & 3)
    return _entries(data, place - _unsigned(data, place, width), inner)


def _unsigned(data: memoryview, at: int, width: int) -> int:
    check_range(data, at, width)
    return int.from_bytes(data[at : at + width], "little")


def _entries(data: memoryview, start: int, width: int) -> dict[str, float]:
    """Return the numbers of the map whose values begin at `start`."""
    count = _unsigned(data, start - width, width)
    if count > _MOST_ENTRIES:
        raise ModelError(f"the custom options have {count} entries")
    keys = start - 3 * width
    keys -= _unsigned(data, keys, width)
    key_width = _unsigned(data, start - 2 * width, width)
    if key_width not in _INTEGERS:
        raise ModelError("the custom options are damaged")
    types = start + count * width
    check_range(data, types, count)
    found = {}
    for k in range(count):
        at = keys + k * key_width
        name = _text(data, at - _unsigned(data, at, key_width))
        value = _number(data, start + k * width, width, data[types + k] >> 2)
        if value is not None:
            found[name] = value
    return found


def _text(data: memoryview, at: int) -> str:
    check_range(data, at, 1)
    letters = bytes(data[at : at + _MOST_LETTERS])
    return letters.partition(b"\0")[0].decode("utf-8", "replace")


def _number(data: memoryview, at: int, width: int, kind: int) -> float | None:
    if kind in (_UINT, _BOOL):
        return _unsigned(data, at, width)
    if kind == _INT:
        return read_number(data, at, _INTEGERS[width])
    if kind == _FLOAT and width in (4, 8):
        return read_number(data, at, f"float{8 * width}")
    return None
