# SPDX-License-Identifier: Apache-2.0
"""Worker processes that turn IR text into machine code, kept for compilations that follow soon."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

from treadle.errors import InternalError

_LENGTH = struct.Struct(">I")
_PROGRAM = Path(__file__).with_name("worker.py")
_STDERR_BYTES = 4000

IDLE_SECONDS = 30.0
"""A worker that has no work for so long ends: LLVM in it takes a hundred megabytes."""

_SAFE_PART = 0.5
"""Of those seconds: who has been idle for longer may end before it is sent a job."""

Form = Literal["object", "assembly", "facts"]
"""What a worker makes of IR: an object file, or text. "facts" is what LLVM says, of no IR."""


def message(head: Mapping[str, object], payload: bytes) -> bytes:
    """Return a message: the length of a JSON header in 4 bytes, the header, then `bytes` more."""
    text = json.dumps({**head, "bytes": len(payload)}).encode()
    return _LENGTH.pack(len(text)) + text + payload


def take_message(received: bytearray) -> tuple[dict[str, Any], bytes] | None:
    """Take the first message off what has arrived; None where it is not complete."""
    if len(received) < _LENGTH.size:
        return None
    start = _LENGTH.size + _LENGTH.unpack_from(received)[0]
    if len(received) < start:
        return None
    head: dict[str, Any] = json.loads(received[_LENGTH.size : start])
    end = start + head["bytes"]
    if len(received) < end:
        return None
    payload = bytes(received[start:end])
    del received[:end]
    return head, payload


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one kernel: its object code or assembly, or the text of what went wrong."""

    name: str
    data: bytes | None
    error: str = ""
    is_cached: bool = False


@dataclass(slots=True, eq=False)
class Worker:
    """A process and the job it has in hand."""

    process: subprocess.Popen[bytes]
    errors: BinaryIO
    job: str = ""
    deadline: float = 0.0
    idle_since: float = field(default_factory=time.monotonic)
    received: bytearray = field(default_factory=bytearray)

    @staticmethod
    def start(*, in_own_session: bool = True) -> Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(IDLE_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C goes to this process, which ends the workers.
            start_new_session=in_own_session,
        )
        return Worker(process, errors)

    @property
    def will_answer(self) -> bool:
        """True while it lives, and does not end of itself for some time."""
        idle = time.monotonic() - self.idle_since
        return self.process.poll() is None and idle < IDLE_SECONDS * _SAFE_PART

    def send(self, name: str, ir_text: str, seconds: float, form: Form) -> None:
        """Hand over a job; a worker that is dead is noticed when it does not answer."""
        job = message({"name": name, "form": form}, ir_text.encode())
        self.job, self.deadline = name, time.monotonic() + seconds
        self.received.clear()
        stdin = self.process.stdin
        if stdin is not None:
            with suppress(BrokenPipeError):
                stdin.write(job)
                stdin.flush()

    def output(self) -> int:
        """The file descriptor answers come from."""
        if self.process.stdout is None:
            raise InternalError("a compile worker has no output pipe")
        return self.process.stdout.fileno()

    def receive(self) -> tuple[bool, Compiled | None]:
        """Take what has arrived; return if the worker lives, and the job if it is complete."""
        chunk = os.read(self.output(), 1 << 20)
        if not chunk:
            error = f"the compiler stopped. {self.last_words()}"
            return False, Compiled(self.job, None, error)
        self.received += chunk
        answer = take_message(self.received)
        if answer is None:
            return True, None
        header, made = answer
        if "error" in header:
            return True, Compiled(self.job, None, header["error"])
        return True, Compiled(self.job, made)

    def last_words(self) -> str:
        """Return the end of what the worker wrote to stderr, and its exit status."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - _STDERR_BYTES))
        text = self.errors.read().decode(errors="replace").strip()
        return f"Exit status {self.process.returncode}. {text}".strip()

    def stop(self, *, kill: bool) -> None:
        """End the process: at once, or when it has read that no more jobs come."""
        if kill:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Pool:
    """The idle workers of this process; a `Run` borrows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.idle: list[Worker] = []
        self.all: set[Worker] = set()
        self.has_own_sessions = True
        atexit.register(self.close)

    def grow(self, count: int) -> None:
        """Start workers until `count` are idle, without waiting for them."""
        with self._lock:
            while len(self.idle) < count:
                self.idle.append(self._start())

    def close(self) -> None:
        """End all workers; those still at work are killed. The next run starts fresh ones."""
        with self._lock:
            for worker in self.all:
                worker.stop(kill=worker not in self.idle)
            self.idle, self.all = [], set()

    def end_idle(self) -> None:
        """End the workers without a job; the next run starts fresh ones."""
        with self._lock:
            for worker in self.idle:
                self.all.discard(worker)
                worker.stop(kill=True)
            self.idle.clear()

    def take(self) -> Worker:
        """Return a worker that lives and has nothing to do."""
        with self._lock:
            while self.idle:
                worker = self.idle.pop()
                if worker.will_answer:
                    return worker
                self.all.discard(worker)
                worker.stop(kill=False)
            return self._start()

    def put_back(self, worker: Worker) -> None:
        """Keep a worker for the next job."""
        with self._lock:
            worker.idle_since = time.monotonic()
            self.idle.append(worker)

    def end(self, worker: Worker) -> None:
        """Kill a worker whose work is not wanted, or that is stuck."""
        with self._lock:
            self.all.discard(worker)
        worker.stop(kill=True)

    def _start(self) -> Worker:
        worker = Worker.start(in_own_session=self.has_own_sessions)
        self.all.add(worker)
        return worker


@cache
def pool() -> Pool:
    """Return the pool of this process."""
    return Pool()


class Run:
    """Jobs on their way through at most `count` workers; results come as they are ready.

    Use it as a context: what is unfinished at its end (Ctrl-C, a caller that stops early) is
    given up and its workers are killed.
    """

    def __init__(self, workers: Pool, count: int, seconds: float, form: Form = "object") -> None:
        self._pool = workers
        self._count = count
        self._seconds = seconds
        self._form = form
        self._waiting: list[tuple[str, str]] = []
        self._busy: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._busy:
            self._pool.end(worker)
        self._selector.close()

    @property
    def has_work(self) -> bool:
        """True while a job is unfinished."""
        return bool(self._waiting or self._busy)

    def add(self, name: str, ir_text: str) -> None:
        """Queue a job; it starts at once if a worker is free."""
        self._waiting.append((name, ir_text))
        self._feed()

    def results(self, *, wait: bool) -> Iterator[Compiled]:
        """Yield what is ready; with `wait`, at least when something happens."""
        for worker, result, is_alive in list(self._answers(wait)):
            self._selector.unregister(worker.output())
            self._busy.remove(worker)
            if is_alive:
                self._pool.put_back(worker)
            else:
                self._pool.end(worker)
            self._feed()
            yield result

    def _feed(self) -> None:
        while self._waiting and len(self._busy) < self._count:
            largest = max(range(len(self._waiting)), key=lambda i: len(self._waiting[i][1]))
            worker = self._pool.take()
            self._busy.append(worker)
            self._selector.register(worker.output(), selectors.EVENT_READ, worker)
            worker.send(*self._waiting.pop(largest), self._seconds, self._form)

    def _answers(self, wait: bool) -> Iterator[tuple[Worker, Compiled, bool]]:
        """Yield workers that are done, dead or out of time, and whether they live on."""
        if not self._busy:
            return
        patience = min(w.deadline for w in self._busy) - time.monotonic() if wait else 0.0
        answered: set[Worker] = set()
        for key, _ in self._selector.select(max(0.0, patience)):
            worker: Worker = key.data
            is_alive, result = worker.receive()
            if result is not None:
                answered.add(worker)
                yield worker, result, is_alive
        now = time.monotonic()
        for worker in self._busy:
            if worker.deadline <= now and worker not in answered:
                error = "compilation takes too long and is stopped"
                yield worker, Compiled(worker.job, None, error), False
