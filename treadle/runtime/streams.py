# SPDX-License-Identifier: Apache-2.0
"""Streams: the native executors that run one model for several threads at the same time."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from treadle.errors import TreadleError, UsageError
from treadle.runtime import native
from treadle.runtime.native_executor import ExecutorHandle


class _Ticket:
    """A thread that waits for an executor, in order of arrival."""

    def __init__(self) -> None:
        self._waits = threading.Lock()
        self._waits.acquire()
        self._handle: ExecutorHandle | None = None

    def give(self, handle: ExecutorHandle | None) -> None:
        """End the wait; None says that there is nothing left to wait for."""
        self._handle = handle
        self._waits.release()

    def wait(self) -> ExecutorHandle | None:
        self._waits.acquire()
        return self._handle


class Streams:
    """Executors of one model: one thread at a time has each, more are made on demand.

    `limit` is how many there may be (None: as many as the process may use CPUs). Who finds all of
    them taken waits; they are served in order of arrival. The executor given back last is taken
    first, so a single thread always runs on the same one.

    In a forked child all are free but those that the forking thread has: the native executors see
    to it that what other threads were doing there does not matter.
    """

    _everywhere: ClassVar[weakref.WeakSet[Streams]] = weakref.WeakSet()

    def __init__(self, first: ExecutorHandle) -> None:
        self.first = first
        self.limit: int | None = None
        self._lock = threading.Lock()
        self._made = [first]
        self._idle = [first]
        self._taken: dict[ExecutorHandle, int] = {}
        self._being_made = 0
        self._waiting: deque[_Ticket] = deque()
        self._is_closed = False
        self._everywhere.add(self)

    @property
    def made(self) -> tuple[ExecutorHandle, ...]:
        """All executors made so far, the first one first."""
        return tuple(self._made)

    @property
    def in_order(self) -> list[ExecutorHandle]:
        """All executors, the one that is taken next first."""
        with self._lock:
            idle = self._idle[::-1]
            return idle + [handle for handle in self._made if handle not in idle]

    def take(self) -> ExecutorHandle:
        """Return an executor for the calling thread alone, until `give_back`.

        Raises: UsageError after `close`.
        """
        with self._lock:
            if self._idle and not self._is_closed:
                handle = self._idle.pop()
                self._taken[handle] = threading.get_ident()
                return handle
            self._check_open()
            may_make = self._may_make()
            self._being_made += may_make
        made = self._make() if may_make else None
        return made if made is not None else self._wait()

    def give_back(self, handle: ExecutorHandle) -> None:
        """Let other threads have the executor."""
        with self._lock:
            self._taken.pop(handle, None)
            if self._is_closed:
                handle.close()
            elif self._waiting:
                self._waiting.popleft().give(handle)
            else:
                self._idle.append(handle)

    @contextmanager
    def held(self) -> Iterator[ExecutorHandle]:
        """Have an executor for the length of a block."""
        handle = self.take()
        try:
            yield handle
        finally:
            self.give_back(handle)

    def close(self) -> None:
        """Release the executors, those that run now as soon as they have finished."""
        with self._lock:
            self._is_closed = True
            for handle in self._idle:
                if handle is not self.first or not self._being_made:  # else it is being forked
                    handle.close()
            self._idle.clear()
            while self._waiting:
                self._waiting.popleft().give(None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the executor is closed")

    def _hand_out(self, handle: ExecutorHandle) -> ExecutorHandle:
        self._taken[handle] = threading.get_ident()
        return handle

    def _may_make(self) -> bool:
        if self.limit is None:
            self.limit = native.usable_cpus()
        waits_for_itself = threading.get_ident() in self._taken.values()  # it runs inside a run
        return waits_for_itself or len(self._made) + self._being_made < self.limit

    def _make(self) -> ExecutorHandle | None:
        """Return one more executor, or None where there is no memory for it."""
        handle = None
        try:
            handle = self.first.fork()
        except TreadleError:
            return None  # the others go on
        finally:
            with self._lock:
                self._being_made -= 1
                if handle is not None:
                    self._made.append(handle)
                    self._hand_out(handle)
                if self._is_closed and self.first not in self._taken and not self._being_made:
                    self.first.close()
        if not self._is_closed and handle.num_threads != self.first.num_threads:
            handle.set_num_threads(self.first.num_threads)  # it was set in the meantime
        return handle

    def _wait(self) -> ExecutorHandle:
        ticket = _Ticket()
        with self._lock:
            self._check_open()
            if self._idle:
                return self._hand_out(self._idle.pop())
            self._waiting.append(ticket)
        try:
            handle = ticket.wait()
        except BaseException:  # interrupted
            self._leave(ticket)
            raise
        if handle is None:
            raise UsageError("the executor is closed")
        with self._lock:
            return self._hand_out(handle)

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
        handle = ticket.wait()  # it was given one in the meantime
        if handle is not None:
            self.give_back(handle)

    def _start_in_child(self) -> None:
        self._lock = threading.Lock()
        self._waiting.clear()
        self._being_made = 0
        here = threading.get_ident()
        self._taken = {handle: owner for handle, owner in self._taken.items() if owner == here}
        self._idle = [] if self._is_closed else [h for h in self._made if h not in self._taken]

    @classmethod
    def _start_all_in_child(cls) -> None:
        for streams in list(cls._everywhere):
            streams._start_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Streams._start_all_in_child)
