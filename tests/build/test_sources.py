# SPDX-License-Identifier: Apache-2.0
"""Copies of a process make sources of kernels as it would, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import treadle
from treadle import limits
from treadle.build import sources
from treadle.build.kernel import Kernel
from treadle.build.sources import copies_for, source_of, sources_of
from treadle.graph.nodes import Function, Module, Var
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.settings import use
from treadle.target.parse import parse_target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux")


@pytest.fixture(autouse=True)
def two_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "KERNELS_OF_PROCESS", 2)
    with use(compile_workers=3):
        yield


def kernels(count: int = 9) -> list[Kernel]:
    made = []
    for n in range(count):
        x = Var("x", TensorType((3, 8 * n + 8), "float32"))
        call = Function((x,), ew.tanh(ew.multiply(x, ew.exp(x))), "call")
        made.append(Kernel(call, parse_target("llvm -num-cores=2")))
    return made


def texts(found: Sequence[sources.Source]) -> dict[str, tuple[str, object]]:
    return {s.kernel.name: (s.text, s.workspace) for s in found}


def running(processes: Sequence[int]) -> list[int]:
    def is_there(process: int) -> bool:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True

    return [p for p in processes if is_there(p)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The copies that are made."""
    found: list[int] = []
    fork = os.fork

    def noted() -> int:
        process = fork()
        found.append(process)
        return process

    monkeypatch.setattr(os, "fork", noted)
    return found


def test_copies_make_what_one_process_makes(started: list[int]) -> None:
    alone = texts([source_of(k) for k in kernels()])
    made = list(sources_of(kernels()))
    assert len(made) == 9
    assert texts(made) == alone
    assert all(s.seconds > 0 for s in made)
    assert len(started) == 2
    assert not running(started)


def test_a_model_is_the_same(started: list[int]) -> None:
    x = Var("x", TensorType((4, 6), "float32"))
    made = x
    for _ in range(5):
        made = ew.add(ew.tanh(made), ew.exp(ew.negative(made)))  # type: ignore[assignment]
    module = Module(Function((x,), made, "main"))
    with use(compile_workers=1):
        one = treadle.compile(module, opt_level=0)
    assert not started
    values = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    several = treadle.compile(module, opt_level=0)
    np.testing.assert_array_equal(several(values)[0], one(values)[0])


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGSEGV])
def test_what_a_dead_copy_had_taken_is_made_here(
    monkeypatch: pytest.MonkeyPatch, death: signal.Signals
) -> None:
    send = sources._send

    def dies(given: Sequence[Kernel], number: int, output: int) -> None:
        if number % 3 == 0:
            signal.signal(death, signal.SIG_DFL) if death != signal.SIGKILL else None
            os.kill(os.getpid(), death)
        send(given, number, output)

    monkeypatch.setattr(sources, "_send", dies)
    assert len(texts(list(sources_of(kernels())))) == 9


def test_half_of_a_message_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(given: Sequence[Kernel], number: int, output: int) -> None:
        del given, number
        os.write(output, b"\0\0\0\x20{")
        os._exit(1)

    monkeypatch.setattr(sources, "_send", half)
    assert len(texts(list(sources_of(kernels())))) == 9


def test_no_process_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    before = len(os.listdir("/proc/self/fd"))
    assert len(texts(list(sources_of(kernels())))) == 9
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_error_is_that_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    given = kernels()
    wrong = given[4].name
    source = Kernel.source

    def fails(kernel: Kernel) -> str:
        if kernel.name == wrong:
            raise ValueError(f"no loops for {kernel.name}")
        return source(kernel)

    monkeypatch.setattr(Kernel, "source", fails)
    with pytest.raises(ValueError, match=f"no loops for {wrong}"):
        list(sources_of(given))
    assert not running(started)


def test_no_copy_outlives_the_one_who_asks(started: list[int]) -> None:
    found = sources_of(kernels())
    next(found)
    assert len(started) == 2
    found.close()  # type: ignore[attr-defined]
    assert not running(started)


@pytest.mark.parametrize(
    ("options", "count"),
    [({"debug": 1}, 0), ({"time": True}, 0), ({"compile_workers": 1}, 0), ({}, 2)],
)
def test_nobody_is_copied_where_somebody_watches_or_one_worker_is_asked_for(
    options: dict[str, object], count: int
) -> None:
    with use(**options):
        assert copies_for(9) == count
        assert copies_for(1) == 0


def test_while_another_thread_makes_kernels_nobody_is_copied(started: list[int]) -> None:
    other = sources_of(kernels())
    thread = threading.Thread(target=next, args=(other,))
    thread.start()
    thread.join()
    copies = len(started)
    assert len(list(sources_of(kernels()))) == 9
    assert len(started) == copies
    other.close()  # type: ignore[attr-defined]
    assert len(list(sources_of(kernels()))) == 9
    assert len(started) > copies
