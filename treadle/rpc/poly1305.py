# SPDX-License-Identifier: Apache-2.0
"""Poly1305 (RFC 8439, section 2.5): the code of one message under a key that is used once.

The native library computes it, at the speed of memory; where there is none, integers and matrices.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from treadle.errors import ToolchainError
from treadle.runtime import native

CODE_BYTES = 16

_PRIME = (1 << 130) - 5
_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
_BLOCK = 16
_ROW = 128
"""Blocks that one row of a matrix product sums."""
_LEAST_ROWS = 16
"""Fewer are not worth the weights of a matrix."""

_COPIED = 1 << 12

Bytes = bytes | bytearray | memoryview


def code_of(key: bytes, first: Bytes, second: Bytes = b"") -> bytes:
    """Return the code, 16 bytes, of `first` followed by `second`; `key` has 32 bytes."""
    if not prepare():
        return code_without_library(key, b"".join((first, second)))
    code = bytearray(CODE_BYTES)
    parts = (_place(first), len(first), _place(second), len(second))
    native.library().td_poly1305(key, *parts, native.address(native.bytes_in(code)))
    return bytes(code)


@cache
def prepare() -> bool:
    """Load the native library; tell whether there is one.

    Where it has to be built first, the other side of a connection would not wait for that: who is
    about to open one calls this before.
    """
    try:
        native.library()
    except ToolchainError:
        return False
    return True


def _place(data: Bytes) -> bytes | int:
    """Return bytes, or the address of what is in another buffer; a little is copied sooner."""
    if isinstance(data, bytes) or len(data) < _COPIED:
        return bytes(data)
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address


def code_without_library(key: bytes, message: bytes) -> bytes:
    """Return the code of a message, computed by Python and NumPy.

    The message is a polynomial with a coefficient per block, evaluated by Horner's rule.
    """
    r = int.from_bytes(key[:16], "little") & _CLAMP
    done = 0
    total = 0
    if len(message) >= _LEAST_ROWS * _ROW * _BLOCK:
        done = len(message) // (_ROW * _BLOCK) * (_ROW * _BLOCK)
        total = _sum_of_rows(r, message[:done])
    for offset in range(done, len(message), _BLOCK):
        block = message[offset : offset + _BLOCK] + b"\1"
        total = (total + int.from_bytes(block, "little")) * r % _PRIME
    total += int.from_bytes(key[16:], "little")
    return (total & ((1 << 128) - 1)).to_bytes(CODE_BYTES, "little")


def _sum_of_rows(r: int, message: bytes) -> int:
    """Return the value of whole rows: Horner's rule by steps of a row, of which each is a product.

    Sums of 1024 products of words of 16 bits have 42 bits. BLAS is not asked: it would wait for its
    threads longer than this takes.
    """
    powers = [1]
    for _ in range(_ROW):
        powers.append(powers[-1] * r % _PRIME)
    descending = powers[:0:-1]
    weights = [(power << 16 * word) % _PRIME for power in descending for word in range(8)]
    joined = b"".join(weight.to_bytes(18, "little") for weight in weights)
    columns = np.frombuffer(joined, "<u2").reshape(-1, 9).T.astype(np.int64)
    rows = np.frombuffer(message, "<u2").reshape(-1, _ROW * 8).astype(np.int64)
    sums = np.einsum("rw,cw->rc", rows, columns).tolist()
    high_bits = sum(descending) << 128  # of 2^128, which follows every block
    total = 0
    for row in sums:
        value = high_bits + sum(part << 16 * word for word, part in enumerate(row))
        total = (total * powers[_ROW] + value) % _PRIME
    return total
