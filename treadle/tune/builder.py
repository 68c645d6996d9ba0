# SPDX-License-Identifier: Apache-2.0
"""Builders: processes that make machine code of candidates while others are measured."""

from __future__ import annotations

import selectors
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from treadle.build.kernel import ObjectCode
from treadle.errors import TreadleError
from treadle.settings import use
from treadle.te.choice import Choice, choice_from_json, choice_to_json
from treadle.tune.failures import BUILD_FAILED, BUILD_TIMEOUT
from treadle.tune.process import Child, ChildDied, Serve, packed, unpacked
from treadle.tune.task import Task


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a candidate: its code, or why there is none. `seconds` is what it took."""

    ticket: int
    object: ObjectCode | None
    error: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class _Job:
    ticket: int
    request: bytes


@dataclass(slots=True)
class Builders:
    """`count` processes that build candidates of the tasks; a context that ends them.

    A candidate that takes longer than `seconds`, or crashes the compiler, costs its own build.
    """

    tasks: Sequence[Task]
    count: int
    seconds: float = 30.0
    _waiting: deque[_Job] = field(default_factory=deque)
    _idle: list[Child] = field(default_factory=list)
    _busy: dict[Child, int] = field(default_factory=dict)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Builders:
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-tune-")
        self._idle = [self._child() for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for child in (*self._idle, *self._busy):
            child.close()
        self._idle, self._busy = [], {}
        self._waiting.clear()
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()

    def _child(self) -> Child:
        assert self._folder is not None
        return Child(_serve(self.tasks, Path(self._folder.name)))

    @property
    def pending(self) -> int:
        """How many candidates are waiting or being built."""
        return len(self._waiting) + len(self._busy)

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        """Queue a candidate of a task, by its number; `ticket` comes back with the result."""
        request = packed({"task": task, **choice_to_json(choice)})
        self._waiting.append(_Job(ticket, request))
        self._feed()

    def pause(self) -> None:
        """Let all stand still, so that what is measured has the machine to itself."""
        for child in self._busy:
            child.pause()

    def resume(self) -> None:
        """Let them go on; the time they stood still does not count."""
        for child in self._busy:
            child.resume()

    def extend(self, seconds: float) -> None:
        """Give what is being built that much more time."""
        for child in self._busy:
            child.deadline += seconds

    def results(self, wait: float) -> Iterator[Built]:
        """Yield what is ready; wait for something so many seconds if nothing is."""
        if not self._busy:
            return
        with selectors.DefaultSelector() as selector:
            for child in self._busy:
                selector.register(child, selectors.EVENT_READ)
            left = min(child.deadline for child in self._busy) - time.monotonic()
            ready = [key.fileobj for key, _ in selector.select(max(0.0, min(wait, left)))]
        now = time.monotonic()
        for child, ticket in list(self._busy.items()):
            built = None
            if child in ready:
                built = self._received(child, ticket)
            elif child.deadline < now:
                child.close()
                built = Built(ticket, None, f"{BUILD_TIMEOUT} than {self.seconds:g} s")
                self._replace(child)
            if built is not None:
                yield built
        self._feed()

    def _received(self, child: Child, ticket: int) -> Built | None:
        try:
            answer = child.receive()
        except ChildDied as died:
            self._replace(child)
            return Built(ticket, None, f"{BUILD_FAILED}: {died}")
        if answer is None:
            return None
        del self._busy[child]
        self._idle.append(child)
        return _built(ticket, answer)

    def _replace(self, child: Child) -> None:
        del self._busy[child]
        self._idle.append(self._child())

    def _feed(self) -> None:
        while self._waiting and self._idle:
            job, child = self._waiting.popleft(), self._idle.pop()
            self._busy[child] = job.ticket
            child.send(job.request, self.seconds)


def _built(ticket: int, answer: bytes) -> Built:
    head, data = unpacked(answer)
    code = ObjectCode(data, head["workspace"]) if not head["error"] else None
    return Built(ticket, code, head["error"], head["seconds"])


# ---- in the child --------------------------------------------------------------------------------


def _serve(tasks: Sequence[Task], folder: Path) -> Callable[[], Serve]:
    def start() -> Serve:
        def serve(request: bytes) -> bytes:
            with use(cache=folder, compile_workers=1, time=False, debug=0):
                return _answer(tasks, request)

        return serve

    return start


def _answer(tasks: Sequence[Task], request: bytes) -> bytes:
    data, _ = unpacked(request)
    start = time.perf_counter()
    code, workspace, error = b"", None, ""
    try:
        task = tasks[data["task"]]
        made = task.built(choice_from_json(data))
        code, workspace = made.code, made.workspace
    except TreadleError as e:
        error = f"{e.problem}" + (f" (at {e.at})" if e.at else "")
    except Exception as e:  # a candidate must not end the builder, whatever it does
        error = f"{type(e).__name__}: {e}"[:500]
    head = {"workspace": workspace, "error": error, "seconds": time.perf_counter() - start}
    return packed(head, code)
