# SPDX-License-Identifier: Apache-2.0
"""Forking while other threads work."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_DEADLINE = 60
"""Seconds a child may take; one that hangs shows where and fails."""


def in_children(check: Callable[[], object], count: int = 12) -> None:
    """Fork over and over; assert that `check` ends well in every child."""
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            _run_and_exit(check)
        children.append(child)
        time.sleep(0.005)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * count, codes


def _run_and_exit(check: Callable[[], object]) -> None:
    try:
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(_DEADLINE)
        check()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(1)


class Busy:
    """Threads that do something over and over for the length of a block."""

    def __init__(self, work: Callable[[], object], threads: int = 2) -> None:
        self._work = work
        self._stop = False
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._loop) for _ in range(threads)]

    def _loop(self) -> None:
        try:
            while not self._stop:
                self._work()
        except BaseException as error:
            self._failures.append(error)
            raise

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join()
        assert not self._failures
