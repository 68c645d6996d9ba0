# SPDX-License-Identifier: Apache-2.0
"""Where candidates are built and measured: an interface, and this machine as one such place.

A tuner hands over choices and takes times; it knows nothing of processes or machines. `local` forks
builders and a runner here; `dask` (`dask_executor.py`) asks the workers of a Dask cluster.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from treadle.build.kernel import ObjectCode
from treadle.target.host import usable_cores
from treadle.te.choice import Choice
from treadle.tune.builder import Builders, Built, build_all
from treadle.tune.runner import Measured, MeasureOptions, Runner
from treadle.tune.task import Task


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate; `build_seconds` is what building it took."""

    ticket: int
    measured: Measured
    build_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How candidates are built and measured; `builders` None: as many as there is room for."""

    measure: MeasureOptions
    builders: int | None = None
    build_timeout: float = 30.0


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

    def measure(self, task: int, made: ObjectCode, best: float) -> Measured:
        """Check and time a candidate of a task; `best` seconds are those of the best known."""

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
    """

    tasks: Sequence[Task]
    options: WorkOptions
    make_runner: Callable[[Sequence[Task], MeasureOptions], CandidateRunner] = Runner
    is_quiet: bool = True
    _tasks_of: dict[int, int] = field(default_factory=dict)
    _known: KnownCode = field(default_factory=KnownCode)
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
        self._tasks_of[ticket] = task
        self._builders.add(ticket, task, choice)

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        """Measure what has been built."""
        for built in self._builders.results(wait):
            task = self._tasks_of.pop(built.ticket)
            yield Outcome(built.ticket, self._measured(task, built, best), built.seconds)

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
            return self._runner.measure(task, made, best)

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        """Build choices and time them alternately, while nothing is being built."""
        built = build_all(self._builders, task, choices)
        made = [b.object for b in built if b.object is not None]
        with self._quiet():
            times = iter(self._runner.race(task, made, rounds) if made else [])
        return [Measured(error=b.error) if b.object is None else next(times) for b in built]


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
