# SPDX-License-Identifier: Apache-2.0
"""Fields of messages by number, and what ends in an error instead of outside of the bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.frontend.tensorflow.models import chunk, integer, single, varint
from treadle.errors import ModelError
from treadle.frontend.protobuf import Message

pytestmark = pytest.mark.tiny


def test_fields_have_their_values_and_defaults() -> None:
    data = integer(1, -3) + single(2, 0.5) + chunk(3, "text") + chunk(4, integer(1, 7))
    message = Message(memoryview(data))
    assert message.integer(1) == -3
    assert message.number(2) == 0.5
    assert message.text(3) == "text"
    inner = message.message(4)
    assert inner is not None
    assert inner.integer(1) == 7
    assert (message.integer(9, 5), message.number(9, 2.5), message.text(9)) == (5, 2.5, "")
    assert message.message(9) is None
    assert list(message.messages(9)) == []


def test_lists_are_packed_or_one_per_field() -> None:
    packed = chunk(1, b"".join(varint(v) for v in (1, 300, -2)))
    data = packed + integer(1, 4) + chunk(2, np.array([1, 2], "<f4").tobytes()) + single(2, 3.0)
    message = Message(memoryview(data))
    assert message.integers(1) == [1, 300, -2, 4]
    assert message.array(2, "float32").tolist() == [1, 2, 3]


def test_maps_and_the_last_of_several() -> None:
    entry = chunk(1, "key") + chunk(2, integer(1, 8))
    message = Message(memoryview(chunk(5, entry) + integer(6, 1) + integer(6, 2)))
    ((key, value),) = message.entries(5)
    assert (key, value.integer(1)) == ("key", 8)
    assert message.integer(6) == 2


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x0a\x05ab", "lacks 3 bytes"),
        (b"\x08\xff", "lacks 1 bytes"),
        (b"\x00", "byte 0 starts no protobuf field"),
        (b"\x0b", "byte 0 starts no protobuf field"),
        (b"\x08" + b"\xff" * 10, "starts no protobuf field"),
        (chunk(1, b"\xff\xfe"), "is no text"),
    ],
)
def test_damaged_bytes_are_errors(data: bytes, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        Message(memoryview(data)).text(1)


def test_a_field_of_another_kind_is_an_error() -> None:
    with pytest.raises(ModelError, match="its field 1 is written as type 2, not 0"):
        Message(memoryview(chunk(1, "x")), "a TensorFlow").integer(1)


def test_random_bytes_end_in_model_errors() -> None:
    for seed in range(300):
        data = random.Random(seed).randbytes(40)
        message = Message(memoryview(data))
        for read in (message.integer, message.text, message.integers, message.number):
            try:
                read(1)
            except ModelError:
                continue
