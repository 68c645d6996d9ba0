# SPDX-License-Identifier: Apache-2.0
"""The port of a server or a tracker: who may connect, and how that is found out.

Every connection has its own task and little time to show that it has the key; until then nothing of
it is read but messages of fixed size.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from treadle.errors import RpcError, UsageError
from treadle.rpc import poly1305, tls, wire
from treadle.rpc.channel import tune_socket
from treadle.rpc.keys import PROOF_BYTES, client_proof, server_proof, session_keys
from treadle.rpc.wire import Opening, Role, Seal, Status

log = logging.getLogger("treadle.rpc")

_BACKLOG = 512
_MOST_ADDRESSES = 4096


@dataclass(frozen=True)
class Limits:
    """What strangers may do: seconds to show the key, connections that have not yet, failures.

    Of `strangers` one address may have three quarters. `connections` are the most there may be in
    all. An address may fail `failures` times at once, `failures_per_second` in the long run.
    """

    seconds: float = 5.0
    strangers: int = 512
    connections: int = 2048
    failures: float = 20.0
    failures_per_second: float = 1.0


@dataclass
class FailureCount:
    """How often each address may fail yet; it forgets the addresses that failed longest ago."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def may_try(self, address: str) -> bool:
        """True while an address has not failed too often."""
        return self._allowance(address) >= 1

    def failed(self, address: str) -> None:
        """Note a failure."""
        left = self._allowance(address) - 1
        self._left.pop(address, None)
        while len(self._left) >= _MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
        self._left[address] = (left, self.clock())

    def _allowance(self, address: str) -> float:
        left, then = self._left.get(address, (self.limits.failures, self.clock()))
        earned = (self.clock() - then) * self.limits.failures_per_second
        return min(self.limits.failures, left + earned)


@dataclass(frozen=True)
class Accepted:
    """A connection whose other side may be here: the socket does not block."""

    socket: socket.socket
    out: Seal
    into: Seal
    keys: tuple[bytes, bytes] | None
    role: Role
    address: str


class _TooSoon(Exception):
    """An address that may not try now."""


Handler = Callable[[Accepted], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, port_end: int, key: bytes | None) -> socket.socket:
    """Return a socket that listens on the first free port from `port` to `port_end`.

    Port 0 is any free port. Raises: UsageError without a key where others could connect, or
    when no port is free.
    """
    if key is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached by other machines, and there is no key",
            hint="give --key-file (treadle rpc key FILE makes one), or use --host 127.0.0.1",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = "no port is given"
    for number in range(port, max(port_end, port) + 1):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            last = error.strerror or str(error)
            continue
        sock.setblocking(False)
        return sock
    raise UsageError(
        f"no port from {port} to {max(port_end, port)} of {host} can be used: {last}",
        hint="name others with --port and --port-end",
    )


class Gate:
    """Accepts connections on a socket and hands those that show the key to a handler."""

    def __init__(
        self,
        sock: socket.socket,
        key: bytes | None,
        roles: frozenset[Role],
        handler: Handler,
        limits: Limits | None = None,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = sock
        self._tls = tls_context
        self.limits = limits or Limits()
        self._key = key
        if key is not None:
            poly1305.prepare()
        self._roles = roles
        self._handler = handler
        self._failures = FailureCount(self.limits)
        self._strangers: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    sock, name = await loop.sock_accept(self.socket)
                except OSError as error:  # no descriptors left, or gone before it was accepted
                    log.warning("cannot accept: %s", error.strerror)
                    await asyncio.sleep(0.05)
                    continue
                self.take(sock, str(name[0]))
        finally:
            for task in self._tasks:
                task.cancel()
            self.socket.close()

    def take(self, sock: socket.socket, address: str) -> None:
        """Serve a connection that was accepted elsewhere, from an address."""
        most = self.limits.strangers
        is_full = len(self._tasks) >= self.limits.connections or self._strangers.total() >= most
        if is_full or self._strangers[address] >= most * 3 // 4:
            sock.close()
            return
        task = asyncio.ensure_future(self._one(sock, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, sock: socket.socket, address: str) -> None:
        """Open a connection and handle it; whatever goes wrong ends this connection alone."""
        accepted = None
        self._strangers[address] += 1
        try:
            sock.setblocking(False)
            tune_socket(sock)
            if self._tls is not None:
                sock = await tls.accepted(sock, self._tls)
            accepted = await asyncio.wait_for(self._open(sock, address), self.limits.seconds)
        except _TooSoon:  # not counted: who waits long enough may come
            log.info("%s: has failed too often", address)
        except (RpcError, OSError, asyncio.TimeoutError) as error:
            self._failures.failed(address)
            log.info("%s: %s", address, _said(error))
        finally:
            self._strangers[address] -= 1
            self._strangers += Counter()  # forgets the addresses that have none
            if accepted is None:
                sock.close()
        if accepted is None:
            return
        try:
            await self._handler(accepted)
        except (RpcError, OSError, asyncio.TimeoutError) as error:
            log.info("%s: %s", address, _said(error))
        except Exception:  # a defect must not end the service for all others
            log.exception("%s: the connection is dropped", address)
        finally:
            sock.close()

    async def _open(self, sock: socket.socket, address: str) -> Accepted:
        """Exchange openings and proofs. Raises: RpcError for one that may not be here."""
        if not self._failures.may_try(address):
            with suppress(RpcError):
                await self._refuse(sock, Status.SLOW_DOWN)
            raise _TooSoon
        hello_bytes = await read_exactly(sock, wire.OPENING_BYTES)
        hello = wire.unpack_opening(hello_bytes)
        if hello.version != wire.VERSION:
            await self._refuse(sock, Status.VERSION)
        if hello.word not in self._roles:
            await self._refuse(sock, Status.ROLE)
        if hello.is_keyed != (self._key is not None):
            await self._refuse(sock, Status.NO_KEY if hello.is_keyed else Status.KEY_NEEDED)
        challenge = Opening(Status.OK, self._key is not None, wire.new_nonce()).packed()
        await send(sock, challenge)
        role = Role(hello.word)
        if self._key is None:
            return Accepted(sock, Seal(None), Seal(None), None, role, address)
        transcript = hello_bytes + challenge
        proof = await read_exactly(sock, PROOF_BYTES)
        if not hmac.compare_digest(proof, client_proof(self._key, transcript)):
            await send(sock, wire.pack_verdict(Status.WRONG_KEY))
            raise RpcError("it has another key")
        await send(sock, wire.pack_verdict(Status.OK, server_proof(self._key, transcript)))
        made = session_keys(self._key, transcript)
        keys = (made.to_server, made.to_client)
        return Accepted(sock, Seal(keys[1]), Seal(keys[0]), keys, role, address)

    async def _refuse(self, sock: socket.socket, status: Status) -> None:
        await send(sock, Opening(status, self._key is not None, bytes(wire.NONCE_BYTES)).packed())
        raise RpcError(f"refused: {status.name}")


def _said(error: BaseException) -> str:
    if isinstance(error, RpcError):
        return error.problem
    return str(error) or "it takes too long"


async def read_exactly(sock: socket.socket, size: int) -> bytes:
    """Return so many bytes. Raises: RpcError when the connection ends before."""
    loop = asyncio.get_running_loop()
    found = bytearray()
    while len(found) < size:
        piece = await loop.sock_recv(sock, min(size - len(found), 1 << 16))
        if not piece:
            raise RpcError("the other side has closed the connection")
        found += piece
    return bytes(found)


async def send(sock: socket.socket, data: bytes) -> None:
    """Send all of some bytes."""
    await asyncio.get_running_loop().sock_sendall(sock, data)
