# SPDX-License-Identifier: Apache-2.0
"""Element types: plain NumPy-style names such as "float32", with their sizes and NumPy twins."""

from __future__ import annotations

from functools import cache

import numpy as np

from treadle.errors import TypeMismatch

INDEX = "int64"
"""The dtype of every index, size and loop variable."""

_BITS = {
    "bool": 8,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "float16": 16,
    "bfloat16": 16,
    "float32": 32,
    "float64": 64,
}

NAMES = tuple(_BITS)
"""The types that arithmetic is done in."""

NARROW_BITS = {
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn": 4,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
}
"""Types of 8 bits and fewer that are only stored, moved and converted, with their width.

Every element takes a byte; the bits above its width say nothing.
"""

NARROW = tuple(NARROW_BITS)
STORED = NAMES + NARROW

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_SIGNED = frozenset({"int8", "int16", "int32", "int64"})
_UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})


def check_dtype(name: str) -> str:
    """Return `name` if it is an element type, else raise TypeMismatch with the list of types."""
    if name not in _BITS and name not in NARROW_BITS:
        raise TypeMismatch(
            f"{name!r} is not an element type",
            hint=f"element types are {', '.join(STORED)}",
        )
    return name


def bits(name: str) -> int:
    """Return the storage size of one element in bits (bool and narrow types take 8)."""
    return _BITS.get(check_dtype(name), 8)


def itemsize(name: str) -> int:
    """Return the storage size of one element in bytes."""
    return bits(name) // 8


def is_float(name: str) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return name in _FLOATS


def is_signed(name: str) -> bool:
    """True for the signed integer types of 8 bits and more."""
    return name in _SIGNED


def is_unsigned(name: str) -> bool:
    """True for the unsigned integer types of 8 bits and more (not bool)."""
    return name in _UNSIGNED


def is_integer(name: str) -> bool:
    """True for the signed and unsigned integer types of 8 bits and more (not bool)."""
    return name in _SIGNED or name in _UNSIGNED


def is_narrow(name: str) -> bool:
    """True for the types that are only stored, moved and converted."""
    return name in NARROW_BITS


@cache
def to_numpy(name: str) -> np.dtype:
    """Return the NumPy dtype that stores elements of type `name`.

    The types NumPy lacks (bfloat16 and the narrow ones) come from ml_dtypes.
    """
    check_dtype(name)
    if name == "bfloat16" or is_narrow(name):
        import ml_dtypes

        stored: np.dtype = np.dtype(getattr(ml_dtypes, name))
        return stored
    return np.dtype(name)


def from_numpy(dtype: np.dtype | type) -> str:
    """Return the element type of a NumPy dtype. Raises TypeMismatch for object, string, ..."""
    return check_dtype(np.dtype(dtype).name)


def min_value(name: str) -> int | float | bool:
    """Return the smallest value of the type (-inf for floats): the identity of max."""
    if name == "bool":
        return False
    if is_float(name):
        return float("-inf")
    return 0 if is_unsigned(name) else -(1 << (bits(name) - 1))


def max_value(name: str) -> int | float | bool:
    """Return the largest value of the type (inf for floats): the identity of min."""
    if name == "bool":
        return True
    if is_float(name):
        return float("inf")
    return (1 << bits(name)) - 1 if is_unsigned(name) else (1 << (bits(name) - 1)) - 1
