# SPDX-License-Identifier: Apache-2.0
"""Codes of messages: the native library, what stands in for it, and the RFC's formula agree."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ToolchainError
from treadle.rpc import poly1305
from treadle.rpc.poly1305 import code_of, code_without_library
from treadle.runtime import native

pytestmark = pytest.mark.tiny

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))


def by_formula(key: bytes, message: bytes) -> bytes:
    """Return what RFC 8439, section 2.5.1, says, block by block."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for offset in range(0, len(message), 16):
        block = message[offset : offset + 16] + b"\1"
        total = (total + int.from_bytes(block, "little")) * r % ((1 << 130) - 5)
    return (total + int.from_bytes(key[16:], "little")).to_bytes(17, "little")[:16]


@pytest.mark.parametrize("vector", VECTORS["codes"], ids=lambda v: v["name"])
def test_codes_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    key = bytes.fromhex(vector["key"])
    message = bytes.fromhex(vector["message"]) * vector["times"]
    assert by_formula(key, message).hex() == vector["code"]
    assert code_of(key, message).hex() == vector["code"]
    assert code_without_library(key, message).hex() == vector["code"]


def test_both_ways_agree_at_any_length() -> None:
    """Lengths around blocks, groups of lanes and rows; numbers that fill their limbs."""
    generator = random.Random(5)
    keys = [generator.randbytes(32), b"\xff" * 32, b"\1" + bytes(15) + b"\xff" * 16]
    lengths = [*range(0, 300), *(512 + n for n in range(-17, 18)), 32768, 32769, 40001, 65536]
    for length in lengths:
        key = generator.choice(keys)
        fill = generator.choice([b"\xff", b"\xfb", b"\0", None])
        message = generator.randbytes(length) if fill is None else fill * length
        middle = generator.randrange(length + 1)
        wanted = by_formula(key, message)
        assert code_without_library(key, message) == wanted, length
        parts = bytearray(message[:middle]), memoryview(message)[middle:]
        assert code_of(key, *parts) == wanted, (length, middle)


def test_without_the_library_codes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ToolchainError("there is no compiler")

    key, message = bytes(range(32)), bytes(range(100))
    wanted = code_of(key, message)
    poly1305.prepare.cache_clear()
    monkeypatch.setattr(native, "library", fails)
    try:
        assert code_of(key, message[:7], memoryview(message)[7:]) == wanted
    finally:
        poly1305.prepare.cache_clear()
