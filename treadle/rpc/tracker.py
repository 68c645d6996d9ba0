# SPDX-License-Identifier: Apache-2.0
"""The tracker: knows the devices, lends each to one client at a time, tells who has which.

A device is there as long as its connection is and says so every few seconds. Nothing is kept on
disk: after a restart the servers register again, with the sessions they are in.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
import time
from contextlib import suppress

from treadle.errors import RpcError, TreadleError
from treadle.rpc.gate import Accepted, Gate, Limits
from treadle.rpc.leases import BUSY, FREE, Board, Device, Request
from treadle.rpc.link import Link
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import Role

log = logging.getLogger("treadle.rpc")

STALE_SECONDS = 10.0
"""A device that says nothing for so long is gone."""
TOKEN_BYTES = 16
_GRANT_SECONDS = 5.0
_LONGEST_NAME = 200
_MOST_REQUESTS = 10_000
_MOST_DEVICES = 10_000
_STATES = (FREE, "leased", BUSY)

Lease = list[Value]
"""What a client gets: host, port, token."""


class Tracker:
    """A tracker on a socket that listens."""

    def __init__(
        self,
        sock: socket.socket,
        key: bytes | None,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.board: Board[asyncio.Future[Lease]] = Board()
        self.gate = Gate(sock, key, frozenset(Role), self._handle, limits, tls)
        self._links: dict[Device, Link] = {}
        self._offers: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serve until cancelled."""
        sweeper = asyncio.ensure_future(self._sweep())
        try:
            await self.gate.serve()
        finally:
            sweeper.cancel()
            for task in self._offers:
                task.cancel()

    async def _sweep(self) -> None:
        """Remove devices that say nothing; give requests what has become free by ageing."""
        while True:
            await asyncio.sleep(1.0)
            for device in list(self.board.devices):
                if time.monotonic() - device.heard > STALE_SECONDS:
                    log.warning("%s:%d has not been heard of: removed", device.host, device.port)
                    self._drop(device)
            self._match()

    async def _handle(self, accepted: Accepted) -> None:
        if accepted.role is Role.DEVICE:
            await _DeviceSide(self, accepted).serve()
        else:
            await _ClientSide(self, accepted).serve()

    # ---- devices ---------------------------------------------------------------------------------

    def register(self, device: Device, link: Link) -> None:
        """Add a device, in the place of one at the same address."""
        for other in list(self.board.devices):
            if (other.key, other.host, other.port) == (device.key, device.host, device.port):
                self._drop(other)
        if len(self.board.devices) >= _MOST_DEVICES:
            raise RpcError("the tracker has too many devices")
        log.info("%s:%d registers as %s", device.host, device.port, device.key)
        self.board.enlist(device)
        self._links[device] = link
        self._match()

    def heard_of(self, device: Device, state: str, client: str, last_error: str) -> None:
        """Note what a device says of itself; one that is being offered stays so until it agrees."""
        device.heard = time.monotonic()
        device.last_error = last_error
        if device.state != "offered":
            device.become(state, client)
            self._match()

    def _drop(self, device: Device) -> None:
        """Remove a device; one that is alive registers again."""
        self.board.dismiss(device)
        link = self._links.pop(device, None)
        if link is not None:
            link.hang_up()

    def forget(self, device: Device) -> None:
        """Remove a device whose connection has ended."""
        if device in self._links:
            log.info("%s:%d is gone", device.host, device.port)
        self._drop(device)

    # ---- leases ----------------------------------------------------------------------------------

    def _match(self) -> None:
        for device, request in self.board.matches():
            task = asyncio.ensure_future(self._offer(device, request))
            self._offers.add(task)
            task.add_done_callback(self._offers.discard)

    async def _offer(self, device: Device, request: Request[asyncio.Future[Lease]]) -> None:
        """Ask a device to wait for a client; tell the client, or let it wait for another one."""
        token = secrets.token_bytes(TOKEN_BYTES)
        link = self._links.get(device)
        try:
            if link is None:
                raise RpcError("the device is gone")
            await link.call("lease.grant", token, seconds=_GRANT_SECONDS)
        except (TreadleError, OSError, asyncio.TimeoutError) as error:
            log.warning("%s:%d does not take a client: %s", device.host, device.port, error)
            device.last_error = f"did not take a client: {error}"[:_LONGEST_NAME]
            device.become(BUSY)  # until it says something else
            if not request.tag.done():
                self.board.restore(request)
                self._match()
            return
        if request.tag.done():  # the client has gone meanwhile
            device.become(FREE)
            with suppress(TreadleError, OSError, asyncio.TimeoutError):
                await link.call("lease.revoke", token, seconds=_GRANT_SECONDS)
            self._match()
            return
        device.become("leased")
        request.tag.set_result([device.host, device.port, token])

    async def lend(self, key: str, priority: int, seconds: float) -> Lease:
        """Wait for a device and lend it. Raises: RpcError when none is free in time."""
        if len(self.board.requests) >= _MOST_REQUESTS:
            raise RpcError("the tracker's queue is full", hint="wait, and ask again")
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        request = self.board.ask(key, priority, future)
        self._match()
        try:
            return await asyncio.wait_for(future, seconds)
        except asyncio.TimeoutError:
            total = sum(d.key == key for d in self.board.devices)
            raise RpcError(
                f"no device {key!r} has become free within {seconds:g} s (there are {total})",
                hint="treadle rpc query shows what the devices do",
            ) from None
        finally:
            future.cancel()
            self.board.withdraw(request)

    def summary(self) -> list[Value]:
        """Return the devices and the queues."""
        now = time.monotonic()
        devices: list[Value] = [
            [d.host, d.port, d.key, d.state, now - d.since, d.client, d.last_error]
            for d in self.board.devices
        ]
        queues: list[Value] = []
        for key in self.board.device_keys():
            of_key = [d for d in self.board.devices if d.key == key]
            free = sum(d.state == FREE for d in of_key)
            queues.append([key, len(of_key), free, self.board.pending(key)])
        return [devices, queues]


class _DeviceSide:
    """The connection of a device."""

    def __init__(self, tracker: Tracker, accepted: Accepted) -> None:
        self._tracker = tracker
        self._address = accepted.address
        self._device: Device | None = None
        at = accepted.address
        self._link = Link(accepted.socket, accepted.out, accepted.into, at, self._answer)

    async def serve(self) -> None:
        """Serve until the device is gone."""
        try:
            await self._link.serve()
        finally:
            if self._device is not None:
                self._tracker.forget(self._device)

    async def _answer(self, function: str, arguments: Arguments) -> list[Value]:
        if function == "device.register" and self._device is None:
            return self._register(arguments)
        if function == "device.beat" and self._device is not None:
            state, client, last_error = _report(arguments)
            self._tracker.heard_of(self._device, state, client, last_error)
            return []
        raise RpcError(f"{function!r} is nothing a device can ask for now")

    def _register(self, arguments: Arguments) -> list[Value]:
        key = _name(arguments)
        host = arguments.text(_LONGEST_NAME) or self._address
        port = arguments.integer(1, 65535)
        state, client, last_error = _report(arguments)
        device = Device(key, host, port, state, client, last_error)
        self._tracker.register(device, self._link)
        self._device = device
        return [host]


def _report(arguments: Arguments) -> tuple[str, str, str]:
    state = arguments.text(_LONGEST_NAME)
    if state not in _STATES:
        raise RpcError(f"{state!r} is no state of a device")
    client, last_error = arguments.text(_LONGEST_NAME), arguments.text(_LONGEST_NAME)
    arguments.end()
    return state, client, last_error


def _name(arguments: Arguments) -> str:
    key = arguments.text(_LONGEST_NAME)
    if not key or not key.isprintable() or any(c.isspace() for c in key):
        raise RpcError(
            f"{key!r} is no name of a kind of device", hint="use letters and digits, as in rk3399"
        )
    return key


class _ClientSide:
    """The connection of a client."""

    def __init__(self, tracker: Tracker, accepted: Accepted) -> None:
        self._tracker = tracker
        at = accepted.address
        self._link = Link(accepted.socket, accepted.out, accepted.into, at, self._answer)

    async def serve(self) -> None:
        """Serve until the client is gone; what it waits for is cancelled then."""
        await self._link.serve()

    async def _answer(self, function: str, arguments: Arguments) -> list[Value]:
        if function == "lease.request":
            key, priority = _name(arguments), arguments.integer(-100, 100)
            seconds = arguments.number(0, 1e7)
            arguments.end()
            return await self._tracker.lend(key, priority, seconds)
        if function == "tracker.query":
            arguments.end()
            return self._tracker.summary()
        raise RpcError(f"{function!r} is nothing a tracker does")
