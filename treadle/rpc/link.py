# SPDX-License-Identifier: Apache-2.0
"""Connections that do not wait: calls in both directions, of trackers and what talks to them."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from treadle.errors import RpcError, TreadleError
from treadle.rpc import wire
from treadle.rpc.failures import error_of, error_values
from treadle.rpc.gate import read_exactly, send
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import Frame, Kind, Seal

_SEND_SECONDS = 10.0
_MOST_CALLS = 64
"""Of the other side, that are being answered at once."""

Answer = Callable[[str, Arguments], Awaitable[list[Value]]]
"""Answers a call by its function's name and its arguments."""


async def read_frame(sock: socket.socket, seal: Seal, largest: int) -> Frame:
    """Return the next frame. Raises: RpcError for a wrong one, and at the end."""
    header_bytes = await read_exactly(sock, wire.HEADER_BYTES)
    header = wire.unpack_header(header_bytes, largest)
    data = memoryview(await read_exactly(sock, header.size + seal.size))
    payload, code = data[: header.size], data[header.size :]
    seal.check(code, header.kind, header_bytes, payload)
    return wire.frame_of(header, payload)


def sealed(frame: Frame, seal: Seal) -> bytes:
    """Return the bytes of a frame with its code."""
    start = wire.start_of(frame)
    return b"".join((start, frame.blob, seal.code(frame.kind, start, frame.blob)))


class Link:
    """A connection on which both sides call functions of the other."""

    def __init__(self, sock: socket.socket, out: Seal, into: Seal, at: str, answer: Answer) -> None:
        self.at = at
        self._socket = sock
        self._out = out
        self._in = into
        self._answer = answer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[list[Value]]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def serve(self) -> None:
        """Answer calls until the connection ends. Raises: RpcError, OSError when it does."""
        try:
            while True:
                await self._take(await read_frame(self._socket, self._in, wire.LARGEST_CONTROL))
        finally:
            for task in list(self._answering):
                task.cancel()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(RpcError("the connection has ended", at=self.at))
            self._waiting.clear()

    def hang_up(self) -> None:
        """End the connection; the other side may open it again."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.CALL:
            if len(self._answering) >= _MOST_CALLS:
                raise RpcError("the other side asks for too much at once")
            task = asyncio.ensure_future(self._reply(frame))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        future = self._waiting.pop(frame.number, None)
        if future is None or future.done():
            return  # whoever asked has gone
        if frame.kind is Kind.RESULT:
            future.set_result(frame.values)
        else:
            future.set_exception(error_of(frame.values, self.at))

    async def _reply(self, frame: Frame) -> None:
        arguments = Arguments("a call", list(frame.values))
        try:
            name = arguments.text()
            values = await self._answer(name, Arguments(name, list(frame.values[1:])))
            made = Frame(Kind.RESULT, frame.number, values)
        except TreadleError as error:
            made = Frame(Kind.ERROR, frame.number, error_values(error))
        with suppress(OSError, asyncio.TimeoutError):  # noticed where frames are read
            await self._send(made)

    async def call(self, function: str, *values: Value, seconds: float) -> list[Value]:
        """Call a function of the other side; return its results.

        Raises: TreadleError as the function does; RpcError when there is no answer in time.
        """
        number = next(self._numbers) & 0xFFFFFFFF
        future: asyncio.Future[list[Value]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self._send(Frame(Kind.CALL, number, [function, *values]))
            return await asyncio.wait_for(future, seconds)
        except asyncio.TimeoutError:
            problem = f"{function} is not answered within {seconds:g} s"
            raise RpcError(problem, at=self.at) from None
        finally:
            self._waiting.pop(number, None)

    async def _send(self, frame: Frame) -> None:
        async with self._lock:  # codes are counted in the order of sending
            await asyncio.wait_for(send(self._socket, sealed(frame, self._out)), _SEND_SECONDS)
