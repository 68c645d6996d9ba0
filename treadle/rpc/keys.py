# SPDX-License-Identifier: Apache-2.0
"""The pre-shared key: where it is kept, what proves that one has it, what is derived from it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from treadle.errors import UsageError

LEAST_BYTES, MOST_BYTES = 16, 4096
"""Of a key."""
PROOF_BYTES = 32

_CLIENT_PROOF = b"treadle-rpc 2 proof of the client"
_SERVER_PROOF = b"treadle-rpc 2 proof of the server"
_TO_SERVER = b"treadle-rpc 2 frames to the server"
_TO_CLIENT = b"treadle-rpc 2 frames to the client"


@dataclass(frozen=True)
class SessionKeys:
    """The keys of one connection, one for the frames of each direction."""

    to_server: bytes
    to_client: bytes


def _derived(key: bytes, purpose: bytes, transcript: bytes) -> bytes:
    return hmac.digest(key, purpose + b"\0" + transcript, hashlib.sha256)


def client_proof(key: bytes, transcript: bytes) -> bytes:
    """Return what shows that the connecting side has the key."""
    return _derived(key, _CLIENT_PROOF, transcript)


def server_proof(key: bytes, transcript: bytes) -> bytes:
    """Return what shows that the accepting side has the key."""
    return _derived(key, _SERVER_PROOF, transcript)


def session_keys(key: bytes, transcript: bytes) -> SessionKeys:
    """Return the keys for the frames of the connection that began with `transcript`."""
    return SessionKeys(_derived(key, _TO_SERVER, transcript), _derived(key, _TO_CLIENT, transcript))


def read_key(path: str | os.PathLike[str]) -> bytes:
    """Return the key in a file: its bytes without the white space around them.

    Raises: UsageError when it cannot be read, is too short, or others may read it, too.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(MOST_BYTES + 1).strip()
    except OSError as error:
        raise UsageError(
            f"the key file cannot be read: {error.strerror}",
            at=os.fspath(path),
            hint="treadle rpc key FILE makes one",
        ) from None
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise UsageError(
            "the key file can be read by others, or is no file",
            at=os.fspath(path),
            hint=f"chmod 600 {os.fspath(path)}",
        )
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise UsageError(
            f"the key has {len(key)} bytes; it must have {LEAST_BYTES} to {MOST_BYTES}",
            at=os.fspath(path),
            hint="treadle rpc key FILE makes one that nobody can guess",
        )
    return key


def make_key(path: str | os.PathLike[str]) -> None:
    """Write a key of 32 random bytes, in hexadecimal digits, to a new file.

    Raises: UsageError when the file exists or cannot be made.
    """
    try:
        descriptor = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(
            f"{os.fspath(path)} exists; a key is not replaced", hint="name another file, or use it"
        ) from None
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
