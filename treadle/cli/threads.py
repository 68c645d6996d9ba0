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
    code that it runs and the memory that it reads may be freed next.
    """
    threads = [threading.Thread(target=_unless_broken, args=(work,)) for work in works]
    try:
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()
    finally:
        gate.abort()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _unless_broken(work: Callable[[], object]) -> None:
    with suppress(threading.BrokenBarrierError):
        work()
