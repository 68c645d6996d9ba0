# SPDX-License-Identifier: Apache-2.0
"""A session on the device: a process of its own that answers one client's calls until it goes.

What crashes or never ends costs this process alone. The server watches it through a few shared
bytes, see `Shared`, and tells the client why it ended.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from treadle.errors import RpcError
from treadle.rpc.channel import Channel, Closed
from treadle.rpc.device import DeviceFunctions
from treadle.rpc.failures import error_values
from treadle.rpc.files import WorkFolder
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import Frame, Kind, Seal

_STATE = struct.Struct("<dII")


class Shared:
    """What a session's process tells the server, in memory of both.

    `deadline` is when the current call must have ended, in the seconds of the monotonic clock, 0
    between calls. While a frame is being sent nothing else may be.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def tell(self, deadline: float, is_sending: bool, calls: int) -> None:
        """Note the state (the session's process)."""
        _STATE.pack_into(self._memory, 0, deadline, is_sending, calls & 0xFFFFFFFF)

    def told(self) -> tuple[float, bool, int]:
        """Return the state (the server)."""
        deadline, is_sending, calls = _STATE.unpack_from(self._memory, 0)
        return deadline, bool(is_sending), calls


@dataclass(frozen=True)
class SessionOptions:
    """What a session may take: bytes of files and of arrays, seconds of a call, 0 for any."""

    quota: int
    memory: int
    call_seconds: float


def serve_session(
    sock: socket.socket,
    keys: tuple[bytes, bytes] | None,
    opening: Frame,
    folders: tuple[Path, Path],
    options: SessionOptions,
    facts: Mapping[str, str],
    shared: Shared,
) -> None:
    """Answer the client at the socket until it goes; its first frame was `opening`."""
    sock.setblocking(True)
    to_server, to_client = keys or (None, None)
    channel = Channel(sock, Seal(to_client), Seal(to_server, counter=1), "the client")
    files = WorkFolder(*folders, options.quota)
    functions = DeviceFunctions(files, options.memory)
    info = functions.table["device.info"]
    functions.table["device.info"] = lambda a, b: ([_merged(info(a, b)[0][0], facts)], b"")
    _Loop(channel, functions, options.call_seconds, shared).serve(opening)
    files.close()


def _merged(rows: Value, facts: Mapping[str, str]) -> Value:
    assert isinstance(rows, list)
    own: list[Value] = [[name, text] for name, text in facts.items()]
    return rows + own


class _Loop:
    def __init__(
        self, channel: Channel, functions: DeviceFunctions, call_seconds: float, shared: Shared
    ) -> None:
        self._channel = channel
        self._functions = functions
        self._call_seconds = call_seconds
        self._shared = shared
        self._calls = 0

    def serve(self, opening: Frame) -> None:
        """Confirm the session, then answer call after call."""
        self._send(Frame(Kind.RESULT, opening.number, []))
        while True:
            try:
                frame = self._channel.receive()
            except Closed:
                return
            except RpcError as error:  # what follows in the stream cannot be trusted
                self._send(Frame(Kind.ERROR, 0, error_values(error)))
                return
            if frame.kind is Kind.CLOSE:
                return
            self._send(self._answer(frame))

    def _answer(self, frame: Frame) -> Frame:
        self._calls += 1
        deadline = time.monotonic() + self._call_seconds if self._call_seconds else float("inf")
        self._shared.tell(deadline, False, self._calls)
        try:
            values, blob = self._called(frame)
            return Frame(Kind.RESULT, frame.number, values, blob)
        except Exception as error:  # whatever a function does, it costs its call
            return Frame(Kind.ERROR, frame.number, error_values(error))
        finally:
            self._shared.tell(0.0, False, self._calls)

    def _called(self, frame: Frame) -> tuple[list[Value], bytes | memoryview]:
        if frame.kind is not Kind.CALL:
            raise RpcError("a session answers calls only")
        name = Arguments("a call", frame.values[:1]).text()
        function = self._functions.table.get(name)
        if function is None:
            raise RpcError(
                f"the device has no function {name[:100]!r}", hint="its Treadle may be older"
            )
        arguments = Arguments(name, frame.values[1:])
        found = function(arguments, frame.blob)
        arguments.end()
        return found

    def _send(self, frame: Frame) -> None:
        self._shared.tell(0.0, True, self._calls)
        with suppress(Closed):
            self._channel.send(frame)
        self._shared.tell(0.0, False, self._calls)


# ---- the process ---------------------------------------------------------------------------------


def become_session(lifeline: int, keep: int) -> None:
    """Make a forked process ready: a group of its own, ended with the server, killed first.

    Of the server's descriptors it has `lifeline` and `keep` only.

    `lifeline` is the reading end of a pipe of which the server alone has the writing end.
    """
    faulthandler.disable()  # how it ends is the server's to say
    os.setpgid(0, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in (lifeline, keep):
            with suppress(OSError):
                os.close(int(name))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=_end_with_server, args=(lifeline,), daemon=True).start()


def _end_with_server(lifeline: int) -> None:
    with suppress(OSError):
        os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)
