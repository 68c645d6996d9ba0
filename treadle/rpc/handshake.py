# SPDX-License-Identifier: Apache-2.0
"""The connecting side's part in opening a connection, without input or output."""

from __future__ import annotations

import hmac
from collections.abc import Generator
from dataclasses import dataclass

from treadle.errors import RpcError
from treadle.rpc import wire
from treadle.rpc.keys import client_proof, server_proof, session_keys
from treadle.rpc.wire import Opening, Role, Seal, Status


@dataclass(frozen=True)
class Opened:
    """How it went; with a status other than OK there is no connection."""

    status: int
    version: int
    out: Seal
    into: Seal


def _refused(status: int, version: int) -> Opened:
    return Opened(status, version, Seal(None), Seal(None))


def connecting(role: Role, key: bytes | None) -> Generator[tuple[bytes, int], bytes, Opened]:
    """Yield what to send and how many bytes to read then, and take these; return how it went.

    Raises: RpcError when the other side does not follow the protocol, or does not have the key.
    """
    hello = Opening(role, key is not None, wire.new_nonce()).packed()
    answer_bytes = yield hello, wire.OPENING_BYTES
    answer = wire.unpack_opening(answer_bytes)
    if answer.word != Status.OK or answer.version != wire.VERSION:
        return _refused(answer.word or Status.VERSION, answer.version)
    if answer.is_keyed != (key is not None):
        raise RpcError("the other side answers as if it had another kind of key")
    if key is None:
        return Opened(Status.OK, answer.version, Seal(None), Seal(None))
    transcript = hello + answer_bytes
    status, proof = wire.unpack_verdict((yield client_proof(key, transcript), wire.VERDICT_BYTES))
    if status != Status.OK:
        return _refused(status, answer.version)
    if not hmac.compare_digest(proof, server_proof(key, transcript)):
        raise RpcError(
            "the other side does not have the key",
            hint="it is not the one you mean: check the address",
        )
    made = session_keys(key, transcript)
    return Opened(Status.OK, answer.version, Seal(made.to_server), Seal(made.to_client))
