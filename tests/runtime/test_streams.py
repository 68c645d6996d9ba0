# SPDX-License-Identifier: Apache-2.0
"""Streams: one executor called by many threads, forks, limits, closing."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.native import models
from tests.processes import PATIENCE
from treadle.errors import TreadleError, UsageError
from treadle.runtime.native_executor import ExecutorHandle
from treadle.runtime.streams import Streams


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Call `work` from so many threads; raise what one of them raises."""
    failures: list[BaseException] = []

    def call(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("make", [models.static, models.dynamic, models.loop])
@pytest.mark.parametrize("limit", [1, 2, 6])
def test_every_thread_gets_its_own_results(make: Callable[[int], models.Model], limit: int) -> None:
    model = make(2)
    model.executor.max_streams = limit

    def work(index: int) -> None:
        inputs = [model.inputs[0] + index, *model.inputs[1:]]
        for _ in range(20):
            model.compare(model.executor.run(inputs), inputs)

    at_once(6, work)
    assert 1 <= model.executor.streams <= limit


def test_runs_go_on_at_the_same_time() -> None:
    """Each run waits inside until the other is there too."""
    model = models.static(1)
    model.executor.max_streams = 2
    meeting = threading.Barrier(2)

    def observe(index: int, _value: np.ndarray) -> None:
        if index == 0:
            meeting.wait(PATIENCE)

    at_once(2, lambda _: model.compare(model.executor.watch(model.inputs, observe)))
    assert model.executor.streams == 2


def test_a_single_thread_needs_a_single_stream() -> None:
    model = models.static(2)
    for _ in range(5):
        model.check()
    assert model.executor.streams == 1


def test_a_run_inside_a_run_never_waits_for_itself() -> None:
    model = models.static(2)
    model.executor.max_streams = 1
    model.executor.watch(model.inputs, lambda i, _: model.check() if i == 0 else None)
    assert model.executor.streams == 2


def test_a_fork_shares_weights_and_lives_on() -> None:
    model = models.static(3)
    model.executor.set_input(0, model.inputs[0])
    fork = model.executor.fork()
    assert fork.num_threads == 3
    model.compare(fork.run())
    fork.num_threads = 1
    assert model.executor.num_threads == 3
    model.executor.close()
    model.compare(fork.run(model.inputs))
    with pytest.raises(UsageError, match="the executor is closed"):
        model.executor.fork()


def test_threads_set_later_count_for_all_streams() -> None:
    model = models.static(1)
    with model.executor._streams.held(), model.executor._streams.held() as second:
        pass
    model.executor.num_threads = 4
    assert second.num_threads == 4


class Scarce(ExecutorHandle):
    """An executor that cannot be forked, for lack of memory."""

    def fork(self) -> ExecutorHandle:
        """Fail."""
        raise TreadleError("not enough memory")


def test_without_memory_for_another_stream_runs_wait_for_their_turn() -> None:
    handle = models.static(1).executor._streams.first
    handle.__class__ = Scarce
    streams = Streams(handle)
    streams.limit = 4
    counts = [0]

    def work(_index: int) -> None:
        for _ in range(50):
            with streams.held():
                before = counts[0]
                counts[0] = before + 1

    at_once(4, work)
    assert counts == [200]
    assert streams.made == (handle,)


def test_turns_come_in_order_of_arrival() -> None:
    streams = Streams(models.static(1).executor._streams.first)
    streams.limit = 1
    order: list[int] = []
    first = streams.take()
    threads = []
    for index in range(4):
        thread = threading.Thread(target=lambda i=index: _note(streams, order, i))
        thread.start()
        threads.append(thread)
        while len(streams._waiting) <= index:
            pass
    streams.give_back(first)
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2, 3]


def _note(streams: Streams, order: list[int], index: int) -> None:
    with streams.held():
        order.append(index)


def test_closing_lets_runs_finish_and_turns_the_waiting_away() -> None:
    model = models.static(1)
    model.executor.max_streams = 1
    streams = model.executor._streams
    held = streams.take()
    refused: list[str] = []

    def wait() -> None:
        try:
            model.executor.run(model.inputs)
        except UsageError as error:
            refused.append(error.problem)

    thread = threading.Thread(target=wait)
    thread.start()
    while not streams._waiting:
        pass
    model.executor.close()
    thread.join(PATIENCE)
    assert refused == ["the executor is closed"]
    assert held.num_threads == 1  # still there
    streams.give_back(held)
    with pytest.raises(UsageError, match="the executor is closed"):
        held.num_threads  # noqa: B018


@pytest.mark.parametrize("change", [pickle.dumps, copy.copy, copy.deepcopy])
def test_executors_cannot_be_pickled(change: Callable[[object], object]) -> None:
    with pytest.raises(UsageError, match="cannot be pickled or copied") as caught:
        change(models.static(1).executor)
    assert "treadle.load(path)" in caught.value.hint


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="max_streams is 0"):
        models.static(1).executor.max_streams = 0
