# SPDX-License-Identifier: Apache-2.0
"""Processes that answer requests one by one; what they do wrong costs one answer.

A fork has what its parent has in memory (tasks, operators a user has defined), so that a request is
a few bytes. A fresh process has nothing of it, and so may use a device that its parent has opened.
A message is its length in 8 bytes and as many bytes; a request is one message, so is an answer.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from treadle.settings import environment
from treadle.target import workers

_LENGTH = struct.Struct(">Q")
_LARGEST = 1 << 32
_WATCH_SECONDS = 0.5
_CHUNK = 1 << 20

_HEAD = struct.Struct(">I")

Serve = Callable[[bytes], bytes]
"""Makes the answer of a request, in the child."""


def packed(head: Mapping[str, object], payload: bytes = b"") -> bytes:
    """Return a message of plain data and of bytes."""
    text = json.dumps(head).encode()
    return _HEAD.pack(len(text)) + text + payload


def unpacked(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Return what `packed` made a message of."""
    start = _HEAD.size + _HEAD.unpack_from(message)[0]
    return json.loads(message[_HEAD.size : start]), message[start:]


def read_message(source: int) -> bytes | None:
    """Return the next message that a file descriptor gives, None at the end."""
    head = _exactly(source, _LENGTH.size)
    size = _LENGTH.unpack(head)[0] if head is not None else _LARGEST
    return _exactly(source, size) if size < _LARGEST else None


def _exactly(source: int, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        chunk = os.read(source, min(size - len(found), _CHUNK))
        if not chunk:
            return None
        found += chunk
    return bytes(found)


def write_message(target: int, message: bytes) -> None:
    """Write a message to a file descriptor, all of it."""
    view = memoryview(_LENGTH.pack(len(message)) + message)
    while view:
        view = view[os.write(target, view) :]


class ChildDied(Exception):  # it says what happened
    """The process ended in place of an answer: how."""


class Child:
    """A process that answers requests. Use: `send`, then `receive` until there is an answer."""

    def __init__(self, start: Callable[[], Serve]) -> None:
        """Fork; `start()` is called in the child and gives what answers its requests.

        The child leads a process group of its own: Ctrl-C is its parent's to handle, and it can be
        paused together with the processes it starts.
        """
        self._received = bytearray()
        self.deadline = float("inf")
        request_read, self._requests = os.pipe()
        self._answers, answer_write = os.pipe()
        self.pid = self._begun(start, request_read, answer_write)
        os.close(request_read)
        os.close(answer_write)
        with suppress(OSError):  # the child does it too: whoever is first
            os.setpgid(self.pid, 0)
        self._is_alive = True

    def _begun(self, start: Callable[[], Serve], requests: int, answers: int) -> int:
        """Begin the process; return its number."""
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            os.close(self._requests)
            os.close(self._answers)
            _child(start, requests, answers, parent)
        return pid

    def fileno(self) -> int:
        """The file descriptor that becomes readable when an answer comes."""
        return self._answers

    def send(self, request: bytes, seconds: float) -> None:
        """Hand over a request, to be answered within some seconds."""
        self.deadline = time.monotonic() + seconds
        with suppress(BrokenPipeError):  # noticed where the answer is read
            write_message(self._requests, request)

    def receive(self) -> bytes | None:
        """Take what has come; return the answer when it is whole.

        Raises: ChildDied where the process has ended.
        """
        chunk = os.read(self._answers, _CHUNK)
        if not chunk:
            raise ChildDied(self.close())
        self._received += chunk
        if len(self._received) < _LENGTH.size:
            return None
        size = _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < _LENGTH.size + size:
            return None
        answer = bytes(self._received[_LENGTH.size : _LENGTH.size + size])
        del self._received[: _LENGTH.size + size]
        return answer

    def pause(self) -> None:
        """Stop the process and those it has started, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let paused processes go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> str:
        """End the process and those it has started; return how it ended."""
        if not self._is_alive:
            return ""
        self._is_alive = False
        with suppress(OSError):
            os.close(self._requests)
        status = self._status()
        self._signal(signal.SIGKILL)
        if status is None:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        os.close(self._answers)
        return _how(status)

    def _status(self) -> int | None:
        """Return how the process ended by itself; None if it lives."""
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid:
                return status
            time.sleep(0.005)
        return None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class FreshChild(Child):
    """A process of its own program, for what a fork must not do: use a device.

    `start` is a function of a module; it is called there, where nothing else of this process is.
    """

    def _begun(self, start: Callable[[], Serve], requests: int, answers: int) -> int:
        place = f"{start.__module__}:{start.__qualname__}"
        words = [sys.executable, "-c", _FRESH, place, str(os.getpid())]
        streams = [(os.POSIX_SPAWN_DUP2, requests, 0), (os.POSIX_SPAWN_DUP2, answers, 1)]
        return os.posix_spawn(
            sys.executable, words, environment(), file_actions=streams, setpgroup=0
        )


_FRESH = "import sys; from treadle.tune.process import fresh; fresh(sys.argv[1], int(sys.argv[2]))"


def fresh(place: str, parent: int) -> None:
    """Be the process of a FreshChild: answer requests until there are no more; never return.

    `place` is where the function is that gives what answers them, "module:function".
    """
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    module, _, name = place.partition(":")
    _child(getattr(importlib.import_module(module), name), requests, answers, parent)


def _how(status: int | None) -> str:
    if status is None:
        return "the process was ended"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"the process crashed: {signal.strsignal(number) or f'signal {number}'}"
    return f"the process ended with exit code {os.waitstatus_to_exitcode(status)}"


# ---- in the child --------------------------------------------------------------------------------


def _child(start: Callable[[], Serve], requests: int, answers: int, parent: int) -> None:
    """Answer requests until there are no more; never return."""
    code = 1
    faulthandler.disable()  # how it ends is its parent's to say
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        workers.start_anew()
        serve = start()
        while (request := read_message(requests)) is not None:
            write_message(answers, serve(request))
        code = 0
    except BrokenPipeError:
        code = 0
    finally:
        with suppress(BaseException):
            workers.shut_down()
        os._exit(code)  # what the parent has open is not this process's to flush or to remove


def _end_with(parent: int) -> None:
    """End this process group when the parent is gone, in the midst of whatever it does.

    A paused group is sent SIGHUP and SIGCONT by the system when its last tie to the session is cut.
    """
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os.killpg(0, signal.SIGKILL)
