# SPDX-License-Identifier: Apache-2.0
"""FlatBuffers are read as they were written, and never outside of their bytes."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from treadle.errors import ModelError
from treadle.frontend.tflite.wire import Table, check_range, read_number

flatbuffers = pytest.importorskip("flatbuffers")
pytestmark = pytest.mark.tiny


def table() -> memoryview:
    """Return a file of a table: a number, a text, a vector of int32, a table and tables."""
    b = flatbuffers.Builder(0)
    text, numbers = b.CreateString("häß"), b.CreateNumpyVector(np.array([1, -2, 3], "int32"))
    b.StartObject(1)
    b.PrependFloat32Slot(0, 2.5, None)
    inner = b.EndObject()
    b.StartVector(4, 2, 4)
    b.PrependUOffsetTRelative(inner)
    b.PrependUOffsetTRelative(inner)
    many = b.EndVector()
    b.StartObject(6)
    b.PrependInt8Slot(0, -7, None)
    for slot, place in ((1, text), (2, numbers), (3, inner), (4, many)):
        b.PrependUOffsetTRelativeSlot(slot, place, 0)
    b.Finish(b.EndObject())
    return memoryview(bytes(b.Output()))


def test_fields_are_read() -> None:
    root = Table.root(table())
    assert root.integer(0, "int8") == -7
    assert root.text(1) == "häß"
    assert root.numbers(2, "int32") is not None
    assert list(root.numbers(2, "int32")) == [1, -2, 3]  # type: ignore[arg-type]
    inner = root.table(3)
    assert inner is not None
    assert inner.number(0, "float32") == 2.5
    assert [t.number(0, "float32") for t in root.tables(4)] == [2.5, 2.5]


def test_what_is_left_out_has_its_default() -> None:
    root = Table.root(table())
    for field in (5, 6, 500):
        assert root.integer(field, "int32", 9) == 9
        assert root.text(field) == ""
        assert root.table(field) is None
        assert root.numbers(field, "int32") is None
        assert list(root.tables(field)) == []


@pytest.mark.parametrize(("at", "size"), [(-1, 1), (0, -1), (7, 2), (1 << 70, 1)])
def test_ranges_outside_are_refused(at: int, size: int) -> None:
    with pytest.raises(ModelError, match="the file is damaged"):
        check_range(memoryview(bytes(8)), at, size)


def test_numbers_outside_are_refused() -> None:
    with pytest.raises(ModelError, match="8 bytes at 4 are not inside its 8 bytes"):
        read_number(memoryview(bytes(8)), 4, "int64")


def read_all(data: memoryview) -> None:
    root = Table.root(data)
    root.integer(0, "int8")
    root.text(1)
    root.numbers(2, "int32")
    inner = root.table(3)
    assert inner is None or inner.number(0, "float32") is not None
    for one in root.tables(4):
        one.number(0, "float32")


def attempt(data: memoryview) -> None:
    """Read everything, or end in a ModelError; another error is a failure."""
    with suppress(ModelError):
        read_all(data)


def test_every_damaged_byte_is_read_or_refused() -> None:
    whole = table()
    for at in range(len(whole)):
        for value in (0, 1, 127, 128, 255):
            data = bytearray(whole)
            data[at] = value
            attempt(memoryview(bytes(data)))


def test_every_truncation_is_read_or_refused() -> None:
    whole = table()
    for end in range(len(whole)):
        attempt(whole[:end])
