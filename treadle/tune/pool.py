# SPDX-License-Identifier: Apache-2.0
"""Forked processes that work on requests as they come; one that dies costs one answer."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from treadle.tune.process import Child, ChildDied, Serve


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: the answer, or how its process ended.

    `is_late` where it took too long.
    """

    ticket: int
    message: bytes = b""
    ended: str = ""
    is_late: bool = False


@dataclass(slots=True)
class _Job:
    ticket: int
    request: bytes
    seconds: float


@dataclass(slots=True)
class Pool:
    """`count` processes, each of which answers by what `start` gives in it; a context ends them.

    A request that takes longer than its time ends its process, and another one takes its place.
    """

    start: Callable[[], Serve]
    count: int
    _waiting: deque[_Job] = field(default_factory=deque)
    _idle: list[Child] = field(default_factory=list)
    _busy: dict[Child, int] = field(default_factory=dict)

    def __enter__(self) -> Pool:
        self._idle = [Child(self.start) for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for child in (*self._idle, *self._busy):
            child.close()
        self._idle, self._busy = [], {}
        self._waiting.clear()

    @property
    def pending(self) -> int:
        """How many requests are waiting or being worked on."""
        return len(self._waiting) + len(self._busy)

    def add(self, ticket: int, request: bytes, seconds: float) -> None:
        """Queue a request, to be answered within `seconds` of its start; `ticket` comes back."""
        self._waiting.append(_Job(ticket, request, seconds))
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
        """Give what is being worked on that much more time."""
        for child in self._busy:
            child.deadline += seconds

    def results(self, wait: float) -> Iterator[Answer]:
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
            found = None
            if child in ready:
                found = self._received(child, ticket)
            elif child.deadline < now:
                child.close()
                found = Answer(ticket, ended="it takes too long", is_late=True)
                self._replace(child)
            if found is not None:
                yield found
        self._feed()

    def _received(self, child: Child, ticket: int) -> Answer | None:
        try:
            message = child.receive()
        except ChildDied as died:
            self._replace(child)
            return Answer(ticket, ended=str(died))
        if message is None:
            return None
        del self._busy[child]
        self._idle.append(child)
        return Answer(ticket, message)

    def _replace(self, child: Child) -> None:
        del self._busy[child]
        self._idle.append(Child(self.start))

    def _feed(self) -> None:
        while self._waiting and self._idle:
            job, child = self._waiting.popleft(), self._idle.pop()
            self._busy[child] = job.ticket
            child.send(job.request, job.seconds)
