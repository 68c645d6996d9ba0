# SPDX-License-Identifier: Apache-2.0
"""Connections that wait: a client's, and a session's on the device. Frames in, frames out."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

from treadle.errors import RpcError
from treadle.rpc import poly1305, wire
from treadle.rpc.failures import refusal
from treadle.rpc.handshake import Opened, connecting
from treadle.rpc.values import Value
from treadle.rpc.wire import Frame, Kind, Role, Seal, Status
from treadle.runtime.native_frames import LongFrame, send_frames

_OPENING_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_KEEP_ALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A machine that has vanished is noticed after 25 seconds."""
_AHEAD_BYTES = 4096
"""That are read at once where fewer are wanted: small frames that have come together."""


class Closed(RpcError):
    """The other side has ended the connection."""


def tune_socket(sock: socket.socket) -> None:
    """Let small frames leave at once, and let connections to vanished machines end."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Channel:
    """Frames over a socket that blocks. `largest` bytes are allowed in a payload."""

    def __init__(
        self, sock: socket.socket, out: Seal, into: Seal, at: str, largest: int = wire.LARGEST_FRAME
    ) -> None:
        self.socket = sock
        self.at = at
        self._out = out
        self._in = into
        self._largest = largest
        self._buffer = bytearray(1 << 16)
        self._room = memoryview(bytearray(_AHEAD_BYTES))
        self._ahead = self._room[:0]

    def send(self, frame: Frame) -> None:
        """Send a frame. Raises: Closed, TimeoutError."""
        start = wire.start_of(frame)
        code = self._out.code(frame.kind, start, frame.blob)
        try:
            _send_all(
                self.socket, (start, frame.blob, code) if len(frame.blob) else (start + code,)
            )
        except TimeoutError:
            raise
        except OSError as error:
            raise self._broken(error) from None

    def send_long(self, frames: Sequence[Frame]) -> None:
        """Send frames that have long blobs, one after the other. Raises: Closed, TimeoutError."""
        if isinstance(self.socket, ssl.SSLSocket) or not poly1305.prepare():
            for frame in frames:
                self.send(frame)
            return
        made = [LongFrame(wire.start_of(f), f.blob, self._out.key(f.kind)) for f in frames]
        try:
            send_frames(self.socket.fileno(), made, self.socket.gettimeout())
        except TimeoutError:
            raise
        except OSError as error:
            raise self._broken(error) from None

    def _broken(self, error: OSError) -> Closed:
        return Closed(f"the connection broke: {error.strerror or error}", at=self.at)

    def receive(self) -> Frame:
        """Return the next frame; its blob is valid until the next but one call.

        Raises: Closed at the end of the connection, RpcError for a frame that is wrong.
        """
        header_bytes = self._exactly(wire.HEADER_BYTES)
        header = wire.unpack_header(header_bytes, self._largest)
        size = header.size + self._in.size
        if size > len(self._buffer):
            self._buffer = bytearray(self._largest + wire.MAC_BYTES)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        payload, code = view[: header.size], view[header.size :]
        self._in.check(code, header.kind, header_bytes, payload)
        return wire.frame_of(header, payload)

    def _exactly(self, size: int) -> bytes:
        if len(self._ahead) >= size:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return bytes(taken)
        found = bytearray(size)
        self._fill(memoryview(found))
        return bytes(found)

    def _fill(self, view: memoryview) -> None:
        while view:
            if not self._ahead and len(view) >= len(self._room):
                view = view[self._received(view) :]
                continue
            if not self._ahead:
                self._ahead = self._room[: self._received(self._room)]
            count = min(len(view), len(self._ahead))
            view[:count] = self._ahead[:count]
            view, self._ahead = view[count:], self._ahead[count:]

    def _received(self, view: memoryview) -> int:
        """Return how many bytes have come; at least one."""
        try:
            count = self.socket.recv_into(view)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._broken(error) from None
        if not count:
            raise Closed("the other side has closed the connection", at=self.at)
        return count

    def close(self) -> None:
        """End the connection."""
        self.socket.close()


def _send_all(sock: socket.socket, parts: Sequence[bytes | memoryview]) -> None:
    if isinstance(sock, ssl.SSLSocket) or len(parts) == 1:
        for part in parts:
            sock.sendall(part)
        return
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    while views:
        sent = sock.sendmsg(views)
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if views:
            views[0] = views[0][sent:]


# ---- connecting ----------------------------------------------------------------------------------


def open_channel(
    host: str,
    port: int,
    role: Role,
    key: bytes | None,
    *,
    seconds: float = _OPENING_SECONDS,
    largest: int = wire.LARGEST_FRAME,
    tls: ssl.SSLContext | None = None,
) -> Channel:
    """Return a connection to a server or a tracker that has shown that it has the key.

    Where too many attempts have failed, it is tried again until `seconds` have passed.

    Raises: RpcError when nothing is there, or the other side refuses or is not who it should be.
    """
    at = f"{host}:{port}"
    if key is not None:
        poly1305.prepare()
    end = time.monotonic() + seconds
    while True:
        sock = _connected(host, port, max(0.1, end - time.monotonic()), tls)
        opened = _opened_within(sock, role, key, at, seconds, end)
        if opened.status == Status.OK:
            return Channel(sock, opened.out, opened.into, at, largest)
        sock.close()
        if opened.status != Status.SLOW_DOWN or time.monotonic() + _RETRY_SECONDS > end:
            raise refusal(opened.status, at, opened.version)
        time.sleep(_RETRY_SECONDS)


def open_channel_on(
    sock: socket.socket, at: str, role: Role, key: bytes | None, *, seconds: float
) -> Channel:
    """Return a connection over a socket that leads to a server; `at` is what errors call it.

    Raises: RpcError as `open_channel` does; the socket is closed then.
    """
    opened = _opened_within(sock, role, key, at, seconds, time.monotonic() + seconds)
    if opened.status != Status.OK:
        sock.close()
        raise refusal(opened.status, at, opened.version)
    return Channel(sock, opened.out, opened.into, at)


def _opened_within(
    sock: socket.socket, role: Role, key: bytes | None, at: str, seconds: float, end: float
) -> Opened:
    """Return how opening goes until the time `end`. Raises: RpcError; the socket is closed then."""
    try:
        sock.settimeout(max(0.1, end - time.monotonic()))
        return _opened(sock, role, key)
    except TimeoutError:
        sock.close()
        raise RpcError(f"nothing answers within {seconds:g} s", at=at) from None
    except (OSError, RpcError) as error:
        sock.close()
        problem = error.problem if isinstance(error, RpcError) else error.strerror or str(error)
        hint = error.hint if isinstance(error, RpcError) else ""
        raise RpcError(f"the connection cannot be opened: {problem}", at=at, hint=hint) from None


def _connected(host: str, port: int, seconds: float, tls: ssl.SSLContext | None) -> socket.socket:
    at = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, port), seconds)
        tune_socket(sock)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except OSError as error:
        raise RpcError(
            f"nothing can be reached: {error.strerror or error}",
            at=at,
            hint="check the address, and that the server or tracker runs",
        ) from None


def _opened(sock: socket.socket, role: Role, key: bytes | None) -> Opened:
    steps = connecting(role, key)
    try:
        message, size = next(steps)
        while True:
            sock.sendall(message)
            message, size = steps.send(_read(sock, size))
    except StopIteration as end:
        opened: Opened = end.value
        return opened


def _read(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = sock.recv(size - len(found))
        if not piece:
            raise RpcError("the other side closes the connection")
        found += piece
    return found


def close_frame(values: list[Value]) -> Frame:
    """Return the frame that says why a session ends."""
    return Frame(Kind.CLOSE, 0, values)
