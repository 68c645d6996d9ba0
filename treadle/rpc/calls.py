# SPDX-License-Identifier: Apache-2.0
"""Calls over a connection to a device: one after the other, within time limits, until it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from treadle.errors import RpcError, TreadleError, UsageError
from treadle.rpc.channel import Channel, Closed
from treadle.rpc.failures import error_of
from treadle.rpc.pieces import STRETCH_BYTES, Pieces, offsets
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import WRITTEN_BYTES, Frame, Kind

_GRACE_SECONDS = 5.0
"""How long a client waits beyond a limit: the server is to say that it has passed."""
_GOODBYE_SECONDS = 2.0
_AHEAD = 8
"""Answers that may be missing when more calls are sent."""

Content = bytes | bytearray | memoryview


class Calls:
    """What a client and the server of a device say to each other.

    Threads may share it: `lock` is held for a call, and by who makes several that belong together.
    After an error of the connection no call can be made any more.
    """

    def __init__(self, channel: Channel, session_seconds: float, call_seconds: float) -> None:
        """Limit the session and each call, in seconds; 0: without limit."""
        if session_seconds < 0 or call_seconds < 0:
            channel.close()
            raise UsageError("a time limit is negative", hint="0 is none")
        self.lock = threading.RLock()
        self._channel = channel
        self._ended: TreadleError | None = None
        self._call_seconds = call_seconds
        self._end = time.monotonic() + session_seconds if session_seconds else None
        self._number = 0

    @property
    def address(self) -> str:
        """Host and port of the device's server."""
        return self._channel.at

    def call(self, function: str, *values: Value, blob: Content = b"") -> Arguments:
        """Call a function of the device; return its results. Bytes that come with them are lost.

        Raises: RpcError when the session has ended; TreadleError as the function does.
        """
        return self.call_for_bytes(function, *values, blob=blob)[0]

    def call_for_bytes(
        self, function: str, *values: Value, blob: Content = b""
    ) -> tuple[Arguments, bytes | memoryview]:
        """Call a function; return its results, and bytes that are valid until the next call."""
        with self.lock:
            self._send([([function, *values], memoryview(blob))])
            frame = self._receive()
            if frame.number != self._number & 0xFFFFFFFF:
                raise self._end_with(RpcError("an answer is of another call", at=self.address))
            if frame.kind is Kind.ERROR:
                raise error_of(frame.values, self.address)
            return Arguments(function, frame.values), frame.blob

    def _send(self, calls: Iterable[tuple[list[Value], memoryview]]) -> None:
        """Send calls, each a list of values that begins with the function's name, and a blob."""
        if self._ended is not None:
            raise self._ended
        frames = [self._numbered(values, blob) for values, blob in calls]
        self._channel.socket.settimeout(self._limit())
        try:
            if len(frames) == 1:
                self._channel.send(frames[0])
            else:
                self._channel.send_long(frames)
        except (Closed, TimeoutError) as error:
            raise self._broken(error) from None
        except BaseException:  # Ctrl-C: part of a frame may be on its way
            self._end_with(RpcError("the session was interrupted", at=self.address))
            raise

    def _numbered(self, values: list[Value], blob: memoryview) -> Frame:
        self._number += 1
        return Frame(Kind.CALL, self._number & 0xFFFFFFFF, values, blob)

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

    def stream(self, function: str, start: int, size: int, pieces: Pieces, *first: Value) -> None:
        """Call a function with the pieces of bytes start..size, some on their way at once.

        Raises: the first error that the function answers with.
        """
        waiting = 0
        failed: TreadleError | None = None
        try:
            for offset, count in offsets(start, size, STRETCH_BYTES):
                stretch = pieces.at(offset, count)
                places = list(offsets(0, count, WRITTEN_BYTES))
                self._send(
                    ([function, *first, offset + at], stretch[at : at + length])
                    for at, length in places
                )
                waiting += len(places)
                while waiting > _AHEAD:  # several at once: most of them have come
                    waiting -= 1
                    failed = self._failure() or failed
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

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel.close()
