# SPDX-License-Identifier: Apache-2.0
"""The server of a device: one session at a time, each in a process that is watched and can be lost.

The server itself runs nothing of a client's: it finds out who may come, starts the process, ends it
when its time is over, and says what became of it. The link to the tracker is in `registration`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from treadle.errors import RpcError
from treadle.rpc import wire
from treadle.rpc.channel import close_frame
from treadle.rpc.failures import error_values
from treadle.rpc.files import session_folder
from treadle.rpc.gate import Accepted, Gate, Limits
from treadle.rpc.leases import BUSY, FREE
from treadle.rpc.link import read_frame, sealed
from treadle.rpc.session import SessionOptions, Shared, become_session, serve_session
from treadle.rpc.values import Arguments
from treadle.rpc.wire import Frame, Kind, Role, Seal

log = logging.getLogger("treadle.rpc")

LEASE_SECONDS = 10.0
"""How long a device waits for the client it was lent to."""
_OPENING_SECONDS = 5.0
_WATCH_SECONDS = 0.02
_ENDING_SECONDS = 0.5
_LONGEST_NAME = 200
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class ServerOptions:
    """What a server allows: seconds of a session and of a call (0: any), bytes of files, arrays."""

    session_seconds: float = 0.0
    call_seconds: float = 600.0
    quota: int = 16 << 30
    memory: int = 1 << 40


@dataclass
class State:
    """What a device tells of itself; `changed` is set when it differs from what was told."""

    name: str = FREE
    client: str = ""
    last_error: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def become(self, name: str, client: str = "") -> None:
        """Change it."""
        self.name, self.client = name, client
        self.changed.set()


@dataclass(frozen=True)
class _Wishes:
    """What a client asks for when it opens a session."""

    token: bytes
    client: str
    session_seconds: float
    call_seconds: float


def _wishes(frame: Frame) -> _Wishes:
    arguments = Arguments("session.open", list(frame.values))
    if frame.kind is not Kind.CALL or arguments.text(40) != "session.open":
        raise RpcError("a connection begins with session.open")
    token, client = arguments.data(64), arguments.text(_LONGEST_NAME)
    seconds = arguments.number(), arguments.number()
    arguments.end()
    return _Wishes(token, client, *seconds)


def _least(first: float, second: float) -> float:
    """Return the smaller of two limits, of which 0 is none."""
    return min(first, second) if first and second else first or second


class Server:
    """A server on a socket that listens; with `is_lent`, only clients of a tracker may come."""

    def __init__(
        self,
        sock: socket.socket,
        key: bytes | None,
        folder: Path,
        options: ServerOptions,
        *,
        is_lent: bool = False,
        facts: Mapping[str, str] = _NOTHING,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.gate = Gate(sock, key, frozenset((Role.CLIENT,)), self._handle, limits, tls)
        self.state = State()
        self._folder = folder
        self._options = options
        self._facts = facts
        self._is_lent = is_lent
        self._token = b""
        self._token_end = 0.0
        self._lifeline = os.pipe()
        self._running: set[int] = set()

    async def serve(self) -> None:
        """Serve until cancelled; a session that goes on then is ended."""
        expiry = asyncio.ensure_future(self._expire())
        try:
            await self.gate.serve()
        finally:
            expiry.cancel()
            for pid in self._running:
                _kill(pid)

    # ---- leases ----------------------------------------------------------------------------------

    def grant(self, token: bytes) -> None:
        """Wait for the client that has a token. Raises: RpcError when the device is not free."""
        if self.state.name != FREE:
            raise RpcError(f"the device is {self.state.name}")
        self._token, self._token_end = token, time.monotonic() + LEASE_SECONDS
        self.state.become("leased")

    def revoke(self, token: bytes) -> None:
        """Wait no longer for a client."""
        if self.state.name == "leased" and hmac.compare_digest(token, self._token):
            self.state.become(FREE)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            if self.state.name == "leased" and time.monotonic() > self._token_end:
                self.state.last_error = "a client that was given the device did not come"
                self.state.become(FREE)

    def _admit(self, wishes: _Wishes) -> None:
        """Take the device for a client. Raises: RpcError when it may not have it."""
        if self.state.name == BUSY:
            raise RpcError(
                f"the device is busy with {self.state.client or 'another client'}",
                hint="wait until it is free; a tracker keeps a queue",
            )
        if self._is_lent:
            is_due = self.state.name == "leased"
            if not is_due or not hmac.compare_digest(wishes.token, self._token):
                raise RpcError(
                    "the device is lent by a tracker, and not to this client",
                    hint="ask the tracker: treadle.rpc.connect_tracker(...).request(...)",
                )
        self._token = b""
        self.state.become(BUSY, wishes.client)

    async def _wait_for_the_last_one(self) -> None:
        """Let a session that is just ending end."""
        end = time.monotonic() + _ENDING_SECONDS
        while self.state.name == BUSY and time.monotonic() < end:
            await asyncio.sleep(_WATCH_SECONDS)

    # ---- sessions --------------------------------------------------------------------------------

    async def _handle(self, accepted: Accepted) -> None:
        reading = read_frame(accepted.socket, accepted.into, wire.LARGEST_CONTROL)
        opening = await asyncio.wait_for(reading, _OPENING_SECONDS)
        try:
            wishes = _wishes(opening)
            await self._wait_for_the_last_one()
            self._admit(wishes)
        except RpcError as error:
            frame = Frame(Kind.ERROR, opening.number, error_values(error))
            await asyncio.wait_for(_send(accepted, frame), _OPENING_SECONDS)
            return
        log.info("%s: a session for %s begins", accepted.address, wishes.client)
        reason = ""
        try:
            reason = await self._session(accepted, opening, wishes)
        except OSError as error:
            reason = f"the session cannot be started: {error.strerror}"
        finally:
            self.state.last_error = reason or self.state.last_error
            self.state.become(FREE)
        log.info("%s: the session ends%s", accepted.address, f": {reason}" if reason else "")

    async def _session(self, accepted: Accepted, opening: Frame, wishes: _Wishes) -> str:
        """Run a session to its end; return why it was ended, "" where the client did it."""
        folder = session_folder(self._folder)
        shared = Shared()
        pid = 0
        try:
            pid = self._fork(accepted, opening, wishes, folder, shared)
            self._running.add(pid)
            reason = await self._watch(pid, wishes, shared)
            _kill(pid)
            self._running.discard(pid)
            if reason:
                _say_last_word(accepted, reason, shared)
            return reason
        finally:
            if pid in self._running:  # the server is asked to end
                _kill(pid)
                self._running.discard(pid)
            shutil.rmtree(folder, ignore_errors=True)

    def _fork(
        self,
        accepted: Accepted,
        opening: Frame,
        wishes: _Wishes,
        folder: Path,
        shared: Shared,
    ) -> int:
        options = SessionOptions(
            self._options.quota,
            self._options.memory,
            _least(self._options.call_seconds, wishes.call_seconds),
        )
        pid = os.fork()
        if pid:
            with suppress(OSError):  # the process does it too: whoever is first
                os.setpgid(pid, pid)
            return pid
        code = 1
        try:
            become_session(self._lifeline[0], keep=accepted.socket.fileno())
            folders = (self._folder, folder)
            sock, keys = accepted.socket, accepted.keys
            serve_session(sock, keys, opening, folders, options, self._facts, shared)
            code = 0
        except Exception:  # a defect: the client is told the code, the log why
            log.exception("the session's process fails")
        finally:
            os._exit(code)  # what the server has open is not this process's to flush or to remove

    async def _watch(self, pid: int, wishes: _Wishes, shared: Shared) -> str:
        """Wait until the process ends or has to be ended; return why."""
        start = time.monotonic()
        session_seconds = _least(self._options.session_seconds, wishes.session_seconds)
        call_seconds = _least(self._options.call_seconds, wishes.call_seconds)
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return _how(status)
            now = time.monotonic()
            if session_seconds and now > start + session_seconds:
                return f"the session's time limit of {session_seconds:g} s has passed"
            deadline = shared.told()[0]
            if deadline and now > deadline:
                return f"a call took longer than its time limit of {call_seconds:g} s"


async def _send(accepted: Accepted, frame: Frame) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(accepted.socket, sealed(frame, accepted.out))


def _say_last_word(accepted: Accepted, reason: str, shared: Shared) -> None:
    """Tell the client why its session was ended, unless it waits for the rest of a frame."""
    if shared.told()[1]:
        return
    seal = Seal(accepted.keys[1] if accepted.keys else None)
    frame = close_frame(error_values(RpcError(reason)))
    with suppress(OSError):
        accepted.socket.setblocking(False)
        accepted.socket.send(sealed(frame, seal))


def _kill(pid: int) -> None:
    """End a session's process and those it has started; wait for it."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _how(status: int) -> str:
    """Return what a process died of, "" where it ended well."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"the session's process crashed: {signal.strsignal(number) or number}"
    code = os.waitstatus_to_exitcode(status)
    return f"the session's process ended with exit code {code}" if code else ""
