# SPDX-License-Identifier: Apache-2.0
"""The bytes of the protocol, against vectors that other implementations share."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.test_values import from_json
from treadle.errors import RpcError
from treadle.rpc import wire
from treadle.rpc.handshake import connecting
from treadle.rpc.keys import client_proof, server_proof, session_keys
from treadle.rpc.poly1305 import code_of
from treadle.rpc.wire import Frame, Kind, Opening, Role, Seal, Status

pytestmark = pytest.mark.tiny

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
HANDSHAKE = {k: bytes.fromhex(v) for k, v in VECTORS["handshake"].items() if isinstance(v, str)}
TRANSCRIPT = HANDSHAKE["hello"] + HANDSHAKE["challenge"]


def test_openings_are_the_bytes_of_the_vectors() -> None:
    assert Opening(1, True, HANDSHAKE["client_nonce"]).packed() == HANDSHAKE["hello"]
    assert Opening(0, True, HANDSHAKE["server_nonce"]).packed() == HANDSHAKE["challenge"]
    assert wire.unpack_opening(HANDSHAKE["hello"]) == Opening(1, True, HANDSHAKE["client_nonce"])
    assert HANDSHAKE["hello"][:8] == b"TRPC\x02\x00\x01\x01"


def test_proofs_and_keys_are_hmacs_of_both_openings() -> None:
    """Computed here as the specification says, without the code under test."""

    def derived(purpose: bytes) -> bytes:
        message = purpose + b"\0" + TRANSCRIPT
        return hmac.new(HANDSHAKE["key"], message, hashlib.sha256).digest()

    key = HANDSHAKE["key"]
    wanted = derived(b"treadle-rpc 2 proof of the client")
    assert client_proof(key, TRANSCRIPT) == wanted == HANDSHAKE["client_proof"]
    wanted = derived(b"treadle-rpc 2 proof of the server")
    assert server_proof(key, TRANSCRIPT) == wanted == HANDSHAKE["server_proof"]
    keys = session_keys(key, TRANSCRIPT)
    wanted = derived(b"treadle-rpc 2 frames to the server")
    assert keys.to_server == wanted == HANDSHAKE["to_server"]
    wanted = derived(b"treadle-rpc 2 frames to the client")
    assert keys.to_client == wanted == HANDSHAKE["to_client"]
    assert wire.pack_verdict(Status.OK, HANDSHAKE["server_proof"]) == HANDSHAKE["verdict"]


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda v: v["name"])
def test_frames_are_the_bytes_of_the_vectors(vector: dict[str, Any]) -> None:
    to_server = vector["direction"] == "to server"
    key = HANDSHAKE["to_server" if to_server else "to_client"] if vector["keyed"] else None
    values = from_json(vector["values"])
    assert isinstance(values, list)
    blob = bytes.fromhex(vector["blob"])
    frame = Frame(Kind(vector["kind"]), vector["number"], values, blob)
    start = wire.start_of(frame)
    seal = Seal(key, vector["counter"])
    made = start + blob + seal.code(frame.kind, start, blob)
    assert made.hex() == vector["hex"]

    data = memoryview(bytes.fromhex(vector["hex"]))
    header = wire.unpack_header(data[: wire.HEADER_BYTES], wire.LARGEST_FRAME)
    payload = data[wire.HEADER_BYTES : wire.HEADER_BYTES + header.size]
    code = data[wire.HEADER_BYTES + header.size :]
    check = Seal(key, vector["counter"])
    check.check(code, header.kind, data[: wire.HEADER_BYTES], payload)
    found = wire.frame_of(header, payload)
    assert (found.kind, found.number, found.values) == (frame.kind, frame.number, frame.values)
    assert bytes(found.blob) == blob


def test_a_code_is_of_the_frame_under_a_key_of_its_count() -> None:
    """Computed here as the specification says; test_poly1305.py checks `code_of`."""
    vector = VECTORS["frames"][2]
    data = bytes.fromhex(vector["hex"])
    count = struct.pack("<Q", vector["counter"])
    once = hmac.new(HANDSHAKE["to_server"], count, hashlib.sha256).digest()
    assert data[-16:] == code_of(once, data[:-16])


@pytest.mark.parametrize("vector", VECTORS["bad_headers"], ids=lambda v: v["name"])
def test_wrong_headers_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(RpcError):
        wire.unpack_header(bytes.fromhex(vector["hex"]), VECTORS["largest_frame"])
    assert VECTORS["largest_frame"] == wire.LARGEST_FRAME


def test_changed_repeated_and_moved_frames_are_refused() -> None:
    start = wire.start_of(Frame(Kind.CALL, 1, ["f"]))
    out = Seal(HANDSHAKE["to_server"])
    first, second = out.code(Kind.CALL, start), out.code(Kind.CALL, start)
    assert first != second

    def refused(code: bytes, data: bytes, key: bytes = HANDSHAKE["to_server"]) -> bool:
        try:
            Seal(key).check(code, Kind.CALL, data)
        except RpcError:
            return True
        return False

    assert not refused(first, start)
    assert refused(second, start)
    assert refused(first, start[:-1] + b"\0")
    assert refused(first, start, HANDSHAKE["to_client"])
    assert refused(first[:-1], start)
    assert refused(b"", start)


def test_random_frames_are_frames_or_refused() -> None:
    generator = random.Random(3)
    good = [bytearray.fromhex(vector["hex"]) for vector in VECTORS["frames"]]
    for _ in range(20_000):
        data = bytearray(generator.choice(good))
        for _ in range(generator.randrange(1, 5)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            header = wire.unpack_header(data[: wire.HEADER_BYTES], 1 << 16)
            wire.frame_of(header, memoryview(data)[wire.HEADER_BYTES :])
        except RpcError:
            continue


def test_a_server_without_the_key_is_noticed() -> None:
    steps = connecting(Role.CLIENT, b"k" * 16)
    next(steps)
    steps.send(Opening(Status.OK, True, bytes(32)).packed())
    with pytest.raises(RpcError, match="does not have the key"):
        steps.send(wire.pack_verdict(Status.OK, bytes(32)))


def test_a_server_cannot_talk_a_client_out_of_its_key() -> None:
    steps = connecting(Role.CLIENT, b"k" * 16)
    next(steps)
    with pytest.raises(RpcError, match="another kind of key"):
        steps.send(Opening(Status.OK, False, bytes(32)).packed())
