# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import RpcError
from treadle.rpc.values import Arguments, Value, decode, encode

pytestmark = pytest.mark.tiny

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))


def from_json(data: Any) -> Value:
    """Return a value as the vectors write it: bytes are {"bytes": "hexadecimal"}."""
    if isinstance(data, dict):
        return bytes.fromhex(data["bytes"])
    return [from_json(item) for item in data] if isinstance(data, list) else data


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda v: v["name"])
def test_values_are_the_bytes_of_the_vectors(vector: dict[str, Any]) -> None:
    values = from_json(vector["values"])
    assert isinstance(values, list)
    assert encode(values).hex() == vector["hex"]
    found = decode(bytes.fromhex(vector["hex"]))
    assert found == values
    assert repr(found) == repr(values)  # 1 is not True, nor 1.0


@pytest.mark.parametrize("vector", VECTORS["bad_values"], ids=lambda v: v["name"])
def test_other_bytes_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(RpcError):
        decode(bytes.fromhex(vector["hex"]))


def test_random_and_mutated_bytes_are_values_or_refused() -> None:
    generator = random.Random(14)
    good = [bytes.fromhex(vector["hex"]) for vector in VECTORS["values"]]
    for _ in range(20_000):
        data = bytearray(generator.choice(good) or b"\0")
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        if generator.random() < 0.3:
            data = bytearray(generator.randbytes(generator.randrange(40)))
        try:
            values = decode(bytes(data))
        except RpcError:
            continue
        assert len(encode(values)) == len(data)


def test_what_does_not_fit_is_not_sent() -> None:
    with pytest.raises(RpcError, match="64 bits"):
        encode([1 << 63])
    deep: list[Value] = []
    for _ in range(8):
        deep = [deep]
    with pytest.raises(RpcError, match="deep"):
        encode(deep)


def test_arguments_have_the_kind_that_is_asked_for() -> None:
    arguments = Arguments("f", [1, 2.5, "a", b"b", [1, 2], [["x", 3]]])
    assert arguments.integer() == 1
    assert arguments.number() == 2.5
    assert arguments.text() == "a"
    assert arguments.data() == b"b"
    assert arguments.integers() == [1, 2]
    (row,) = arguments.rows()
    assert (row.text(), row.integer()) == ("x", 3)
    arguments.end()
    with pytest.raises(RpcError, match="lacks argument 6"):
        arguments.integer()


@pytest.mark.parametrize(
    ("value", "take"),
    [
        (True, Arguments.integer),
        (-1, Arguments.integer),
        (1 << 62, lambda a: a.integer(0, 10)),
        ("1", Arguments.integer),
        (float("nan"), Arguments.number),
        (float("inf"), Arguments.number),
        (-0.5, Arguments.number),
        (b"a", Arguments.text),
        ("a" * 10, lambda a: a.text(9)),
        ("a", Arguments.data),
        (b"a" * 10, lambda a: a.data(9)),
        (1, Arguments.values),
        ([1, "2"], Arguments.integers),
        ([[1], 2], Arguments.rows),
    ],
)
def test_arguments_of_another_kind_are_refused(value: Value, take: Any) -> None:
    with pytest.raises(RpcError, match=r"argument \d of f"):
        take(Arguments("f", [value]))


def test_too_many_arguments_are_refused() -> None:
    with pytest.raises(RpcError, match="1 arguments too many"):
        Arguments("f", [1]).end()
