# SPDX-License-Identifier: Apache-2.0
"""Sessions on devices, as their clients hold them: `connect`, or `connect_tracker(...).request`."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from treadle.errors import RpcError, TreadleError, UsageError
from treadle.rpc.channel import Channel, Closed, open_channel
from treadle.rpc.failures import error_of
from treadle.rpc.keys import read_key
from treadle.rpc.remote import RemoteArray, RemoteExecutor, RemoteModule
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import PIECE_BYTES, Frame, Kind, Role
from treadle.runtime.array import ArrayLike, as_numpy

CALL_SECONDS = 600.0
"""How long one call may take where nothing else is said."""
_GRACE_SECONDS = 5.0
"""How long a client waits beyond a limit: the server is to say that it has passed."""
_GOODBYE_SECONDS = 2.0
_WINDOW = 24
"""Pieces that are on their way at once."""
_GARBAGE = 256
_GARBAGE_BYTES = 1 << 20

KeyFile = str | os.PathLike[str]
Content = bytes | bytearray | memoryview


def client_name() -> str:
    """Return who asks, as other users of a device see it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"[:200]


def connect(
    host: str,
    port: int,
    *,
    key_file: KeyFile | None = None,
    session_timeout: float = 0,
    call_timeout: float = CALL_SECONDS,
    connect_timeout: float = 10.0,
    tls: ssl.SSLContext | None = None,
) -> Session:
    """Return a session on the device whose server is at an address.

    The session, and each call of it, is ended after so many seconds, 0 for any. `key_file` is what
    the server was started with. Example: `connect("127.0.0.1", 9090).upload("model.tar")`

    Raises: RpcError when nothing can be reached, the key is wrong, or the device is busy.
    """
    key = None if key_file is None else read_key(key_file)
    channel = open_channel(host, port, Role.CLIENT, key, seconds=connect_timeout, tls=tls)
    return Session(channel, b"", session_timeout, call_timeout)


class Session:
    """The use of a device until `close`: files, arrays, models, kernels.

    Threads may share one; their calls take turns. After an error of the connection nothing of it
    can be used any more.
    """

    def __init__(
        self, channel: Channel, token: bytes, session_seconds: float, call_seconds: float
    ) -> None:
        """Use `connect` instead."""
        if session_seconds < 0 or call_seconds < 0:
            channel.close()
            raise UsageError("a time limit is negative", hint="0 is none")
        self._channel = channel
        self._lock = threading.RLock()
        self._ended: TreadleError | None = None
        self._call_seconds = call_seconds
        self._end = time.monotonic() + session_seconds if session_seconds else None
        self._number = 0
        self._garbage: deque[tuple[int, int]] = deque()
        wishes: list[Value] = [token, client_name(), float(session_seconds), float(call_seconds)]
        try:
            self.call("session.open", *wishes)
        except TreadleError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Host and port of the device's server."""
        return self._channel.at

    # ---- calls -----------------------------------------------------------------------------------

    def call(self, function: str, *values: Value, blob: Content = b"") -> Arguments:
        """Call a function of the device; return its results. Bytes that come with them are lost.

        Raises: RpcError when the session has ended; TreadleError as the function does.
        """
        return self.call_for_bytes(function, *values, blob=blob)[0]

    def call_for_bytes(
        self, function: str, *values: Value, blob: Content = b""
    ) -> tuple[Arguments, bytes | memoryview]:
        """Call a function; return its results, and bytes that are valid until the next call."""
        with self._lock:
            self._send(function, values, blob)
            frame = self._receive()
            if frame.number != self._number & 0xFFFFFFFF:
                raise self._end_with(RpcError("an answer is of another call", at=self.address))
            if frame.kind is Kind.ERROR:
                raise error_of(frame.values, self.address)
            return Arguments(function, frame.values), frame.blob

    def _send(self, function: str, values: Sequence[Value], blob: Content | memoryview) -> None:
        if self._ended is not None:
            raise self._ended
        self._number += 1
        self._channel.socket.settimeout(self._limit())
        number = self._number & 0xFFFFFFFF
        try:
            view = memoryview(blob)
            self._channel.send(Frame(Kind.CALL, number, [function, *values], view))
        except (Closed, TimeoutError) as error:
            raise self._broken(error) from None

    def _receive(self) -> Frame:
        try:
            frame = self._channel.receive()
        except (RpcError, TimeoutError) as error:
            self._end_with(self._explained(error))
            assert self._ended is not None
            raise self._ended from None
        except BaseException:  # Ctrl-C: what comes next would answer another call
            self._end_with(RpcError("the session was interrupted", at=self.address))
            raise
        if frame.kind is Kind.CLOSE or (frame.kind is Kind.ERROR and frame.number == 0):
            self._end_with(error_of(frame.values, self.address))
            assert self._ended is not None
            raise self._ended
        return frame

    def _broken(self, error: Closed | TimeoutError) -> TreadleError:
        """Return why a call cannot be sent; the server may have said why before it hung up."""
        with suppress(RpcError, TimeoutError):
            self._channel.socket.settimeout(1.0)
            while True:
                frame = self._channel.receive()
                if frame.kind is Kind.CLOSE:
                    return self._end_with(error_of(frame.values, self.address))
        return self._end_with(self._explained(error))

    def _explained(self, error: RpcError | TimeoutError) -> TreadleError:
        if isinstance(error, TimeoutError):
            return RpcError(
                "the device does not answer within the time limits of the session",
                at=self.address,
                hint="ask for longer ones: session_timeout, call_timeout",
            )
        return error if error.at else error.located(self.address)

    def _end_with(self, error: TreadleError) -> TreadleError:
        self._ended = error
        self._channel.close()
        return error

    def _limit(self) -> float | None:
        limits = [self._call_seconds] if self._call_seconds else []
        if self._end is not None:
            limits.append(max(0.0, self._end - time.monotonic()))
        return min(limits) + _GRACE_SECONDS if limits else None

    # ---- files -----------------------------------------------------------------------------------

    def upload(
        self,
        source: str | os.PathLike[str] | Content,
        name: str | None = None,
        *,
        resume: bool = True,
    ) -> str:
        """Copy a file, or bytes, to the device; return its name there.

        An upload that was cut off goes on where it ended, if what is there is how this one begins.
        """
        if isinstance(source, Content):
            if name is None:
                raise UsageError("bytes need a name on the device", hint="upload(data, 'lib.so')")
            view = memoryview(source).cast("B")
            self._upload(name, len(view), resume, _Pieces(view))
            return name
        path = Path(source)
        name = path.name if name is None else name
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._upload(name, size, resume, _Pieces(file.fileno()))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        return name

    def _upload(self, name: str, size: int, resume: bool, pieces: _Pieces) -> None:
        with self._lock:
            start = self.call("file.begin", name, size, int(resume)).integer()
            if start and pieces.hash(start) != self.call("file.check").text():
                start = self.call("file.begin", name, size, 0).integer()
            self._in_flight("file.write", _offsets(start, size), pieces)
            self.call("file.end")

    def _in_flight(
        self, function: str, offsets: Iterator[tuple[int, int]], pieces: _Pieces, *first: Value
    ) -> None:
        """Call a function with piece after piece, some of them on their way at once."""
        waiting = 0
        failed: TreadleError | None = None
        try:
            for offset, size in offsets:
                self._send(function, (*first, offset), pieces.at(offset, size))
                waiting += 1
                if waiting == _WINDOW:
                    waiting -= 1
                    failed = self._failure()
                if failed is not None:
                    break
        finally:  # whatever happens, no answer is left for the next call
            for _ in range(waiting if self._ended is None else 0):
                failure = self._failure()
                failed = failed or failure
        if failed is not None:
            raise failed

    def _failure(self) -> TreadleError | None:
        frame = self._receive()
        return error_of(frame.values, self.address) if frame.kind is Kind.ERROR else None

    def download(self, name: str, path: str | os.PathLike[str] | None = None) -> bytes:
        """Return a file of the device; with a path, write it there and return nothing of it."""
        if path is None:
            return b"".join(self._download(name))
        try:
            with open(path, "wb") as file:
                for piece in self._download(name):
                    file.write(piece)
        except OSError as error:
            raise UsageError(f"{os.fspath(path)} cannot be written: {error.strerror}") from None
        return b""

    def _download(self, name: str) -> Iterator[bytes]:
        offset = 0
        while True:
            piece = bytes(self.call_for_bytes("file.read", name, offset, PIECE_BYTES)[1])
            if not piece:
                return
            yield piece
            offset += len(piece)

    def remove(self, name: str) -> None:
        """Remove a file of the device."""
        self.call("file.remove", name)

    def files(self) -> dict[str, int]:
        """Return the names and sizes of the session's files."""
        return {row.text(): row.integer() for row in self.call("file.list").rows()}

    # ---- what the device does --------------------------------------------------------------------

    def info(self) -> dict[str, str]:
        """Return what the device is: its CPU, features, cores, memory, and the target for it."""
        return {row.text(): row.text() for row in self.call("device.info").rows()}

    def cores(self) -> int:
        """Return how many cores the device has; 1 where it does not say."""
        found = self.info().get("cores", "")
        return int(found) if found.isdecimal() else 1

    def load(self, name: str, threads: int = 0) -> RemoteExecutor:
        """Return a model that was uploaded, loaded: a tar of `treadle compile`."""
        return RemoteExecutor(self, self.call("model.load", name, threads))

    def load_module(self, name: str, text: str = "") -> RemoteModule:
        """Return kernels that were uploaded, loaded: what `treadle.build(...).save` wrote.

        Of another library `text` says what its kernels take, see `kernel_files.described`.
        """
        return RemoteModule(self, self.call("module.load", name, text))

    def set_num_threads(self, count: int) -> None:
        """Let kernels and models of this session use so many threads."""
        self.call("device.threads", count)

    def empty(self, shape: Sequence[int], dtype: str = "float32") -> RemoteArray:
        """Return an array on the device with undefined elements."""
        self._free_garbage()
        sizes: list[Value] = [int(size) for size in shape]
        handle = self.call("array.new", dtype, sizes).integer()
        return RemoteArray(self, handle, dtype, tuple(map(int, shape)))

    def array(self, source: ArrayLike) -> RemoteArray:
        """Return a copy of an array on the device."""
        view = as_numpy(source, "the source")
        return RemoteArray.like(self, view).copyfrom(view)

    def write_array(self, handle: int, view: np.ndarray) -> None:
        """Write all bytes of an array of the device."""
        flat = np.ascontiguousarray(view).reshape(-1).view(np.uint8)
        with self._lock:
            if flat.size <= PIECE_BYTES:
                self.call("array.write", handle, 0, blob=flat.data)
            else:
                pieces = _Pieces(flat.data)
                self._in_flight("array.write", _offsets(0, flat.size), pieces, handle)

    def read_array(self, handle: int, target: np.ndarray) -> None:
        """Read all bytes of an array of the device into a contiguous one."""
        flat = target.reshape(-1).view(np.uint8)
        with self._lock:
            for offset, size in _offsets(0, flat.size):
                blob = self.call_for_bytes("array.read", handle, offset, size)[1]
                flat[offset : offset + size] = np.frombuffer(blob, np.uint8)

    def forget(self, handle: int, nbytes: int) -> None:
        """Note that an array of the device is of no use any more; it is freed with a later call."""
        self._garbage.append((handle, nbytes))

    def _free_garbage(self) -> None:
        garbage = self._garbage
        if len(garbage) >= _GARBAGE or sum(size for _, size in list(garbage)) > _GARBAGE_BYTES:
            self.free([garbage.popleft()[0] for _ in range(len(garbage))])

    def free(self, handles: Sequence[int]) -> None:
        """Free arrays of the device now."""
        self.call("array.free", list(handles))

    def close(self) -> None:
        """End the session; when this returns, the device is free for the next one."""
        if self._ended is None:
            self._say_goodbye()
            self._end_with(RpcError("the session is closed", at=self.address))

    def _say_goodbye(self) -> None:
        """Ask the server to end the session, and wait a little until it has."""
        sock = self._channel.socket
        with suppress(RpcError, OSError):
            sock.settimeout(_GOODBYE_SECONDS)
            self._channel.send(Frame(Kind.CLOSE, 0, []))
            while sock.recv(1 << 16):
                pass

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel.close()


def _offsets(start: int, size: int) -> Iterator[tuple[int, int]]:
    for offset in range(start, size, PIECE_BYTES):
        yield offset, min(PIECE_BYTES, size - offset)


class _Pieces:
    """Bytes in memory or in a file, a piece at a time."""

    def __init__(self, source: memoryview | int) -> None:
        self._source = source
        self._buffer = bytearray(PIECE_BYTES if isinstance(source, int) else 0)

    def at(self, offset: int, size: int) -> memoryview:
        """Return a piece, valid until the next one is asked for. Raises: UsageError, OSError."""
        if not isinstance(self._source, int):
            return self._source[offset : offset + size]
        view = memoryview(self._buffer)[:size]
        if os.preadv(self._source, [view], offset) != size:
            raise UsageError("the file has become shorter while it was read")
        return view

    def hash(self, size: int) -> str:
        """Return the SHA-256 of the first bytes."""
        found = hashlib.sha256()
        for offset, count in _offsets(0, size):
            found.update(self.at(offset, count))
        return found.hexdigest()
