# SPDX-License-Identifier: Apache-2.0
"""Which type literals and operands of different types take, and what a literal is in a type."""

from __future__ import annotations

import math
import struct

from treadle.dtype import bits, is_float, is_signed
from treadle.errors import TypeMismatch


def as_value(value: int | float | bool, dtype: str) -> int | float | bool:
    """Return a literal as an element of `dtype`: integers wrap, floats round to nearest even."""
    if dtype == "bool":
        return bool(value)
    if is_float(dtype):
        return _round_float(float(value), dtype)
    value = int(value) & ((1 << bits(dtype)) - 1)
    if is_signed(dtype) and value >> (bits(dtype) - 1):
        value -= 1 << bits(dtype)
    return value


def _round_float(value: float, dtype: str) -> float:
    if dtype == "float64" or not math.isfinite(value):
        return value
    code = "<e" if dtype == "float16" else "<f"
    try:
        packed = struct.pack(code, value)
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype == "bfloat16":
        low = struct.unpack("<I", packed)[0]
        packed = struct.pack("<I", (low + 0x7FFF + ((low >> 16) & 1)) & 0xFFFF0000)
    return float(struct.unpack(code, packed)[0])


def literal_dtype(value: object, other: str) -> str | None:
    """Return the type of a literal next to an operand of type `other`; None: its own default."""
    if isinstance(value, float) and not is_float(other):
        return None
    if other == "bool" and not isinstance(value, bool):
        return None
    return other


def common_dtype(a: str, b: str) -> str:
    """Return the type that operands of two types are brought to.

    Raises: TypeMismatch for integers of one size, one signed and one not.
    """
    if a == b:
        return a
    if is_float(a) and is_float(b):
        if {a, b} == {"float16", "bfloat16"}:
            return "float32"
        return max(a, b, key=bits)
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    if a == "bool" or b == "bool":
        return b if a == "bool" else a
    if bits(a) != bits(b):
        return max(a, b, key=bits)
    raise TypeMismatch(f"operands of types {a} and {b} do not mix", hint="cast one with .astype")
