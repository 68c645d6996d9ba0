# SPDX-License-Identifier: Apache-2.0
"""What runs inside the workers of a cluster: it hands requests to a process of its own.

A cluster's worker has threads, of which a fork copies none but the locks that they hold; so that
the process that forks builders and runners is a fresh one, `worker.py`. What a candidate
does to it costs one answer, and the next request starts another.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

from treadle.tune.process import packed, read_message, unpacked, write_message

_PROGRAM = "import sys; from treadle.tune.worker import main; sys.exit(main())"
_MOST_SESSIONS = 4
"""Tuners that one worker serves at the same time; the one that asked longest ago makes room."""


class _Helper:
    """The process of one session."""

    def __init__(self, setup: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()
        answer = self._exchange(setup)
        self.error = (
            "the worker's process ended" if answer is None else unpacked(answer)[0]["error"]
        )

    def ask(self, request: bytes) -> bytes | None:
        """Return the answer to a request, None where the process has ended."""
        with self._lock:
            return self._exchange(request)

    def _exchange(self, request: bytes) -> bytes | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_message(self._process.stdin.fileno(), request)
            return read_message(self._process.stdout.fileno())
        except BrokenPipeError:
            return None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        with self._lock:  # nobody reads from it any more
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


_HELPERS: dict[str, _Helper] = {}
_LOCK = threading.Lock()


def ask(session: str, setup: bytes, request: bytes) -> bytes:
    """Return the answer to a request of a session, of which `setup` is the first message."""
    helper = _helper(session, setup)
    if helper.error:
        end(session)
        return packed({"error": helper.error})
    answer = helper.ask(request)
    if answer is None:
        end(session)
        return packed({"error": "the worker's process ended"})
    return answer


def end(session: str) -> None:
    """End the process of a session, if there is one."""
    with _LOCK:
        helper = _HELPERS.pop(session, None)
    if helper is not None:
        helper.close()


def _helper(session: str, setup: bytes) -> _Helper:
    with _LOCK:
        if session in _HELPERS:
            _HELPERS[session] = _HELPERS.pop(session)  # the last one to make room
        else:
            while len(_HELPERS) >= _MOST_SESSIONS:
                _HELPERS.pop(next(iter(_HELPERS))).close()
            _HELPERS[session] = _Helper(setup)
        return _HELPERS[session]
