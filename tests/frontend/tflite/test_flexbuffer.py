# SPDX-License-Identifier: Apache-2.0
"""Options of custom operators: maps of numbers, and bytes that are none."""

from __future__ import annotations

from contextlib import suppress

import pytest

from treadle.errors import ModelError
from treadle.frontend.tflite.flexbuffer import numbers_of

flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
pytestmark = pytest.mark.tiny


def options(large: int = 3) -> bytes:
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Int("count", large)
        builder.Int("below", -2)
        builder.Float("share", 0.25)
        builder.Bool("regular", True)
        builder.String("name", "not a number")
    return bytes(builder.Finish())


@pytest.mark.parametrize("large", [3, 3000, 1 << 20, 1 << 40])
def test_numbers_of_every_width(large: int) -> None:
    found = numbers_of(memoryview(options(large)))
    assert found == {"count": large, "below": -2, "share": 0.25, "regular": 1}


@pytest.mark.parametrize("data", [b"", b"ab", bytes(8), bytes([0, 0, 9 << 2, 3]), b"\xff" * 9])
def test_what_is_no_map(data: bytes) -> None:
    with pytest.raises(ModelError):
        numbers_of(memoryview(data))


def test_damaged_bytes_are_read_or_refused() -> None:
    whole = options()
    for at in range(len(whole)):
        for value in range(0, 256, 5):
            data = bytearray(whole)
            data[at] = value
            with suppress(ModelError):
                numbers_of(memoryview(bytes(data)))
