# SPDX-License-Identifier: Apache-2.0
"""A server's link to its tracker: made again whenever it breaks, for as long as the server runs."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import dataclass

from treadle.errors import RpcError, TreadleError
from treadle.rpc import tls
from treadle.rpc.channel import tune_socket
from treadle.rpc.failures import refusal
from treadle.rpc.gate import read_exactly, send
from treadle.rpc.handshake import Opened, connecting
from treadle.rpc.link import Link
from treadle.rpc.server import Server
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import Role, Status

log = logging.getLogger("treadle.rpc")

BEAT_SECONDS = 2.0
_RETRY_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_LONGEST = 200


@dataclass(frozen=True)
class Registration:
    """Where the tracker is, and what it is told: the kind of device, and the address for clients.

    An empty `host` lets the tracker take the address the connection comes from. `tls` is for a
    tracker that wants it.
    """

    tracker_host: str
    tracker_port: int
    device_key: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None


async def keep_registered(server: Server, registration: Registration, key: bytes | None) -> None:
    """Register, and again whenever the tracker is lost, until cancelled."""
    at = f"{registration.tracker_host}:{registration.tracker_port}"
    said = ""
    while True:
        try:
            await _register(server, registration, key, at)
        except (TreadleError, OSError, asyncio.TimeoutError) as error:
            problem = error.problem if isinstance(error, TreadleError) else str(error)
            problem = problem or "it does not answer"
            if problem != said:
                log.warning("the tracker at %s: %s; trying again", at, problem)
            said = problem
        await asyncio.sleep(_RETRY_SECONDS)


async def _register(server: Server, registration: Registration, key: bytes | None, at: str) -> None:
    """Register and tell the state until the connection ends. Raises: RpcError, OSError then."""
    sock = await asyncio.wait_for(_connected(registration), _ANSWER_SECONDS)
    if registration.tls is not None:
        sock = await tls.connected(sock, registration.tls, registration.tracker_host)
    try:
        opened = await asyncio.wait_for(_opened(sock, key), _ANSWER_SECONDS)
        if opened.status != Status.OK:
            raise refusal(opened.status, at, opened.version)
        link = Link(sock, opened.out, opened.into, at, _Leases(server).answer)
        serving = asyncio.ensure_future(link.serve())
        telling = asyncio.ensure_future(_tell(server, registration, link, at))
        try:
            await asyncio.wait((serving, telling), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, telling):
                task.cancel()
            results = await asyncio.gather(serving, telling, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
    finally:
        sock.close()


async def _connected(registration: Registration) -> socket.socket:
    host, port = registration.tracker_host, registration.tracker_port
    # Resolved here: the loop would start a thread for it, and this process forks.
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind)
    try:
        sock.setblocking(False)
        tune_socket(sock)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _opened(sock: socket.socket, key: bytes | None) -> Opened:
    steps = connecting(Role.DEVICE, key)
    try:
        message, size = next(steps)
        while True:
            await send(sock, message)
            message, size = steps.send(await read_exactly(sock, size))
    except StopIteration as end:
        opened: Opened = end.value
        return opened


async def _tell(server: Server, registration: Registration, link: Link, at: str) -> None:
    """Register, then tell the state when it changes, and every few seconds."""
    to = registration
    report = _report(server)
    await link.call(
        "device.register", to.device_key, to.host, to.port, *report, seconds=_ANSWER_SECONDS
    )
    log.info("registered as %s at the tracker %s", to.device_key, at)
    while True:
        await link.call("device.beat", *_report(server), seconds=_ANSWER_SECONDS)
        try:
            await asyncio.wait_for(server.state.changed.wait(), BEAT_SECONDS)
        except asyncio.TimeoutError:
            continue


def _report(server: Server) -> list[Value]:
    state = server.state
    state.changed.clear()
    return [state.name, state.client[:_LONGEST], state.last_error[:_LONGEST]]


class _Leases:
    """Answers what the tracker asks of a device."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def answer(self, function: str, arguments: Arguments) -> list[Value]:
        """Take or give back a lease."""
        token = arguments.data(64)
        arguments.end()
        if function == "lease.grant":
            self._server.grant(token)
        elif function == "lease.revoke":
            self._server.revoke(token)
        else:
            raise RpcError(f"{function!r} is nothing a device does")
        return []
