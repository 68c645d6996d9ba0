# SPDX-License-Identifier: Apache-2.0
"""Tuning several tasks together: each round goes to the one that promises most for all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path

from treadle.auto_scheduler.log import Name
from treadle.auto_scheduler.measure import TuningOptions
from treadle.auto_scheduler.screen import table_text, title_text
from treadle.auto_scheduler.search_policy import SearchPolicy, make_policies
from treadle.auto_scheduler.search_task import SearchTask
from treadle.auto_scheduler.tuning import Rounds, say_stale
from treadle.errors import UsageError
from treadle.tune.allocate import Gradient, next_task
from treadle.tune.executor import Workers

Objective = Callable[[Sequence[float]], float]

_DIFFERENCE = 1e-4
"""The part of a latency by which an objective is differentiated."""


class TaskSchedulerCallback:
    """Is told before and after each round; the base of callbacks of users."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """A round of a task begins."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """A round of a task has ended."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints a table of all tasks before each round."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Print it."""
        scheduler = task_scheduler
        if scheduler.tune_option is None or scheduler.tune_option.verbose < 1:
            return
        flops = [t.compute_dag.flop_ct for t in scheduler.tasks]
        costs = scheduler.best_costs
        speeds = [f / c if c > 0 else 0.0 for f, c in zip(flops, costs, strict=True)]
        footer = (_total(scheduler, "-"), scheduler.ct, scheduler.seconds, task_id)
        print(title_text("Task Scheduler"))
        print(table_text(costs, speeds, scheduler.task_trials, footer), flush=True)


class LogEstimatedLatency(TaskSchedulerCallback):
    """Appends the estimated latency of all tasks to a file after each round, columns with tabs.

    What the file held before is dropped.

    Raises: UsageError where the file cannot be written.
    """

    def __init__(self, log_file: str | os.PathLike[str]) -> None:
        self.log_file = Path(log_file)
        try:
            self.log_file.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from None

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Append a line."""
        scheduler = task_scheduler
        line = (
            f"ElapsedTime(s)\t{scheduler.seconds:.0f}\tEstimatedLatency(ms)\t"
            f"{_total(scheduler, 'N/A')}\tTrials\t{scheduler.ct}\n"
        )
        try:
            with open(self.log_file, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self.log_file} cannot be written: {error.strerror}",
            hint="name a file in a folder that you may write to, or give callbacks=[...]",
        )


def _total(scheduler: TaskScheduler, unknown: str) -> str:
    """Return the latency of all tasks in milliseconds, as text."""
    return f"{1e3 * scheduler.cur_score:.3f}" if max(scheduler.best_costs) < inf else unknown


class TaskScheduler:
    """Tunes tasks together, so that the sum of their latencies, each times its weight, falls.

    `strategy` "gradient" gives each round to the task that promises most (Zheng et al., Ansor,
    OSDI 2020, section 6), "round-robin" to each in turn. `objective_func(latencies)` in seconds
    stands in place of the weighted sum. `alpha` weighs what the last `backward_window_size` rounds
    of a task have gained compared with what it may gain; `beta` and `gamma` of v0.8 have no effect:
    the best of similar tasks is tried early instead.

    `load_log_file` names a log to go on from; nothing that stands there, or in the logs of
    `RecordToFile`, is measured again. `load_model_file` names a model that `XGBModel.save` wrote.
    `callbacks` are told of each round (default: `PrintTableInfo`, and `LogEstimatedLatency` to
    total_latency.tsv).

    While tuning and after it, `best_costs` are the least seconds of each task (inf: none), `ct` the
    trials of this run, `cur_score` is the objective.

    Raises: UsageError where there are no tasks, or an argument is out of range.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Objective | None = None,
        strategy: str = "gradient",
        load_model_file: str | None = None,
        load_log_file: Name | None = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        if not tasks:
            raise UsageError(
                "there are no tasks to tune", hint="extract_tasks gives those of a model"
            )
        if strategy not in ("gradient", "round-robin"):
            raise UsageError(
                f"strategy is {strategy!r:.40}", hint="it is 'gradient' or 'round-robin'"
            )
        if not 0 <= alpha <= 1 or backward_window_size < 1:
            raise UsageError(
                f"alpha is {alpha}, backward_window_size {backward_window_size}",
                hint="alpha is from 0 to 1, the window a number of rounds from 1",
            )
        self.tasks = list(tasks)
        self.task_weights = _weights(tasks, task_weights)
        self.objective_func = objective_func or self._weighted
        self.strategy = strategy
        self.load_model_file = load_model_file
        self.load_log_file = load_log_file
        self.alpha = alpha
        self.backward_window_size = backward_window_size
        if callbacks is None:
            callbacks = [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")]
        self.callbacks = list(callbacks)
        self.tune_option: TuningOptions | None = None
        self.num_measures_per_round = 0
        self.tic = time.time()
        self._rounds: Rounds | None = None

    # -- where it stands

    @property
    def best_costs(self) -> list[float]:
        """The least seconds of each task; inf before there is one."""
        rounds = self._rounds
        return [inf] * len(self.tasks) if rounds is None else [s.seconds for s in rounds.states]

    @property
    def task_trials(self) -> list[int]:
        """The trials of each task, those of earlier runs included."""
        rounds = self._rounds
        return [0] * len(self.tasks) if rounds is None else [len(s.trials) for s in rounds.states]

    @property
    def task_cts(self) -> list[int]:
        """How many rounds those are."""
        return [-(-n // max(self.num_measures_per_round, 1)) for n in self.task_trials]

    @property
    def ct(self) -> int:
        """The trials of this run."""
        return 0 if self._rounds is None else self._rounds.trials

    @property
    def cur_score(self) -> float:
        """The objective of the best latencies, in seconds."""
        return self.objective_func(self.best_costs)

    @property
    def seconds(self) -> float:
        """The seconds since tuning began."""
        return time.time() - self.tic

    def _weighted(self, costs: Sequence[float]) -> float:
        return sum(c * w for c, w in zip(costs, self.task_weights, strict=True))

    # -- tuning

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: str | Sequence[SearchPolicy] = "default",
        search_policy_params: Mapping[str, float] | None = None,
        adapative_training: bool = False,
    ) -> None:
        """Tune until the trials are spent, nothing is left to try, or nothing becomes better.

        `search_policy` is "default" (which is "sketch.xgb"), "sketch.random", "empty", or a policy
        for each task. `adapative_training` (sic) of v0.8 has no effect: training takes
        milliseconds.

        Raises: UsageError where there are fewer trials than tasks, the target is not this machine,
            or a record cannot be written.
        """
        self.tune_option = tune_option
        self.num_measures_per_round = min(
            tune_option.num_measures_per_round, tune_option.num_measure_trials // len(self.tasks)
        )
        if self.num_measures_per_round < 1:
            raise UsageError(
                f"num_measure_trials is {tune_option.num_measure_trials}, too small for "
                f"{len(self.tasks)} tasks",
                hint="give one for each task at least",
            )
        policies = make_policies(
            search_policy, search_policy_params, self.tasks, tune_option.verbose,
            self.load_model_file, self.load_log_file,
        )  # fmt: skip
        self.tic = time.time()
        self._rounds = rounds = Rounds(self.tasks, policies, tune_option)
        self._weigh(rounds)
        with rounds.running() as workers:
            for number, state in enumerate(rounds.states):
                if not state.trials and self._has_budget(rounds):
                    self._tune_task(rounds, number, workers)
            self._tune_best(rounds, workers)

    def _tune_best(self, rounds: Rounds, workers: Workers) -> None:
        """Give the rounds that are left to the tasks that promise most."""
        assert self.tune_option is not None
        best, last_gain = self.cur_score, rounds.trials
        while self._has_budget(rounds):
            self._differentiate(rounds)
            progress = [s.progress for s in rounds.states]
            number = next_task(progress, in_turn=self.strategy == "round-robin")
            if number is None:
                rounds.screen.say("It seems all candidates in the search space have been measured.")
                return
            self._tune_task(rounds, number, workers)
            if self.cur_score < best:
                best, last_gain = self.cur_score, rounds.trials
            elif max(self.best_costs) < inf and self.tune_option.is_stale(
                rounds.trials - last_gain
            ):
                say_stale(rounds.screen, self.tune_option)
                return

    def _has_budget(self, rounds: Rounds) -> bool:
        assert self.tune_option is not None
        return rounds.trials < self.tune_option.num_measure_trials

    def _tune_task(self, rounds: Rounds, number: int, workers: Workers) -> None:
        """Do a round of a task."""
        assert self.tune_option is not None
        for callback in self.callbacks:
            callback.pre_tune(self, number)
        left = self.tune_option.num_measure_trials - rounds.trials
        rounds.tune(number, min(self.num_measures_per_round, left), workers)
        for callback in self.callbacks:
            callback.post_tune(self, number)

    def _weigh(self, rounds: Rounds) -> None:
        """Tell the tuner what a second of each task is worth, and how to look at gains."""
        window = self.backward_window_size * self.num_measures_per_round
        for state, weight in zip(rounds.states, self.task_weights, strict=True):
            state.progress.gradient = Gradient(window, self.alpha)
            state.progress.uses = weight

    def _differentiate(self, rounds: Rounds) -> None:
        """Weigh the tasks by the derivative of an objective of the user's."""
        costs = self.best_costs
        if self.objective_func == self._weighted or max(costs) == inf:
            return
        score = self.objective_func(costs)
        for number, state in enumerate(rounds.states):
            less = list(costs)
            less[number] *= 1 - _DIFFERENCE
            gain = score - self.objective_func(less)
            state.progress.uses = gain / (costs[number] * _DIFFERENCE)


def _weights(tasks: Sequence[SearchTask], given: Sequence[float] | None) -> list[float]:
    if given is None:
        return [1.0] * len(tasks)
    if len(given) != len(tasks):
        raise UsageError(
            f"there are {len(given)} weights for {len(tasks)} tasks",
            hint="extract_tasks gives both, in the same order",
        )
    return [float(w) for w in given]
