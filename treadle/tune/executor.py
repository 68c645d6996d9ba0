# SPDX-License-Identifier: Apache-2.0
"""Where candidates are built and measured: an interface, and this machine as one such place.

A tuner hands over choices and takes times; it knows nothing of processes or machines. `local` forks
builders and a runner here; `dask` (`dask_executor.py`) asks the workers of a Dask cluster.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from treadle.build.kernel import ObjectCode
from treadle.target.host import usable_cores
from treadle.te.choice import Choice
from treadle.tune.builder import Builders, Built, build_all
from treadle.tune.runner import Baseline, Measured, MeasureOptions, Runner
from treadle.tune.task import Task

_MOST_TIMES = 2.0
"""A baseline takes at most so many times as long as the best candidate: it costs time, too."""
_MOST_BYTES = 64 << 20
"""Of a baseline's code at most: that of a method holds weights, and goes with each candidate."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate; `build_seconds` is what building it took."""

    ticket: int
    measured: Measured
    build_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How candidates are built and measured; `builders` None: as many as there is room for.

    `measured` are candidates that records hold times of, by task: new ones are timed next to them.
    """

    measure: MeasureOptions
    builders: int | None = None
    build_timeout: float = 30.0
    measured: Mapping[int, tuple[Choice, float]] = field(default_factory=dict)


class Workers(Protocol):
    """Builds and measures candidates of some tasks, which are known by their places."""

    @property
    def count(self) -> int:
        """How many candidates are worked on at a time."""

    @property
    def pending(self) -> int:
        """How many candidates have been added and have no outcome yet."""

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        """Queue a candidate of a task; `ticket` comes back with the outcome."""

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        """Yield what is ready; wait for something so many seconds if nothing is.

        `best(task)` is the best time known of a task: what is much slower is cut short.
        """

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        """Build choices of one task and time them alternately, a figure of each in every round."""


class Executor(Protocol):
    """A place where candidates are built and measured."""

    def workers(
        self, tasks: Sequence[Task], options: WorkOptions
    ) -> AbstractContextManager[Workers]:
        """Return workers for some tasks, as a context that ends what they have begun.

        Raises: UsageError where there are none that fit.
        """

    def close(self) -> None:
        """Let go of the place."""


class KnownCode:
    """What was measured of machine code: equal code of one task is measured once."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bytes], Measured] = {}

    def get(self, task: int, made: ObjectCode) -> Measured | None:
        """Return what was measured of this code, None if nothing was."""
        return self._found.get(self._key(task, made))

    def put(self, task: int, made: ObjectCode, measured: Measured) -> None:
        """Keep what was measured."""
        self._found[self._key(task, made)] = measured

    @staticmethod
    def _key(task: int, made: ObjectCode) -> tuple[int, bytes]:
        return task, hashlib.sha256(made.code).digest()


class CandidateRunner(Protocol):
    """Checks and times what has been built."""

    def measure(
        self, task: int, made: ObjectCode, best: float, baseline: Baseline | None = None
    ) -> Measured:
        """Check and time a candidate of a task; `best` seconds are those of the best known.

        Each figure is taken next to one of the baseline, and scaled by what that takes more or less
        than its seconds.
        """

    def race(self, task: int, made: Sequence[ObjectCode], rounds: int) -> list[Measured]:
        """Time candidates of one task alternately: a figure of each in every round."""

    def close(self) -> None:
        """End it."""


class LocalExecutor:
    """This machine: forked builders, and one runner while they stand still."""

    def workers(self, tasks: Sequence[Task], options: WorkOptions) -> LocalWorkers:
        """Return workers, not yet started."""
        return LocalWorkers(tasks, options)

    def close(self) -> None:
        """Do nothing: workers end with their context."""


@dataclass(slots=True)
class LocalWorkers:
    """Builders of this machine and a runner; a context that ends them.

    The runner is here too, unless `make_runner` makes another. With `is_quiet` nothing is built
    while it measures.

    A machine is not equally fast all the time, and candidates are measured minutes apart. So they
    are timed next to a baseline of their task: what records hold a time of, else the first one that
    runs, later one that takes less than half as long. Their times are those of a machine as fast as
    when the first baseline was measured.
    """

    tasks: Sequence[Task]
    options: WorkOptions
    make_runner: Callable[[Sequence[Task], MeasureOptions], CandidateRunner] = Runner
    is_quiet: bool = True
    _tasks_of: dict[int, int] = field(default_factory=dict)
    _known: KnownCode = field(default_factory=KnownCode)
    _baselines: dict[int, Baseline] = field(default_factory=dict)
    _asked: set[int] = field(default_factory=set)
    _waiting: dict[int, list[Built]] = field(default_factory=dict)
    """Candidates of tasks whose baseline is being built."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _builders: Builders = field(init=False)
    _runner: CandidateRunner = field(init=False)

    def __enter__(self) -> LocalWorkers:
        count = self.options.builders or usable_cores()
        self._builders = self._stack.enter_context(
            Builders(self.tasks, count, self.options.build_timeout)
        )
        self._runner = self.make_runner(self.tasks, self.options.measure)
        self._stack.callback(self._runner.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def count(self) -> int:
        """The number of builders."""
        return self._builders.count

    @property
    def pending(self) -> int:
        """How many candidates are waiting or being built."""
        return self._builders.pending

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        """Queue a candidate for the builders."""
        if task in self.options.measured and task not in self._asked:
            self._asked.add(task)
            self._waiting[task] = []
            self._builders.add(_baseline_ticket(task), task, self.options.measured[task][0])
        self._tasks_of[ticket] = task
        self._builders.add(ticket, task, choice)

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        """Measure what has been built."""
        for built in self._builders.results(wait):
            for ready in self._ready(built):
                task = self._tasks_of.pop(ready.ticket)
                yield Outcome(ready.ticket, self._measured(task, ready, best), ready.seconds)

    def _ready(self, built: Built) -> list[Built]:
        """Return the candidates that can be measured now that one more has been built."""
        if built.ticket < 0:
            task = _baseline_ticket(built.ticket)
            if built.object is not None:
                seconds = self.options.measured[task][1]
                self._offer(task, Baseline(built.object, seconds))
            return self._waiting.pop(task)
        waiting = self._waiting.get(self._tasks_of[built.ticket])
        if waiting is None:
            return [built]
        waiting.append(built)
        return []

    def _measured(self, task: int, built: Built, best: Callable[[int], float]) -> Measured:
        made = built.object
        if made is None:
            return Measured(error=built.error)
        found = self._known.get(task, made)
        if found is None:
            found = self.measure(task, made, best(task))
            self._known.put(task, made, found)
        return found

    def _quiet(self) -> AbstractContextManager[object]:
        return _Quiet(self._builders) if self.is_quiet else nullcontext()

    def build(self, task: int, choice: Choice) -> Built:
        """Build one choice; no others are on their way."""
        return build_all(self._builders, task, [choice])[0]

    def measure(self, task: int, made: ObjectCode, best: float) -> Measured:
        """Check and time what has been built, while nothing is being built."""
        with self._quiet():
            found = self._runner.measure(task, made, best, self._baselines.get(task))
        if found.seconds and min(found.seconds) <= self.options.measure.hopeless * best:
            self._offer(task, Baseline(made, statistics.median(found.seconds)))
        return found

    def _offer(self, task: int, other: Baseline) -> None:
        """Take a candidate as the baseline where there is none, or one that takes far longer."""
        known = self._baselines.get(task)
        is_better = known is None or known.seconds > _MOST_TIMES * other.seconds
        if is_better and len(other.code.code) <= _MOST_BYTES:
            self._baselines[task] = other

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        """Build choices and time them alternately, while nothing is being built."""
        built = build_all(self._builders, task, choices)
        made = [b.object for b in built if b.object is not None]
        with self._quiet():
            times = iter(self._runner.race(task, made, rounds) if made else [])
        return [Measured(error=b.error) if b.object is None else next(times) for b in built]


def _baseline_ticket(number: int) -> int:
    """Return the ticket of a task's baseline, or the task of such a ticket."""
    return -1 - number


class _Quiet:
    """A block in which no candidate is being built; the time it takes is added to theirs."""

    def __init__(self, builders: Builders) -> None:
        self._builders = builders
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.monotonic()
        self._builders.pause()

    def __exit__(self, *_: object) -> None:
        self._builders.resume()
        self._builders.extend(time.monotonic() - self._start)
