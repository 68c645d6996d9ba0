# SPDX-License-Identifier: Apache-2.0
"""The tuner: has candidates of one task after another built and measured, and writes records.

Everything that is known of a trial is a line of the records before the next one begins; a run that
is killed loses the trials in flight, and the same command goes on after the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from treadle.build.compiler_digest import compiler_digest
from treadle.build.records import Record
from treadle.tune.allocate import Progress
from treadle.tune.decide import decided
from treadle.tune.executor import Executor, LocalExecutor, Outcome, Workers, WorkOptions
from treadle.tune.options import TuneOptions
from treadle.tune.proposals import Proposals, Searches, Spaces, Trial
from treadle.tune.record_store import RecordStore
from treadle.tune.state import TaskState, total_seconds
from treadle.tune.task import Task

OnChange = Callable[["Tuner"], None]
"""Called after every trial, and about once a second."""


class Watch(Protocol):
    """Is told how a round goes on: `measuring`, then of every candidate, then `learning`."""

    def measuring(self, count: int) -> None:
        """So many candidates have been found and are to be measured."""

    def measured(self, record: Record) -> None:
        """A candidate has been built and measured, or could not be, and is written down."""

    def learning(self) -> None:
        """The models are fitted to what was measured."""


class Tuner:
    """Tunes tasks into a file of records; `run` until the budget is spent, then `decide`.

    `states` is where it stands; `notes` what the user should know; `host_seconds` the time spent in
    this process on searching and learning, `build_seconds` that of all builders together.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        records: RecordStore,
        options: TuneOptions,
        on_change: OnChange | None = None,
        spaces: Spaces | None = None,
        executor: Executor | None = None,
        searches: Searches | None = None,
        known: Iterable[Record] | None = None,
    ) -> None:
        """`spaces` gives those of a task, `searches` what goes through one (default: as the options
        say). `executor` is where candidates are built and measured (default: here). `known` is what
        the records hold (default: it is read).
        """
        self.options = options
        self.records = records
        self.notes: list[str] = []
        self.host_seconds = 0.0
        self.build_seconds = 0.0
        self.started = time.monotonic()
        self.new_trials = 0
        self.curve: list[tuple[float, int, float]] = []
        """Seconds since the start, trials, seconds of a run saved: where the best changed."""
        self._on_change = on_change
        self._compiler = (compiler_digest() or "")[:16]
        self._running: dict[int, Trial] = {}
        self._tickets = 0
        self._executor = executor or LocalExecutor()
        self.states = [TaskState(k, task, Progress(task.uses)) for k, task in enumerate(tasks)]
        self._by_key = {(s.task.name, str(s.task.target)): s for s in self.states}
        self._proposals = Proposals(self.states, options, self.notes, spaces, searches)
        self._resume(records.read_new() if known is None else known)

    # -- state -----------------------------------------------------------------------------------

    @property
    def trials(self) -> int:
        """All trials, those of earlier runs included."""
        return sum(len(s.trials) for s in self.states)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def before(self) -> float:
        """The time of the kernels of a run that were measured in seconds, by default."""
        return total_seconds(self.states, default=True)

    @property
    def now(self) -> float:
        """The time of the kernels of a run that were measured in seconds, each at its best."""
        return total_seconds(self.states)

    @property
    def is_spent(self) -> bool:
        """True when the budget of trials or minutes is used up."""
        options = self.options
        planned = self.trials + len(self._running) + len(self._proposals.waiting)
        if options.trials is not None and planned >= options.trials:
            return True
        return self._out_of_time

    def _resume(self, known: Iterable[Record]) -> None:
        """Take the trials in the records that were measured as this run measures.

        Those of the same kernel under other circumstances (another target, version of the compiler,
        number of threads) are to be tried early.
        """
        by_name = {s.task.name: s for s in self.states}
        for record in known:
            state = self._by_key.get(record.key)
            if state is not None and self._counts(state.task, record):
                state.add(record)
                state.resumed += 1
            elif record.kernel in by_name and record.is_trial and record.seconds:
                by_name[record.kernel].elsewhere.append(record)

    def _counts(self, task: Task, record: Record) -> bool:
        same = record.options == self._how(task) and record.compiler == self._compiler
        return record.is_trial and same

    def _how(self, task: Task) -> str:
        """Return what times of a task depend on, for its records."""
        return self.options.measure.text() + task.sizes_text

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Try candidates until the budget is spent or nothing is left to try.

        Raises: UsageError where a record cannot be written.
        """
        with self.workers() as workers:
            while True:
                self._fill(workers)
                if not self._running or self._out_of_time:
                    break
                for outcome in workers.results(0.5, lambda task: self.states[task].seconds):
                    self._finish(self._running.pop(outcome.ticket), outcome)
                self._changed()

    def workers(self) -> AbstractContextManager[Workers]:
        """Return what builds and measures candidates of the tasks."""
        options = self.options
        ran = {s.number: next((t for t in s.trials if t.seconds), None) for s in self.states}
        known = {number: (t.choice, t.time) for number, t in ran.items() if t is not None}
        how = WorkOptions(options.measure, options.builders, options.build_timeout, known)
        return self._executor.workers([s.task for s in self.states], how)

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change(self)

    def _fill(self, workers: Workers) -> None:
        """Keep the workers busy as long as there is a budget."""
        start = time.perf_counter()
        waiting = self._proposals.waiting
        while workers.pending < 2 * workers.count:
            if not waiting and not self.is_spent:
                self._proposals.propose(self._running.values())
            if not waiting or self._out_of_time:
                waiting.clear()
                break
            trial = waiting.popleft()
            self._tickets += 1
            self._running[self._tickets] = trial
            workers.add(self._tickets, trial.state.number, trial.choice)
        self.host_seconds += time.perf_counter() - start

    @property
    def _out_of_time(self) -> bool:
        minutes = self.options.minutes
        return minutes is not None and self.elapsed >= 60 * minutes

    def round(self, number: int, count: int, workers: Workers, watch: Watch) -> list[Record]:
        """Search for up to `count` candidates of a task, measure all of them, then learn from it.

        `workers` are those of the method of this name. Fewer than `count` mean that nothing else is
        left to try.

        Raises: UsageError where a record cannot be written.
        """
        state = self.states[number]
        trials = self._proposals.of_round(state, count)
        watch.measuring(len(trials))
        found: list[Record] = []
        for ticket, trial in enumerate(trials):
            workers.add(ticket, number, trial.choice)
        while len(found) < len(trials):
            for outcome in workers.results(0.5, lambda task: self.states[task].seconds):
                found.append(self._finish(trials[outcome.ticket], outcome))
                watch.measured(found[-1])
        watch.learning()
        for arm in state.arms:
            arm.search.learn()
        return found

    def _finish(self, trial: Trial, outcome: Outcome) -> Record:
        """Write down what was measured, and learn from it; return that."""
        state, arm, measured = trial.state, trial.arm, outcome.measured
        self.build_seconds += outcome.build_seconds
        record = Record(
            state.task.name,
            str(state.task.target),
            trial.choice,
            seconds=measured.seconds,
            error=measured.error,
            space="" if arm is None else arm.space.kind,
            point=None if arm is None else arm.space.to_json(trial.candidate),
            compiler=self._compiler,
            options=self._how(state.task),
        )
        self.records.append(record)
        self.new_trials += 1
        before = state.seconds
        state.add(record)
        start = time.perf_counter()
        if arm is not None:
            arm.search.tell([trial.candidate], [record.time])
        self.host_seconds += time.perf_counter() - start
        if state.seconds < before:
            self.curve.append((self.elapsed, self.trials, self.before - self.now))
        return record

    # -- decisions -------------------------------------------------------------------------------

    def decide(self) -> None:
        """Decide what each task is to take, and write it down.

        Raises: UsageError where a record cannot be written.
        """
        states = [s for s in self.states if s.best is not None and len(s.trials) > 1]
        with self.workers() as workers:
            for state in states:
                self._decide(state, workers)
                self._changed()

    def _decide(self, state: TaskState, workers: Workers) -> None:
        winner, seconds = decided(state, workers)
        record = Record(
            state.task.name,
            str(state.task.target),
            winner,
            seconds=seconds,
            is_chosen=True,
            compiler=self._compiler,
            options=self._how(state.task),
        )
        self.records.append(record)
        state.decided = record
