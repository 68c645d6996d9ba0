# SPDX-License-Identifier: Apache-2.0
"""A tracker as its clients see it: asking for a device, asking what there is."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.errors import RpcError
from treadle.rpc.channel import Channel, Closed, open_channel
from treadle.rpc.client import CALL_SECONDS, KeyFile, Session
from treadle.rpc.failures import error_of
from treadle.rpc.keys import read_key
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import LARGEST_CONTROL, Frame, Kind, Role

_QUERY_SECONDS = 10.0
_GRACE_SECONDS = 10.0
_ATTEMPTS = 3
_RETRY_SECONDS = 0.5
_LOST_SECONDS = 30.0
"""How long a tracker that has gone may take to come back."""


@dataclass(frozen=True)
class DeviceStatus:
    """A device: where its server is, its key, its state and for how many seconds it has that."""

    host: str
    port: int
    key: str
    state: str
    seconds: float
    client: str
    last_error: str


@dataclass(frozen=True)
class QueueStatus:
    """The devices of one key, and how many clients wait for one."""

    key: str
    total: int
    free: int
    pending: int


@dataclass(frozen=True)
class Summary:
    """What a tracker knows. Its text is the one that tools read."""

    devices: tuple[DeviceStatus, ...]
    queues: tuple[QueueStatus, ...]

    def __str__(self) -> str:
        line = "-" * 28
        lines = ["Server List", line, "server-address\tkey", line]
        lines += [f"{d.host}:{d.port}\tserver:{d.key}" for d in self.devices]
        lines += [line, "", "Queue Status"]
        width = max((len(q.key) for q in self.queues), default=0)
        title = f"{'key':<{width}}   total  free  pending"
        rule = "-" * (len(title) + 1)
        lines += [rule, title, rule]
        lines += [
            f"{q.key:<{width}}   {q.total:<5d}  {q.free:<4d}  {q.pending:<7d}" for q in self.queues
        ]
        return "\n".join([*lines, rule, ""])

    def details(self) -> str:
        """Return what each device does, since when and for whom, and its last error."""
        lines = ["Device Status"]
        for d in self.devices:
            who = f" with {d.client}" if d.client else ""
            lines.append(f"{d.host}:{d.port}\t{d.key}\t{d.state}{who} for {d.seconds:.0f} s")
            if d.last_error:
                lines.append(f"\tlast error: {d.last_error}")
        return "\n".join(lines)


class TrackerSession:
    """A tracker's address; each request is a connection of its own."""

    def __init__(self, host: str, port: int, key: bytes | None, tls: ssl.SSLContext | None) -> None:
        """Use `connect_tracker` instead."""
        self._host = host
        self._port = port
        self._key = key
        self._tls = tls

    def summary(self) -> Summary:
        """Return the devices and the queues."""
        found = self._asked("tracker.query", seconds=_QUERY_SECONDS)
        devices = tuple(
            DeviceStatus(
                row.text(),
                row.integer(),
                row.text(),
                row.text(),
                row.number(),
                row.text(),
                row.text(),
            )
            for row in found.rows()
        )
        queues = tuple(
            QueueStatus(row.text(), row.integer(), row.integer(), row.integer())
            for row in found.rows()
        )
        return Summary(devices, queues)

    def request(
        self,
        key: str,
        priority: int = 1,
        session_timeout: float = 0,
        *,
        wait_timeout: float = 600.0,
        call_timeout: float = CALL_SECONDS,
    ) -> Session:
        """Wait for a device with that key; return a session on it.

        Of those that wait, the one of the highest priority is next; waiting for 30 s counts as
        much as one step of priority. A tracker that restarts meanwhile is asked again.

        Raises: RpcError when no device is free within `wait_timeout` seconds.
        """
        end = time.monotonic() + wait_timeout
        for attempt in range(_ATTEMPTS):
            left = max(0.0, end - time.monotonic())
            ask: list[Value] = [key, priority, left]
            found = self._asked("lease.request", *ask, seconds=left + _GRACE_SECONDS)
            host, port, token = found.text(), found.integer(1, 65535), found.data()
            try:
                channel = open_channel(host, port, Role.CLIENT, self._key, tls=self._tls)
                return Session(channel, token, session_timeout, call_timeout)
            except RpcError:  # the device is gone, or has waited too long for us
                if attempt == _ATTEMPTS - 1 or time.monotonic() > end:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _asked(self, function: str, *values: Value, seconds: float) -> Arguments:
        """Call a function of the tracker; where it goes away before it answers, ask again."""
        end = time.monotonic() + seconds
        channel = self._connected()
        while True:
            try:
                return self._answered(channel, function, values, end)
            except Closed:
                channel = self._connected_again(min(end, time.monotonic() + _LOST_SECONDS))

    def _answered(
        self, channel: Channel, function: str, values: Sequence[Value], end: float
    ) -> Arguments:
        try:
            channel.socket.settimeout(max(0.1, end - time.monotonic()))
            channel.send(Frame(Kind.CALL, 1, [function, *values]))
            frame = channel.receive()
        except TimeoutError:
            raise RpcError("the tracker does not answer in time", at=channel.at) from None
        finally:
            channel.close()
        if frame.kind is not Kind.RESULT:
            raise error_of(frame.values, channel.at)
        return Arguments(function, frame.values)

    def _connected_again(self, end: float) -> Channel:
        """Return a connection to a tracker that has gone away, when it is back."""
        while True:
            try:
                return self._connected()
            except RpcError:
                if time.monotonic() > end:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _connected(self) -> Channel:
        return open_channel(
            self._host,
            self._port,
            Role.CLIENT,
            self._key,
            largest=LARGEST_CONTROL,
            tls=self._tls,
        )


def connect_tracker(
    host: str,
    port: int,
    *,
    key_file: KeyFile | None = None,
    tls: ssl.SSLContext | None = None,
) -> TrackerSession:
    """Return the tracker at an address; `key_file` is what it was started with.

    Example: `connect_tracker("127.0.0.1", 9190).request("rk3399", session_timeout=60)`
    """
    key = None if key_file is None else read_key(key_file)
    return TrackerSession(host, port, key, tls)
