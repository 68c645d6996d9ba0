# SPDX-License-Identifier: Apache-2.0
"""Forked processes that answer requests: what they do wrong is said, and costs them alone."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable

import pytest

from tests.processes import PATIENCE, wait_until
from treadle.tune.process import Child, ChildDied, Serve


def answer(child: Child, seconds: float = PATIENCE) -> bytes:
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(child, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            found = child.receive()
            if found is not None:
                return found
    raise TimeoutError


def serving(serve: Serve) -> Callable[[], Serve]:
    return lambda: serve


def test_a_child_answers_one_request_after_the_other() -> None:
    child = Child(serving(lambda request: request[::-1]))
    for message in (b"", b"abc", bytes(range(256)) * 10_000):
        child.send(message, PATIENCE)
        assert answer(child) == message[::-1]
    child.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_how_a_child_ends_is_said() -> None:
    def crash(_: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""

    def leave(_: bytes) -> bytes:
        os._exit(7)

    for serve, said in ((crash, "crashed: Segmentation fault"), (leave, "exit code 7")):
        child = Child(serving(serve))
        child.send(b"go", PATIENCE)
        with pytest.raises(ChildDied, match=said):
            answer(child)


def test_a_paused_child_stands_still() -> None:
    child = Child(serving(lambda request: request))
    child.send(b"1", PATIENCE)
    assert answer(child) == b"1"
    child.pause()
    child.send(b"2", PATIENCE)
    with pytest.raises(TimeoutError):
        answer(child, 0.3)
    child.resume()
    assert answer(child) == b"2"
    child.pause()
    child.close()  # a paused one, too


def test_children_end_with_their_parent() -> None:
    """Even paused ones: a run that is killed leaves nothing behind."""
    source, target = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        child = Child(serving(lambda request: request))
        child.send(b"1", PATIENCE)
        answer(child)
        child.pause()
        os.write(target, str(child.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    grandchild = int(os.read(source, 100))
    wait_until(lambda: not is_alive(grandchild), "the grandchild gone")


def is_alive(pid: int) -> bool:
    """True for a process that is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
