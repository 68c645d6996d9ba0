# SPDX-License-Identifier: Apache-2.0
"""Compiling many kernels at once: a pool of worker processes behind the kernel cache."""

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO

import llvmlite
import llvmlite.binding as llvm

from treadle.errors import InternalError
from treadle.settings import get as get_settings
from treadle.target.cache import KernelCache
from treadle.target.host import usable_cores

JOB_SECONDS = 300.0
"""How long one kernel may compile."""

OnDone = Callable[[str, bool], None]
"""Called with a kernel's name and whether it came from the cache, as each is ready."""

_LENGTH = struct.Struct(">I")
_PROGRAM = Path(__file__).with_name("worker.py")
_PIPELINE = 1  # raise when the passes or options of treadle.target.llvm change
_STDERR_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one kernel: its object code, or the text of what went wrong."""

    name: str
    data: bytes | None
    error: str = ""
    from_cache: bool = False


def compile_many(
    jobs: Iterable[tuple[str, str]], on_done: OnDone | None = None
) -> dict[str, bytes]:
    """Compile kernels given as (name, IR text) and return their object files by name.

    Raises: InternalError naming the kernels that LLVM refuses, that crash it or take too long.
    """
    done: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    for name, text in jobs:
        if texts.setdefault(name, text) != text:
            raise InternalError(f"two different kernels have the name {name}")
    failed: list[Compiled] = []
    for result in compile_each(texts.items()):
        if result.data is None:
            failed.append(result)
            continue
        done[result.name] = result.data
        if on_done is not None:
            on_done(result.name, result.from_cache)
    if failed:
        raise _failure(failed, texts)
    return {name: done[name] for name in texts}


def compile_each(
    jobs: Iterable[tuple[str, str]], *, seconds: float = JOB_SECONDS
) -> Iterator[Compiled]:
    """Compile kernels and yield each when it is ready, failures included, in any order."""
    store = _kernel_cache(get_settings().cache / "kernels")
    missing: list[tuple[str, str]] = []
    for name, text in jobs:
        data = store.load(_key(text))
        if data is None:
            missing.append((name, text))
        else:
            yield Compiled(name, data, from_cache=True)
    if not missing:
        return
    texts = dict(missing)
    for result in _pool().run(missing, seconds):
        if result.data is not None:
            store.store(_key(texts[result.name]), result.data)
        yield result


def prepare() -> None:
    """Start the workers without waiting for them, for use while kernels are still made."""
    _pool().grow(get_settings().compile_workers or usable_cores())


def shut_down() -> None:
    """End the workers; the next compilation starts fresh ones."""
    _pool().close()


@cache
def compiler_version() -> str:
    """Return what, beside the IR, decides the object code."""
    major, minor, patch = llvm.llvm_version_info
    return f"llvm {major}.{minor}.{patch}, llvmlite {llvmlite.__version__}, pipeline {_PIPELINE}"


@cache
def _kernel_cache(root: Path) -> KernelCache:
    return KernelCache(root)


def _key(ir_text: str) -> str:
    # The IR names the triple, the CPU and the features.
    return f"{compiler_version()}\n{ir_text}"


def _failure(failed: list[Compiled], texts: dict[str, str]) -> InternalError:
    folder = get_settings().dump
    names = ", ".join(f.name for f in failed)
    if folder is None:
        hint = "set TREADLE_DUMP to a folder to keep the IR, and report it"
    else:
        folder.mkdir(parents=True, exist_ok=True)
        for f in failed:
            (folder / f"{f.name}.failed.ll").write_text(texts[f.name])
        hint = f"report this with the files *.failed.ll in {folder}"
    return InternalError(f"kernel {failed[0].name}: {failed[0].error}", at=names, hint=hint)


# ---- workers -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Worker:
    """A process and the job it has in hand."""

    process: subprocess.Popen[bytes]
    errors: BinaryIO
    job: str = ""
    deadline: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    @staticmethod
    def start() -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C goes to this process, which ends the workers.
            start_new_session=True,
        )
        return _Worker(process, errors)

    def send(self, name: str, ir_text: str, seconds: float) -> None:
        """Hand over a job; a worker that is dead is noticed when it does not answer."""
        payload = ir_text.encode()
        head = json.dumps({"name": name, "bytes": len(payload)}).encode()
        self.job, self.deadline = name, time.monotonic() + seconds
        self.received.clear()
        stdin = self.process.stdin
        if stdin is not None:
            with suppress(BrokenPipeError):
                stdin.write(_LENGTH.pack(len(head)) + head + payload)
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
        if len(self.received) < _LENGTH.size:
            return True, None
        start = _LENGTH.size + _LENGTH.unpack_from(self.received)[0]
        if len(self.received) < start:
            return True, None
        header = json.loads(self.received[_LENGTH.size : start])
        if len(self.received) < start + header["bytes"]:
            return True, None
        if "error" in header:
            return True, Compiled(self.job, None, header["error"])
        return True, Compiled(self.job, bytes(self.received[start:]))

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


class _Pool:
    """Idle workers, kept for the next compilation, and the loop that keeps busy ones fed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        atexit.register(self.close)

    def grow(self, count: int) -> None:
        """Start workers until `count` are idle."""
        with self._lock:
            while len(self._idle) < count:
                self._idle.append(self._start())

    def close(self) -> None:
        """End all workers; those still at work are killed."""
        with self._lock:
            for worker in self._all:
                worker.stop(kill=worker not in self._idle)
            self._idle, self._all = [], set()

    def run(self, jobs: list[tuple[str, str]], seconds: float) -> Iterator[Compiled]:
        """Compile jobs, the largest first, and yield results as they come."""
        count = min(len(jobs), get_settings().compile_workers or usable_cores())
        waiting = deque(sorted(jobs, key=lambda job: -len(job[1])))
        busy: list[_Worker] = []
        try:
            yield from self._serve(waiting, busy, count, seconds)
        finally:  # Ctrl-C, or a caller that stops early: what is unfinished is not wanted
            for worker in busy:
                self._end(worker)

    def _serve(
        self, waiting: deque[tuple[str, str]], busy: list[_Worker], count: int, seconds: float
    ) -> Iterator[Compiled]:
        with selectors.DefaultSelector() as selector:
            while waiting or busy:
                while waiting and len(busy) < count:
                    worker = self._take()
                    busy.append(worker)
                    selector.register(worker.output(), selectors.EVENT_READ, worker)
                    worker.send(*waiting.popleft(), seconds)
                for worker, result, is_alive in _answers(selector, busy):
                    selector.unregister(worker.output())
                    busy.remove(worker)
                    if is_alive:
                        self._put_back(worker)
                    else:
                        self._end(worker)
                    yield result

    def _start(self) -> _Worker:
        worker = _Worker.start()
        self._all.add(worker)
        return worker

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.process.poll() is None:
                    return worker
                self._all.discard(worker)
                worker.stop(kill=False)
            return self._start()

    def _put_back(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.stop(kill=True)


def _answers(
    selector: selectors.BaseSelector, busy: list[_Worker]
) -> Iterator[tuple[_Worker, Compiled, bool]]:
    """Wait for workers; yield those that are done, dead or out of time, and if they live on."""
    patience = min(w.deadline for w in busy) - time.monotonic()
    for key, _ in selector.select(max(0.0, patience)):
        worker: _Worker = key.data
        is_alive, result = worker.receive()
        if result is not None:
            yield worker, result, is_alive
    now = time.monotonic()
    for worker in [w for w in busy if w.deadline <= now]:
        error = "compilation takes too long and is stopped"
        yield worker, Compiled(worker.job, None, error), False


@cache
def _pool() -> _Pool:
    return _Pool()
