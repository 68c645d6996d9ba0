# SPDX-License-Identifier: Apache-2.0
"""Executors that measure nothing: what a candidate takes follows from what it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

from treadle.te.choice import Choice
from treadle.tune.executor import LocalExecutor, Outcome, WorkOptions
from treadle.tune.runner import Measured
from treadle.tune.task import Task


class Instantly(LocalExecutor, ABC):
    """An executor and its workers, `count` of them; nothing is built."""

    count: int

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Choice]] = []

    @abstractmethod
    def seconds(self, task: int, choice: Choice) -> float:
        """Return how long a candidate takes."""

    def workers(  # type: ignore[override]  # it is both
        self, tasks: Sequence[Task], options: WorkOptions
    ) -> nullcontext[Instantly]:
        self._tasks = tasks
        return nullcontext(self)

    def close(self) -> None:
        pass

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        self._waiting.append((ticket, task, choice))

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        ticket, task, choice = self._waiting.pop(0)
        yield Outcome(ticket, Measured((self.seconds(task, choice),)))

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        return [Measured((self.seconds(task, c),)) for c in choices]
