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
        self._lock = threading.Lock()  # of all but `_idle`, whose pop and append need none
        self._made = [first]
        self._idle = [first]
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
        try:
            handle = self._idle.pop()
        except IndexError:
            return self._take_another()
        handle.owner = threading.get_ident()
        return handle

    def _take_another(self) -> ExecutorHandle:
        with self._lock:
            self._check_open()
            may_make = self._may_make()
            self._being_made += may_make
        made = self._make() if may_make else None
        return made if made is not None else self._wait()

    def give_back(self, handle: ExecutorHandle) -> None:
        """Let other threads have the executor."""
        handle.owner = 0
        if self._waiting:
            with self._lock:
                if self._waiting and not self._is_closed:
                    self._waiting.popleft().give(handle)
                    return
        self._idle.append(handle)
        if self._waiting or self._is_closed:  # since the executor is idle, or just before
            with self._lock:
                self._settle()

    def _settle(self) -> None:
        """Do with idle executors what is due: close them, or give them to those who wait."""
        while self._idle and (self._is_closed or self._waiting):
            try:
                handle = self._idle.pop()
            except IndexError:  # another thread has taken it, which needs no lock
                return
            if not self._is_closed:
                self._waiting.popleft().give(handle)
            elif handle is not self.first or not self._being_made:  # else it is being forked
                handle.close()

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
            self._settle()
            while self._waiting:
                self._waiting.popleft().give(None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the executor is closed")

    def _may_make(self) -> bool:
        if self.limit is None:
            self.limit = native.usable_cpus()
        here = threading.get_ident()
        waits_for_itself = any(h.owner == here for h in self._made)  # it runs inside a run
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
                    handle.owner = threading.get_ident()
                    self._made.append(handle)
                if self._is_closed and not self.first.owner and not self._being_made:
                    self.first.close()
        if not self._is_closed and handle.num_threads != self.first.num_threads:
            handle.set_num_threads(self.first.num_threads)  # it was set in the meantime
        return handle

    def _wait(self) -> ExecutorHandle:
        ticket = _Ticket()
        with self._lock:
            self._check_open()
            self._waiting.append(ticket)  # first: who gives one back from now on sees it
            self._settle()
        try:
            handle = ticket.wait()
        except BaseException:  # interrupted
            self._leave(ticket)
            raise
        if handle is None:
            raise UsageError("the executor is closed")
        handle.owner = threading.get_ident()
        return handle

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
        free = [handle for handle in self._made if handle.owner != here]
        for handle in free:
            handle.owner = 0
        self._idle = [] if self._is_closed else free

    @classmethod
    def _start_all_in_child(cls) -> None:
        for streams in list(cls._everywhere):
            streams._start_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Streams._start_all_in_child)
