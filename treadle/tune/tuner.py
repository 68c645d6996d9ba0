# SPDX-License-Identifier: Apache-2.0
"""The tuner: takes tasks in turns, lets candidates be built and measured, and writes records.

Everything that is known of a trial is a line of the records before the next one begins; a run that
is killed loses the trials in flight, and the same command goes on after the others.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np

from treadle.build.kernel_cache import compiler_digest
from treadle.build.records import Record
from treadle.errors import TreadleError
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS
from treadle.tune.allocate import Progress, next_task
from treadle.tune.cost_model import make_model
from treadle.tune.executor import Executor, LocalExecutor, Outcome, Workers, WorkOptions
from treadle.tune.record_store import RecordStore
from treadle.tune.runner import Measured, MeasureOptions
from treadle.tune.search import Search, make_search
from treadle.tune.space import SearchSpace
from treadle.tune.spaces import spaces_of
from treadle.tune.state import Arm, TaskState, total_seconds
from treadle.tune.task import Task

_BATCH = 8
"""Candidates that a search proposes at once."""
_TRANSFERRED = 3
"""The best of as many tasks of the same kind are tried early."""
_MOST_INVALID = 200
"""Candidates in a row that turn out to be invalid end a task."""
_GAIN = 0.99
"""A decision against the default has to take at most this share of its time."""
_FINALISTS, _ROUNDS = 3, 15


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What to try, and how long.

    `trials` counts those in the records, too; `minutes` those of this run. `space` is "template",
    "sketch" or "both". `early_stopping` ends a task after so many trials without a better one.
    `in_turn` gives all tasks the same number of trials. `model` is the objective of the cost model.
    Without `tries_default` the default schedules are not measured, and decisions are not held
    against them. `methods` says whether tuning a model begins with the methods of its calls, which
    take at most half of the budget (not where `space` is "sketch"). `sizes` are what kernels with
    dynamic sizes are measured at, by the names of the sizes in the model. `executor` is where
    candidates are built and measured: "local", or "dask:" and the address of a scheduler; a place
    that was handed over beside the options has another name.
    """

    trials: int | None = None
    minutes: float | None = None
    space: str = "template"
    search: str = "evolutionary"
    model: str = "reg"
    seed: int = 0
    early_stopping: int | None = None
    in_turn: bool = False
    builders: int | None = None
    build_timeout: float = 30.0
    tries_default: bool = True
    methods: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)
    executor: str = "local"
    measure: MeasureOptions = field(default_factory=MeasureOptions)


@dataclass(slots=True)
class _Trial:
    """A candidate on its way; the default schedule is of no space."""

    state: TaskState
    arm: Arm | None
    candidate: Any
    choice: Choice


OnChange = Callable[["Tuner"], None]
"""Called after every trial, and about once a second."""

Searches = Callable[[Task, SearchSpace[Any]], Search[Any]]
"""Makes the search through a space of a task."""


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
        spaces: Callable[[Task], Sequence[SearchSpace[Any]]] | None = None,
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
        """Seconds since the start, trials, time of the model: where the best changed."""
        self._on_change = on_change
        self._spaces = spaces or (lambda task: spaces_of(task, options.space))
        self._searches = searches or self._search
        self._compiler = (compiler_digest() or "")[:16]
        self._random = np.random.default_rng(options.seed)
        self._waiting: deque[_Trial] = deque()
        self._flying: dict[int, _Trial] = {}
        self._tickets = 0
        self._executor = executor or LocalExecutor()
        self._told: set[int] = set()
        self.states = [TaskState(k, task, Progress(task.uses)) for k, task in enumerate(tasks)]
        self._by_key = {(s.task.name, str(s.task.target)): s for s in self.states}
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
        """The time of all kernels of a run of the model in seconds, by default."""
        return total_seconds(self.states, default=True)

    @property
    def now(self) -> float:
        """The time of all kernels of a run of the model in seconds, each at its best."""
        return total_seconds(self.states)

    @property
    def is_spent(self) -> bool:
        """True when the budget of trials or minutes is used up."""
        options = self.options
        planned = self.trials + len(self._flying) + len(self._waiting)
        if options.trials is not None and planned >= options.trials:
            return True
        return self._out_of_time

    def _arms(self, state: TaskState) -> list[Arm]:
        """Return the spaces of a task, made when it is first tried."""
        if not state.arms:
            for space in self._spaces(state.task):
                state.arms.append(Arm(space, self._searches(state.task, space)))
            self._preload(state)
        return state.arms

    def _search(self, task: Task, space: SearchSpace[Any]) -> Search[Any]:
        """Return the search that the options say."""
        model, note = make_model(self.options.model)
        if note is not None and note not in self.notes:
            self.notes.append(note)
        return make_search(self.options.search, space, self._random, model)

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

    def _preload(self, state: TaskState) -> None:
        """Tell the searches of a task what is known: its own trials, and the best of others."""
        known: list[tuple[Any, float | None]]
        for arm in state.arms:
            own = [r for r in state.trials if r.space == arm.space.kind]
            pairs = [(arm.space.from_json(r.point), r.time) for r in own]
            known = [(c, t) for c, t in pairs if c is not None]
            if arm.space.kind == "template":
                first = arm.space.start()[:1]  # the default, named in full
                known += [(c, state.default) for c in first]
            arm.search.preload([c for c, _ in known], [t for _, t in known])

    def _suggest(self, state: TaskState) -> None:
        """Let what was best elsewhere, and the best of similar tasks, be tried early."""
        if state.number in self._told:
            return
        self._told.add(state.number)
        kind = _kind_of(state.task)
        others = [
            s
            for s in self.states
            if s is not state and s.best is not None and s.best.choice != DEFAULTS
            and _kind_of(s.task) == kind
        ]  # fmt: skip
        others.sort(key=lambda s: abs(s.task.flops - state.task.flops))
        elsewhere = sorted(state.elsewhere, key=lambda r: r.time)[:_TRANSFERRED]
        alike = [s.best for s in others[:_TRANSFERRED] if s.best is not None]
        for arm in state.arms:
            known = [r for r in (*elsewhere, *alike) if r.space == arm.space.kind]
            points = [arm.space.from_json(r.point) for r in known]
            arm.search.suggest([p for p in points if p is not None])

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Try candidates until the budget is spent or nothing is left to try.

        Raises: UsageError where a record cannot be written.
        """
        with self.workers() as workers:
            while True:
                self._fill(workers)
                if not self._flying or self._out_of_time:
                    break
                for outcome in workers.results(0.5, lambda task: self.states[task].seconds):
                    self._finish(self._flying.pop(outcome.ticket), outcome)
                self._changed()

    def workers(self) -> AbstractContextManager[Workers]:
        """Return what builds and measures candidates of the tasks."""
        options = self.options
        how = WorkOptions(options.measure, options.builders, options.build_timeout)
        return self._executor.workers([s.task for s in self.states], how)

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change(self)

    def _fill(self, workers: Workers) -> None:
        """Keep the workers busy as long as there is a budget."""
        start = time.perf_counter()
        while workers.pending < 2 * workers.count:
            if not self._waiting and not self.is_spent:
                self._propose()
            if not self._waiting or self._out_of_time:
                self._waiting.clear()
                break
            trial = self._waiting.popleft()
            self._tickets += 1
            self._flying[self._tickets] = trial
            workers.add(self._tickets, trial.state.number, trial.choice)
        self.host_seconds += time.perf_counter() - start

    @property
    def _out_of_time(self) -> bool:
        minutes = self.options.minutes
        return minutes is not None and self.elapsed >= 60 * minutes

    def round(self, number: int, count: int, workers: Workers, watch: Watch) -> list[Record]:
        """Search for up to `count` candidates of a task, measure all of them, then learn from it.

        `workers` are those of the method of this name. Fewer than `count` mean that nothing else is
        left to try. What was best elsewhere and is in no space here comes first.

        Raises: UsageError where a record cannot be written.
        """
        state = self.states[number]
        trials = self._candidates(state, count)
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

    def _candidates(self, state: TaskState, count: int) -> list[_Trial]:
        """Return what a round measures."""
        found: list[_Trial] = []
        if self.options.tries_default and DEFAULTS not in state.tried:
            found.append(_Trial(state, None, None, DEFAULTS))
        if state.number not in self._told:
            alien = sorted((r for r in state.elsewhere if r.point is None), key=lambda r: r.time)
            choices = dict.fromkeys(r.choice for r in alien if r.choice not in state.tried)
            found += [_Trial(state, None, None, c) for c in [*choices][:_TRANSFERRED]]
            state.proposed.update(t.choice for t in found)
        while len(found) < count:
            self._propose_of(state, count - len(found))
            if not self._waiting:
                break
            found += self._waiting
            self._waiting.clear()
        return found[:count]

    def _propose(self) -> None:
        """Queue candidates of the task that promises most; mark those that have none left."""
        while not self._waiting:
            for state in self.states:
                state.progress.queued = sum(t.state is state for t in self._flying.values())
                state.progress.is_done = state.progress.is_done or self._is_stale(state)
            place = next_task([s.progress for s in self.states], in_turn=self.options.in_turn)
            if place is None:
                return
            state = self.states[place]
            if self.options.tries_default and not state.trials:
                if state.progress.queued:
                    return  # its spaces are made when its default is known
                self._waiting.append(_Trial(state, None, None, DEFAULTS))
                return
            self._propose_of(state, self._batch())
            if not self._waiting:
                state.progress.is_done = True

    def _batch(self) -> int:
        if self.options.trials is None:
            return _BATCH
        return max(1, min(_BATCH, self.options.trials - self.trials - len(self._flying)))

    def _is_stale(self, state: TaskState) -> bool:
        """True when the last trials have brought nothing better."""
        patience, best = self.options.early_stopping, state.progress.best
        return patience is not None and len(best) > patience and best[-1] >= best[-1 - patience]

    def _random_of(self, state: TaskState, arm: Arm) -> np.random.Generator:
        """Return the random numbers of the next proposals for a task.

        They follow from the seed, the task and how much of it has been tried: so a run that was
        interrupted draws what another one with the same records and the same seed draws.
        """
        words = f"{state.task.name} {state.task.target} {arm.space.kind}".encode()
        tried = len(state.trials) + state.progress.queued
        return np.random.default_rng([self.options.seed, zlib.crc32(words), tried])

    def _propose_of(self, state: TaskState, count: int) -> None:
        arms = self._arms(state)
        self._suggest(state)
        invalid = 0
        for _ in range(len(arms)):
            arm = arms[state.next_arm % len(arms)]
            state.next_arm += 1
            arm.search.draw_from(self._random_of(state, arm))
            while not self._waiting and invalid < _MOST_INVALID:
                found = arm.search.propose(count)
                if not found:
                    break
                for candidate in found:
                    choice = _choice(state, arm, candidate)
                    if choice is None:
                        arm.search.tell([candidate], [None])
                        invalid += 1
                    elif choice in state.proposed:  # two candidates may stand for one choice
                        arm.search.tell([candidate], [state.tried.get(choice)])
                        invalid += 1
                    else:
                        state.proposed.add(choice)
                        self._waiting.append(_Trial(state, arm, candidate, choice))
            if self._waiting:
                return

    def _finish(self, trial: _Trial, outcome: Outcome) -> Record:
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
        if state.seconds < before and (now := self.now) < inf:
            self.curve.append((self.elapsed, self.trials, now))
        return record

    # -- decisions -------------------------------------------------------------------------------

    def decide(self) -> None:
        """Time the best of each task and its default in turns, and write down which to take.

        A trial is one figure on a machine that is never quite still: what only looked faster does
        not become a decision.
        """
        states = [s for s in self.states if s.best is not None and len(s.trials) > 1]
        with self.workers() as workers:
            for state in states:
                self._decide(state, workers)
                self._changed()

    def _decide(self, state: TaskState, workers: Workers) -> None:
        finalists = self._finalists(state)
        choices = [DEFAULTS, *(r.choice for r in finalists)]
        winner: Choice = DEFAULTS
        seconds: tuple[float, ...] = ()
        if finalists:
            found = workers.race(state.number, choices, _ROUNDS)
            place = _winner(found)
            if place is not None:
                winner, seconds = choices[place], found[place].seconds
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

    def _finalists(self, state: TaskState) -> list[Record]:
        """Return the fastest trials that may beat the default."""
        limit = inf if state.default is None else state.default
        ran = sorted((r for r in state.trials if r.time < limit), key=lambda r: r.time)
        return ran[:_FINALISTS]


def _choice(state: TaskState, arm: Arm, candidate: Any) -> Choice | None:
    """Return what a candidate stands for; None where it turns out to be none, or is refused."""
    try:
        found: Choice | None = arm.space.choice(candidate)
    except TreadleError as error:
        state.refuse(error.problem)
        return None
    return found


def _kind_of(task: Task) -> str:
    """Return what tasks of the same operators have in common: the name without its digest."""
    return task.name.rpartition("_")[0]


def _winner(found: Sequence[Measured]) -> int | None:
    """Return the place of the fastest, which beats the default (place 0) in most rounds.

    None where neither the default nor another has run.
    """
    ran = {k: np.asarray(m.seconds) for k, m in enumerate(found) if m.seconds}
    if not ran:
        return None
    if 0 not in ran:
        return min(ran, key=lambda k: float(np.median(ran[k])))
    ratios = {k: float(np.median(s / ran[0])) for k, s in ran.items()}
    best = min(ratios, key=lambda k: ratios[k])
    return best if ratios[best] <= _GAIN else 0
