# SPDX-License-Identifier: Apache-2.0
"""Runs of the tuner in Ansor's rounds: search, measure, train, of one task after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Any

from treadle.auto_scheduler.cost_model import XGBModel
from treadle.auto_scheduler.log import Log, RecordToFile
from treadle.auto_scheduler.measure import TuningOptions
from treadle.auto_scheduler.outcome import MeasureResult, error_no_of
from treadle.auto_scheduler.screen import Screen
from treadle.auto_scheduler.search_policy import SearchPolicy, SketchPolicy, reads_of
from treadle.auto_scheduler.state import MeasureInput, State
from treadle.build.records import Record
from treadle.errors import UsageError
from treadle.target.host import why_not_measured
from treadle.tune.executor import Workers
from treadle.tune.options import TuneOptions
from treadle.tune.search import Search
from treadle.tune.space import SearchSpace
from treadle.tune.state import TaskState
from treadle.tune.task import Task
from treadle.tune.tuner import Tuner

if TYPE_CHECKING:
    from treadle.auto_scheduler.search_task import SearchTask


class Rounds:
    """The tuner of some tasks, each with its policy, a round at a time.

    Those of models begin with their default schedule, so that nothing that is slower is ever the
    best.

    Raises: UsageError where the target of a task is not this machine, and this machine measures.
    """

    def __init__(
        self, tasks: Sequence[SearchTask], policies: Sequence[SearchPolicy], options: TuningOptions
    ) -> None:
        if options.runner.executor is None:
            _check_here(tasks)
        self.tasks = tasks
        self.options = options
        self.screen = Screen(options.verbose)
        self.trials = 0
        self._policies = {id(t.task): p for t, p in zip(tasks, policies, strict=True)}
        written = [c for c in options.measure_callbacks if isinstance(c, RecordToFile)]
        self._others = [c for c in options.measure_callbacks if not isinstance(c, RecordToFile)]
        reads = dict.fromkeys(name for p in policies for name in reads_of(p))
        self.tuner = Tuner(
            [t.task for t in tasks],
            Log(list(reads), written),
            _tune_options(tasks, options),
            spaces=self._spaces,
            executor=options.runner.executor,
            searches=self._search,
        )
        self._say_what_is_known(policies)

    def _spaces(self, task: Task) -> Sequence[SearchSpace[Any]]:
        found = self._policies[id(task)].space(self.screen)
        return [] if found is None else [found]

    def _search(self, task: Task, space: SearchSpace[Any]) -> Search[Any]:
        return self._policies[id(task)].search(space, self.screen)  # type: ignore[arg-type]  # its own

    def _say_what_is_known(self, policies: Sequence[SearchPolicy]) -> None:
        models = dict.fromkeys(getattr(p, "cost_model", None) for p in policies)
        for note in (n for m in models if isinstance(m, XGBModel) for n in m.notes):
            self.screen.say(note)
        for state, task, policy in zip(self.states, self.tasks, policies, strict=True):
            for name in reads_of(policy):
                count = state.resumed + len(state.elsewhere)
                found = f"Loaded {count}" if count else "No"
                self.screen.say(
                    f"SearchPolicy: {found} measurement records "
                    f"{'from' if count else 'found in'} {name} for {task.workload_key}"
                )

    @property
    def states(self) -> list[TaskState]:
        """Where each task stands."""
        return self.tuner.states

    def running(self) -> AbstractContextManager[Workers]:
        """Return what builds and measures, as a context."""
        return self.tuner.workers()

    def tune(self, number: int, count: int, workers: Workers) -> int:
        """Do a round of a task: search, measure up to `count` candidates, train.

        Returns how many were measured: fewer than `count` where nothing else is left to try.

        Raises: UsageError where a record cannot be written.
        """
        watch = _Watch(self, number, 2 * self.options.builder.count)
        self.screen.searching()
        try:
            found = self.tuner.round(number, count, workers, watch)
        except KeyboardInterrupt:
            self.screen.say(f"\nStopped after {self.tuner.trials} trials. {self._how_to_go_on}")
            raise
        self.screen.elapsed("training", watch.since)
        self.trials += len(found)
        watch.tell(found)
        state = self.states[number]
        state.progress.is_done = state.progress.is_done or len(found) < count
        if state.failed:
            self.screen.say(
                f"Task {number} is given up, as its first candidates fail alike: {state.failed}"
            )
        return len(found)

    @property
    def _how_to_go_on(self) -> str:
        names = [c.filename for c in self.options.measure_callbacks if isinstance(c, RecordToFile)]
        if not names:
            return "They are kept nowhere: there is no RecordToFile among the measure_callbacks."
        return f"The same script goes on from {' and '.join(names)}."

    def told(
        self, number: int, records: Sequence[Record], results: Sequence[MeasureResult]
    ) -> None:
        """Hand what was measured to the callbacks of the user."""
        task = self.tasks[number]
        inputs = [MeasureInput(task, State(task, r.choice, r.point)) for r in records]
        for callback in self._others:
            callback.callback(self._policies[id(task.task)], inputs, results)


class _Watch:
    """Shows a round on the screen as it goes on."""

    def __init__(self, rounds: Rounds, number: int, together: int) -> None:
        self._rounds = rounds
        self._screen = rounds.screen
        self._number = number
        self._together = together
        self._left = 0
        self._results: list[MeasureResult] = []
        self.since = self._mark = time.monotonic()

    def measuring(self, count: int) -> None:
        """Begin to print what becomes of candidates."""
        self._left = count
        self._screen.sampled(count, 0, time.monotonic() - self._mark)
        self._screen.measuring(count, self._together)
        self.since = self._mark = time.monotonic()

    def measured(self, record: Record) -> None:
        """Print what became of one."""
        self._left -= 1
        now = time.monotonic()
        self._results.append(MeasureResult.of(record, now - self._mark, time.time()))
        self._mark = now
        self._screen.measured(error_no_of(record.error), is_last=not self._left)

    def learning(self) -> None:
        """Print that the models are fitted."""
        self._screen.say()
        self._show_trials()
        self._screen.elapsed("measurement", self.since)
        self._screen.title("Train cost model")
        self.since = time.monotonic()

    def _show_trials(self) -> None:
        state = self._rounds.states[self._number]
        task, flops = self._rounds.tasks[self._number], state.task.flops
        recent = state.trials[len(state.trials) - len(self._results) :]
        best = min((r.time for r in state.trials[: -len(self._results) or None]), default=inf)
        for record, result in zip(recent, self._results, strict=True):
            best = min(best, record.time)
            candidate = State(task, record.choice, record.point)
            self._screen.trial(_gflops(flops, record.time), _gflops(flops, best), result, candidate)

    def tell(self, records: Sequence[Record]) -> None:
        """Hand what was measured to the callbacks of the user."""
        self._rounds.told(self._number, records, self._results)


def _gflops(flops: int, seconds: float) -> float:
    return flops / seconds / 1e9 if seconds > 0 else 0.0


def _check_here(tasks: Sequence[SearchTask]) -> None:
    """Raise UsageError where kernels for the target of a task do not run on this machine."""
    for task in tasks:
        unfit = why_not_measured(task.target)
        if unfit is not None:
            raise UsageError(
                f"kernels for {task.target} cannot be measured on this machine: {unfit.problem}",
                hint="measure on a device, runner=auto_scheduler.RPCRunner(...), or tune there",
            )


def _tune_options(tasks: Sequence[SearchTask], options: TuningOptions) -> TuneOptions:
    return TuneOptions(
        space="sketch",
        builders=options.builder.count,
        build_timeout=options.builder.timeout,
        tries_default=all(t.is_of_model for t in tasks),
        measure=options.runner.options(cold_weights=any(t.cold_weights for t in tasks)),
    )


def tune_task(
    task: SearchTask, options: TuningOptions, search_policy: SearchPolicy | None = None
) -> None:
    """Tune one task until the trials of the options are spent or nothing is left to try.

    Raises: UsageError where there is no trial to spend, the policy is of another task, or the
        target is not this machine.
    """
    policy = search_policy or SketchPolicy(task, XGBModel(), verbose=options.verbose)
    if policy.task is not task:
        raise UsageError(
            f"the search policy is of {policy.task.desc:.60}, the task is {task.desc:.60}",
            hint="make it with auto_scheduler.SketchPolicy(task, ...)",
        )
    if options.num_measure_trials < 1:
        raise UsageError(
            "num_measure_trials is 0: nothing would be measured", hint="give a number from 1"
        )
    if policy.init_search_callbacks:
        Screen(options.verbose).title("Call init-search callbacks")
    rounds = Rounds([task], [policy], options)
    state = rounds.states[0]
    last_gain, best = 0, state.seconds
    with rounds.running() as workers:
        while rounds.trials < options.num_measure_trials and not state.progress.is_done:
            left = options.num_measure_trials - rounds.trials
            rounds.tune(0, min(options.num_measures_per_round, left), workers)
            if state.seconds < best:
                best, last_gain = state.seconds, rounds.trials
            if options.is_stale(rounds.trials - last_gain):
                say_stale(rounds.screen, options)
                break
    if state.progress.is_done and not state.failed:
        rounds.screen.say("It seems all candidates in the search space have been measured.")
    rounds.screen.title("Done")


def say_stale(screen: Screen, options: TuningOptions) -> None:
    """Print that tuning ends as nothing becomes better."""
    screen.say(
        f"Stop early since no performance improvement in the last {options.early_stopping} "
        "measurement trials."
    )
