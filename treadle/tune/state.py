# SPDX-License-Identifier: Apache-2.0
"""Where a tuning run stands: per task what was tried, what is best, what failed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from treadle.build.records import Record
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS
from treadle.tune.allocate import Progress
from treadle.tune.search import Search
from treadle.tune.space import SearchSpace
from treadle.tune.task import Task

_SAME_FAILURES = 8
"""So many trials that fail in the same way, and none that does not, end a task."""


@dataclass(slots=True)
class Arm:
    """A space of a task and the search through it."""

    space: SearchSpace[Any]
    search: Search[Any]


@dataclass(slots=True)
class TaskState:
    """A task and its trials, those of earlier runs included.

    `default` is the time of the default schedule in seconds, None before it is measured; `best` the
    trial that was fastest. `failures` count what went wrong, `first_failures` are a trial of each.
    `elsewhere` are trials of the same kernel that were measured under other circumstances; `tried`
    are the times of all choices that were measured under these, `proposed` those on their way, too.
    """

    number: int
    task: Task
    progress: Progress
    arms: list[Arm] = field(default_factory=list)
    trials: list[Record] = field(default_factory=list)
    default: float | None = None
    best: Record | None = None
    decided: Record | None = None
    failures: Counter[str] = field(default_factory=Counter)
    first_failures: dict[str, Record] = field(default_factory=dict)
    elsewhere: list[Record] = field(default_factory=list)
    tried: dict[Choice, float] = field(default_factory=dict)
    proposed: set[Choice] = field(default_factory=set)
    resumed: int = 0
    next_arm: int = 0

    @property
    def seconds(self) -> float:
        """The best time of a call; infinite before there is one."""
        return inf if self.best is None else self.best.time

    @property
    def status(self) -> str:
        """In a word: waiting, tuning, done, failed."""
        if self.failed:
            return "failed"
        if not self.trials:
            return "waiting"
        return "done" if self.progress.is_done or self.decided is not None else "tuning"

    @property
    def failed(self) -> str:
        """Why nothing of the task runs; "" as long as something does or may."""
        if self.best is not None or len(self.trials) < _SAME_FAILURES or len(self.failures) > 1:
            return ""
        return next(iter(self.failures), "")

    def add(self, record: Record) -> None:
        """Take note of a trial."""
        self.trials.append(record)
        self.tried[record.choice] = record.time
        self.proposed.add(record.choice)
        self.progress.add(record.time)
        if record.choice == DEFAULTS and self.default is None and record.seconds:
            self.default = record.time
        if record.seconds and record.time < self.seconds:
            self.best = record
            self.progress.is_done = False  # patience begins anew; an empty space says so again
        if record.error:
            self._fail(record)
        if self.failed:
            self.progress.is_done = True

    def refuse(self, error: str) -> None:
        """Take note of a candidate that its template refuses to schedule: it is no trial."""
        self._fail(Record(self.task.name, str(self.task.target), DEFAULTS, error=error))

    def _fail(self, record: Record) -> None:
        kind = record.error.split("\n")[0].split(": max")[0]
        self.failures[kind] += 1
        self.first_failures.setdefault(kind, record)


def total_seconds(states: Sequence[TaskState], *, default: bool = False) -> float:
    """Return the time of the kernels of a run that have one, each at its best (or by default).

    Infinite while none has. A default that was not measured, or failed, counts as the best.
    """
    ran = [s for s in states if s.best is not None]
    if not ran:
        return inf
    if default:
        return sum(s.task.uses * (s.seconds if s.default is None else s.default) for s in ran)
    return sum(s.task.uses * s.seconds for s in ran)
