# SPDX-License-Identifier: Apache-2.0
"""Threads that have ended when the block that began them has, whatever ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def at_once(works: Sequence[Callable[[], object]], gate: threading.Barrier) -> Iterator[None]:
    """Do each work in a thread of its own while the block runs; all have ended when it has.

    They wait for each other, and for the block, at the gate. Where Ctrl-C or an error ends the
    block, the gate is broken: whoever waits there leaves, and what is at work is waited for, as the
    code that it runs and the memory that it reads may be freed next. A thread says itself when it
    is done: one whose `join` Ctrl-C interrupts counts as ended in Python 3.11, while it runs.
    """
    threads = [_Work(work) for work in works]
    try:
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.done.wait()
    finally:
        gate.abort()
        for thread in threads:
            if thread.ident is not None:
                thread.done.wait()
                thread.join()


class _Work(threading.Thread):
    """A thread that leaves where its gate is broken; `done` is set last."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.done = threading.Event()
        self._work = work

    def run(self) -> None:
        """Do the work."""
        try:
            with suppress(threading.BrokenBarrierError):
                self._work()
        finally:
            self.done.set()
