# SPDX-License-Identifier: Apache-2.0
"""The bytes of the protocol: the messages that open a connection, and frames. No input or output.

docs/design/rpc.md is the specification; tests/rpc/vectors.json holds bytes that follow it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from enum import IntEnum

from treadle.errors import RpcError
from treadle.rpc.poly1305 import code_of
from treadle.rpc.values import Value, decode, encode

MAGIC = b"TRPC"
VERSION = 2
NONCE_BYTES = 32
OPENING_BYTES = 48
VERDICT_BYTES = 40
HEADER_BYTES = 16
MAC_BYTES = 16
PIECE_BYTES = 1 << 18
"""Bytes of a file or an array in one answer."""
WRITTEN_BYTES = 1 << 20
"""The same in one call; fewer would cost Python more for calls than the system for their bytes."""
LARGEST_FRAME = (1 << 20) + (1 << 16)
"""Bytes of a frame's payload in a session."""
LARGEST_CONTROL = 1 << 16
"""The same on a tracker's port, and before a session has begun."""

_OPENING = struct.Struct("<4sHBB8x32s")
_VERDICT = struct.Struct("<B7x32s")
_HEADER = struct.Struct("<QHHI")
_HEAD = struct.Struct("<I")
_COUNTER = struct.Struct("<Q")
_KEYED = 1
_LAST_COUNTER = (1 << 64) - 1


Bytes = bytes | bytearray | memoryview


class Role(IntEnum):
    """What the connecting side wants to be."""

    CLIENT = 1
    DEVICE = 2


class Status(IntEnum):
    """What the accepting side says before frames flow."""

    OK = 0
    VERSION = 1
    KEY_NEEDED = 2
    NO_KEY = 3
    SLOW_DOWN = 4
    WRONG_KEY = 5
    ROLE = 6


class Kind(IntEnum):
    """What a frame is."""

    CALL = 1
    RESULT = 2
    ERROR = 3
    CLOSE = 4


_KINDS = {kind.value: kind for kind in Kind}
"""Sooner than to call the class."""

# ---- opening a connection ------------------------------------------------------------------------


@dataclass(frozen=True)
class Opening:
    """The first message of either side; `word` is the role, or the status of the answer."""

    word: int
    is_keyed: bool
    nonce: bytes
    version: int = VERSION

    def packed(self) -> bytes:
        """Return it as bytes."""
        return _OPENING.pack(MAGIC, self.version, self.word, int(self.is_keyed), self.nonce)


def new_nonce() -> bytes:
    """Return random bytes that no connection has had before."""
    return os.urandom(NONCE_BYTES)


def unpack_opening(data: bytes) -> Opening:
    """Return the first message of the other side. Raises: RpcError for what is none."""
    magic, version, word, flags, nonce = _OPENING.unpack(data)
    if magic != MAGIC:
        raise RpcError("the other side does not speak this protocol")
    return Opening(word, bool(flags & _KEYED), nonce, version)


def pack_verdict(status: Status, proof: bytes = bytes(32)) -> bytes:
    """Return the accepting side's answer to a proof."""
    return _VERDICT.pack(status, proof)


def unpack_verdict(data: bytes) -> tuple[int, bytes]:
    """Return the status and the proof of a verdict."""
    status, proof = _VERDICT.unpack(data)
    return status, proof


# ---- frames --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """What a frame begins with: the bytes of its payload, its kind, which call it belongs to."""

    size: int
    kind: Kind
    number: int

    def packed(self) -> bytes:
        """Return it as bytes."""
        return _HEADER.pack(self.size, self.kind, 0, self.number)


def unpack_header(data: bytes | memoryview, largest: int) -> Header:
    """Return a header. Raises: RpcError when it is wrong or its payload larger than allowed."""
    size, kind, flags, number = _HEADER.unpack(data)
    if size > largest:
        raise RpcError(f"a frame of {size} bytes is larger than the {largest} that are allowed")
    if size < _HEAD.size:
        raise RpcError(f"a frame of {size} bytes is too small")
    if not Kind.CALL <= kind <= Kind.CLOSE or flags:
        raise RpcError(f"a frame is of an unknown kind, {kind}, or has unknown flags, {flags}")
    return Header(size, _KINDS[kind], number)


@dataclass(frozen=True)
class Frame:
    """A message: values, and bytes after them. `blob` may be a view that the next frame changes."""

    kind: Kind
    number: int
    values: list[Value]
    blob: bytes | memoryview = b""


def start_of(frame: Frame) -> bytes:
    """Return the bytes of a frame before its blob."""
    head = encode(frame.values)
    size = _HEAD.size + len(head) + len(frame.blob)
    return Header(size, frame.kind, frame.number).packed() + _HEAD.pack(len(head)) + head


def frame_of(header: Header, payload: memoryview) -> Frame:
    """Return the frame with that payload. Raises: RpcError for a payload that is none."""
    (head,) = _HEAD.unpack_from(payload)
    if head > len(payload) - _HEAD.size:
        raise RpcError("a frame's values are longer than the frame")
    values = decode(payload[_HEAD.size : _HEAD.size + head])
    return Frame(header.kind, header.number, values, payload[_HEAD.size + head :])


def _hmac_halves(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return what HMAC-SHA-256 of RFC 2104 has hashed before the message, and before its hash.

    Copies of them make the key of a frame in half the time of an object of `hmac`.
    """
    block = hashlib.sha256().block_size
    padded = (key if len(key) <= block else hashlib.sha256(key).digest()).ljust(block, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
    return inner, hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))


class Seal:
    """Makes and checks the codes of the frames of one direction; none where there is no key.

    The key of a frame's code is made of how many there were before it, so that none can be
    repeated, left out or moved. No two frames may be given the code of one count: it would tell
    whoever reads both how to make others.
    """

    def __init__(self, key: bytes | None, counter: int = 0) -> None:
        self._base = _hmac_halves(key) if key else None
        self.counter = counter

    @property
    def size(self) -> int:
        """The bytes of a code."""
        return MAC_BYTES if self._base else 0

    def code(self, kind: Kind, first: Bytes, second: Bytes = b"") -> bytes:
        """Return the code of the next frame, whose bytes are `first` and `second`.

        A CLOSE is the last frame, whoever sends it: it counts as the last there can be.
        """
        key = self.key(kind)
        return b"" if key is None else code_of(key, first, second)

    def key(self, kind: Kind) -> bytes | None:
        """Return the key of the next frame's code, None where there is none; see `code`."""
        if self._base is None:
            return None
        inner, outer = self._base[0].copy(), self._base[1].copy()
        inner.update(_COUNTER.pack(_LAST_COUNTER if kind is Kind.CLOSE else self.counter))
        self.counter += 1
        outer.update(inner.digest())
        return outer.digest()

    def check(self, found: Bytes, kind: Kind, first: Bytes, second: Bytes = b"") -> None:
        """Raise RpcError unless `found` is the code of the next frame."""
        if not hmac.compare_digest(self.code(kind, first, second), found):
            raise RpcError("a frame was changed on its way, or is not of this connection")
