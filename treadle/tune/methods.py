# SPDX-License-Identifier: Apache-2.0
"""Tuning the methods of a model's calls, before its kernels: these are what the methods make.

Methods are tried call by call, and raced against what the estimates choose. How far weights may
grow is distributed as for the estimates (`optimize/methods/growth.py`), by measured times. What
wins is tried in the model, one call after the other, and stays where the model gains by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treadle.build.compile import Fused
from treadle.build.compiler_digest import compiler_digest
from treadle.build.executable import Executable
from treadle.build.method_records import MethodRecord
from treadle.build.records import Record, Records
from treadle.graph.nodes import topological
from treadle.optimize.methods.growth import deal, weight_bytes
from treadle.optimize.methods.method import Offer
from treadle.settings import get as settings
from treadle.te.knobs import DEFAULTS
from treadle.tune.executor import Executor
from treadle.tune.method_task import KIND, MethodSpace, MethodTask, method_tasks
from treadle.tune.options import TuneOptions
from treadle.tune.record_store import RecordStore
from treadle.tune.search import Grid, Search
from treadle.tune.state import TaskState
from treadle.tune.tuner import OnChange, Tuner

_GAIN = 0.97
"""Another method has to take at most this share of the time: it may cost its neighbours more."""
_FINALISTS, _ROUNDS = 2, 15

Compiled = Callable[[Sequence[MethodRecord]], Executable]
"""Gives the model with some methods decided."""
Share = Callable[[Executable, Executable], float]
"""Runs two compilations of the model alternately; returns the share of time the second takes."""


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What became of the methods: the tuner's state, what is decided now, what the model undid.

    `decided` are the decisions of this run and of those before it; of `changed` calls it is another
    method than the estimates'. `search_seconds` were spent on trying methods.
    """

    tuner: Tuner
    decided: Sequence[MethodRecord]
    search_seconds: float
    changed: Sequence[str] = ()
    reverted: Sequence[str] = ()

    def as_estimated(self) -> list[MethodRecord]:
        """Return decisions that give the changed calls the methods of the estimates."""
        tasks = [_task(s) for s in self.tuner.states if s.task.name in self.changed]
        made = {r.call: r for r in self.decided}
        return [replace(made[t.call], method=t.default, seconds=(), at="") for t in tasks]


def left_of(options: TuneOptions, result: MethodResult) -> TuneOptions:
    """Return the options of tuning kernels with what tuning methods has left of the budget."""
    trials, minutes = options.trials, options.minutes
    return replace(
        options,
        trials=None if trials is None else max(0, trials - result.tuner.trials),
        minutes=None if minutes is None else max(0.0, minutes - result.search_seconds / 60),
    )


def standing(records: Records, options: TuneOptions) -> list[MethodRecord]:
    """Return the decisions on methods that hold: of users, and of tuners that measured as this one.

    What another version of the compiler has decided by measurements is measured again.
    """
    compiler = (compiler_digest() or "")[:16]
    measured = _without_cold(options.measure.text())
    return [
        record
        for record in records.method_records()
        if not record.is_of_tuner
        or (record.compiler == compiler and _without_cold(record.options) == measured)
    ]


def _without_cold(text: str) -> str:
    """Return how something was measured but for the weights, of which the model decides."""
    return text.replace(" cold-weights", "")


def tasks_of_methods(
    fused: Fused,
    decided: Sequence[MethodRecord],
    compiling: Mapping[str, Any],
    options: TuneOptions,
) -> list[MethodTask]:
    """Return the tasks of a model's calls; those that users have decided are left out."""
    of_users = {r.call for r in decided if not r.is_of_tuner and r.target == str(fused.target)}
    calls = [call for call in fused.method_calls if call.text not in of_users]
    taken = {name: compiling[name] for name in ("winograd", "opt_level") if name in compiling}
    return method_tasks(calls, fused.target, taken, is_cold=options.measure.cold_weights)


@dataclass(slots=True)
class _Store:
    """The records of methods as a tuner sees records: the call is the kernel.

    Trials of calls that are `decided` count whatever the layouts around them were: what was decided
    may have changed those.
    """

    store: RecordStore
    tasks: Mapping[str, MethodTask]
    known: Sequence[MethodRecord]
    decided: Set[str]

    def close(self) -> None:
        """Do nothing: the store is another's."""

    def read_new(self) -> list[Record]:
        """Return the trials that were there, once."""
        known, self.known = self.known, ()
        return [record for trial in known if (record := self._record(trial)) is not None]

    def _record(self, trial: MethodRecord) -> Record | None:
        task = self.tasks.get(trial.call)
        if task is None or trial.target != str(task.target):
            return None
        if trial.layouts != task.layouts and trial.call not in self.decided:
            return None
        return Record(
            trial.call,
            trial.target,
            task.choice_of(trial.method),
            trial.seconds,
            trial.error,
            space=KIND,
            point=trial.method,
            compiler=trial.compiler,
            options=trial.options,
        )

    def append(self, record: Record | MethodRecord) -> None:
        """Write a trial as one of a method."""
        if isinstance(record, Record):
            record = method_record(self.tasks[record.kernel], record)
        self.store.append(record)


def method_record(task: MethodTask, record: Record) -> MethodRecord:
    """Return what a record of a task's kernel says as one of a method."""
    return MethodRecord(
        task.call,
        record.target,
        task.method_of(record.choice),
        seconds=record.seconds,
        error=record.error,
        is_chosen=record.is_chosen,
        compiler=record.compiler,
        options=record.options,
        layouts=task.layouts,
    )


def method_tuner(
    tasks: Sequence[MethodTask],
    store: RecordStore,
    records: Records,
    decided: Sequence[MethodRecord],
    options: TuneOptions,
    executor: Executor | None = None,
) -> Tuner:
    """Return a tuner of methods; tasks that are decided have nothing left to try.

    `executor` is where methods are built and measured (default: here).
    """
    trials = [t for task in tasks for t in records.method_trials(task.call, task.target)]
    by_call = {record.call: record for record in decided}
    known = _Store(store, {task.call: task for task in tasks}, trials, by_call.keys())
    tuner = Tuner(
        tasks,
        known,
        replace(options, trials=_half(options.trials), minutes=_half(options.minutes)),
        spaces=lambda task: [MethodSpace(task)] if isinstance(task, MethodTask) else [],
        searches=lambda _task, space: Search(space, np.random.default_rng(0), Grid()),
        executor=executor,
    )
    for state in tuner.states:
        if (record := by_call.get(state.task.name)) is not None:
            state.progress.is_done = True
            choice = _task(state).choice_of(record.method)
            state.decided = Record(record.call, record.target, choice, record.seconds)
    return tuner


@dataclass(slots=True)
class _Watch:
    """Passes on that a method has been measured."""

    tuner: Tuner
    on_change: OnChange | None

    def measuring(self, count: int) -> None:
        """Do nothing."""

    def measured(self, record: Record) -> None:
        """Tell of it."""
        if self.on_change is not None:
            self.on_change(self.tuner)

    def learning(self) -> None:
        """Do nothing."""


def try_methods(tuner: Tuner, on_change: OnChange | None) -> None:
    """Try all methods of one call after the other, as long as the budget has room for all of one's.

    Raises: UsageError where a record cannot be written.
    """
    watch, options = _Watch(tuner, on_change), tuner.options
    with tuner.workers() as workers:
        for state in tuner.states:
            left = len(_task(state).methods) - len(state.tried)
            spent = options.trials is not None and tuner.trials + left > options.trials
            if state.progress.is_done or left <= 0 or spent:
                continue
            if options.minutes is not None and tuner.elapsed >= 60 * options.minutes:
                break
            tuner.round(state.number, left, workers, watch)
            state.progress.is_done = True
    if on_change is not None:
        on_change(tuner)  # where all stands in the records, nothing was measured that told of it


def _half(budget: Any) -> Any:
    """Return at most how much of a budget of trials or minutes methods take."""
    return None if budget is None else budget // 2 if isinstance(budget, int) else budget / 2


def _task(state: TaskState) -> MethodTask:
    assert isinstance(state.task, MethodTask)
    return state.task


# ---- decisions -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Raced:
    """What the methods of a call took when run alternately, seconds by name."""

    task: MethodTask
    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def time(self, method: str) -> float:
        """Return the time of a method; of another than the default it follows from the ratio."""
        first = np.asarray(self.seconds[self.task.default])
        ratio = float(np.median(np.asarray(self.seconds[method]) / first))
        return float(np.median(first)) * ratio


def raced(tuner: Tuner) -> list[Raced]:
    """Time the fastest methods of the calls that are not decided, and the defaults, alternately."""
    found: list[Raced] = []
    with tuner.workers() as workers:
        for state in tuner.states:
            if state.decided is not None or state.default is None or not _is_tried(state):
                continue
            task = _task(state)
            methods = [task.default, *_finalists(state)]
            rows = workers.race(state.number, [task.choice_of(m) for m in methods], _ROUNDS)
            ran = {m: row.seconds for m, row in zip(methods, rows, strict=True) if row.seconds}
            if task.default in ran:
                found.append(Raced(task, ran))
    return found


def _is_tried(state: TaskState) -> bool:
    """True when every method has been tried: else the next run goes on."""
    return all(_task(state).choice_of(m) in state.tried for m in _task(state).methods)


def _finalists(state: TaskState) -> list[str]:
    """Return the fastest methods but the default, and the fastest that enlarges no weights."""
    task = _task(state)
    limit = state.default or 0.0
    ran = sorted((r.time, task.method_of(r.choice)) for r in state.trials if r.choice != DEFAULTS)
    others = [method for seconds, method in ran if seconds < limit]
    small = [m for m in others if task.growth[m] <= 0]
    return list(dict.fromkeys([*others[:_FINALISTS], *small[:1]]))


def winners(found: Sequence[Raced], held: int, share: float) -> dict[str, str]:
    """Return the method of each call that takes the least time with weights that may grow so far.

    The default stays where no other is faster by so much that neighbours may take a little longer.
    """
    offers = {
        one.task.call: [
            Offer(one.task.uses * one.time(m), one.task.uses * one.task.growth[m])
            for m in one.seconds
        ]
        for one in found
    }
    granted = deal(offers, held, share).by_call
    chosen: dict[str, str] = {}
    for one in found:
        task, limit = one.task, _GAIN * one.time(one.task.default)
        fit = [
            m
            for m in one.seconds
            if task.uses * task.growth[m] <= max(0, granted.get(task.call, 0))
            and one.time(m) <= limit
        ]
        chosen[task.call] = min(fit, key=one.time, default=task.default)
    return chosen


def decide(
    tuner: Tuner,
    store: RecordStore,
    fused: Fused,
    decided: Sequence[MethodRecord],
    growth: float | None,
    compiled: Compiled,
    share: Share | None,
) -> MethodResult:
    """Race the methods, try what wins in the model, and write down what is decided.

    `growth` is the part of themselves by which weights may grow (None: as the settings say).
    Without `share` the model is not run, and what is faster alone is taken.
    """
    spent = tuner.elapsed
    found = raced(tuner)
    held = weight_bytes(topological([fused.module.main.body]))
    part = settings().weight_growth if growth is None else growth
    chosen = winners(found, held, part)
    changed = {one.task.call: one for one in found if chosen[one.task.call] != one.task.default}
    kept = _kept(changed, chosen, decided, compiled, share)
    made = []
    for one in found:
        method = chosen[one.task.call] if one.task.call in kept else one.task.default
        made.append(_decision(one, method, tuner))
        store.append(made[-1])
    for state in tuner.states:
        for record in made:
            if record.call == state.task.name:
                choice = _task(state).choice_of(record.method)
                state.decided = Record(record.call, record.target, choice, record.seconds)
    everything = {(r.call, r.target): r for r in (*decided, *made)}
    others = [s.task.name for s in tuner.states if s.decided and s.decided.choice != DEFAULTS]
    reverted = sorted(changed.keys() - kept)
    return MethodResult(tuner, list(everything.values()), spent, others, reverted)


def _kept(
    changed: Mapping[str, Raced],
    chosen: Mapping[str, str],
    decided: Sequence[MethodRecord],
    compiled: Compiled,
    share: Share | None,
) -> set[str]:
    """Return the calls whose new method pays in the model too, tried from the largest gain on."""
    if share is None:
        return set(changed)

    def gain(call: str) -> float:
        one = changed[call]
        return one.task.uses * (one.time(one.task.default) - one.time(chosen[call]))

    kept: set[str] = set()
    if not changed:
        return kept
    here = list(decided)
    before = compiled(here)
    for call in sorted(changed, key=gain, reverse=True):
        task = changed[call].task
        more = [*here, MethodRecord(call, str(task.target), chosen[call])]
        after = compiled(more)
        if share(before, after) < 1.0:
            kept.add(call)
            here, before = more, after
    return kept


def _decision(one: Raced, method: str, tuner: Tuner) -> MethodRecord:
    record = Record(
        one.task.call,
        str(one.task.target),
        one.task.choice_of(method),
        seconds=one.seconds[method],
        is_chosen=True,
        compiler=(compiler_digest() or "")[:16],
        options=tuner.options.measure.text(),
    )
    return method_record(one.task, record)
