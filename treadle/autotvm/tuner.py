# SPDX-License-Identifier: Apache-2.0
"""Tuners of one task, by AutoTVM's names, on Treadle's builders, runner and searches."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from treadle.autotvm.callback import Callback, ProgressBar, format_si_prefix
from treadle.autotvm.entity import ConfigEntity
from treadle.autotvm.measure import (
    LocalBuilder,
    MeasureInput,
    MeasureOption,
    MeasureResult,
)
from treadle.autotvm.task import Task
from treadle.build.compiler_digest import compiler_digest
from treadle.build.method_records import MethodRecord
from treadle.build.records import Record
from treadle.errors import ConfigError, TreadleError, UsageError
from treadle.target.host import why_not_measured
from treadle.te.choice import Script
from treadle.te.knobs import DEFAULTS
from treadle.tune.cost_model import AnalyticModel, Scorer, make_model
from treadle.tune.failures import MeasureErrorNo, error_number
from treadle.tune.features import KINDS, loop_features
from treadle.tune.genetic import Genetic
from treadle.tune.guided import Annealing
from treadle.tune.options import TuneOptions
from treadle.tune.planned import LoopRanker, Planned
from treadle.tune.runner import MeasureOptions
from treadle.tune.search import Grid, RandomStrategy, Search, Strategy
from treadle.tune.space import Floats, SearchSpace
from treadle.tune.state import TaskState
from treadle.tune.task import Task as EngineTask
from treadle.tune.tuner import Tuner as Engine

logger = logging.getLogger("autotvm")

_OPTIONS_ELSEWHERE = "another task"
_MOST_SUGGESTED = 16
_DIGEST = re.compile(r"_[0-9a-f]{12}(_\d+)?$")

Measurement = tuple[MeasureInput, MeasureResult]


class Tuner:
    """Tries configurations of a task; the classes below say which.

    `best_config` is the fastest so far, `best_flops` its operations per second, `best_measure_pair`
    what was measured of it, `best_iter` the number of its trial, counted from 0.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: Measurement | None = None
        self.best_iter = 0
        self._history: list[Record] = []

    def _strategy(self, task: EngineTask, space: SearchSpace[Any]) -> Strategy[Any]:
        """Return what says which configuration is tried next."""
        raise NotImplementedError

    def tune(
        self,
        n_trial: int,
        measure_option: MeasureOption,
        early_stopping: int | None = None,
        callbacks: Iterable[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure up to `n_trial` configurations that were not measured before.

        It ends earlier where nothing is left to try, after `early_stopping` trials without a better
        one, and where the first eight all fail in the same way. `callbacks` are called after each.
        The result of every candidate is compared with the reference before its time counts.

        Raises: UsageError where an option is out of range, or the task is not for this machine;
            what a callback raises.
        """
        format_si_prefix(0, si_prefix)
        if not isinstance(measure_option, MeasureOption):
            raise UsageError(
                "measure_option of tune is what autotvm.measure_option(builder=, runner=) returns"
            )
        if n_trial < 1:
            raise UsageError(f"n_trial is {n_trial}", hint="it is at least 1")
        is_here = measure_option.runner.executor is None
        if is_here and (unfit := why_not_measured(self.task.target)) is not None:
            raise UsageError(
                f"kernels for {self.task.target} cannot be measured on this machine: "
                f"{unfit.problem}",
                hint="measure on a device, runner=autotvm.RPCRunner(...), or tune there",
            )
        called = tuple(callbacks)
        try:
            self._run(n_trial, measure_option, early_stopping, called)
        finally:
            for callback in called:
                if isinstance(callback, ProgressBar):
                    callback.finish()

    def _run(
        self,
        trials: int,
        how: MeasureOption,
        early_stopping: int | None,
        callbacks: Sequence[Callback],
    ) -> None:
        measure = how.runner.options(cold_weights=self.task.cold_weights)
        options = TuneOptions(
            trials=trials + len(self._own(measure)),
            early_stopping=early_stopping or None,
            builders=how.builder.n_parallel,
            build_timeout=how.builder.timeout,
            measure=measure,
        )
        store = _Trials(self._resumed(measure), lambda r, s: self._tried(r, s, callbacks))
        task = _linked(self.task.engine, how.builder)
        where = how.runner.executor
        engine = Engine([task], store, options, searches=self._search, executor=where)
        engine.run()
        for note in engine.notes:
            logger.warning(note)
        _log_failures(engine.states[0], self.task)

    def _search(self, task: EngineTask, space: SearchSpace[Any]) -> Search[Any]:
        return Search(space, np.random.default_rng(0), self._strategy(task, space))

    def _tried(self, record: Record, seconds: float, callbacks: Sequence[Callback]) -> None:
        """Take note of a trial, and tell of it."""
        self._history.append(record)
        pair = self._measurement(record, seconds)
        self._consider(pair)
        inp, result = pair
        logger.debug(
            "No: %d\tGFLOPS: %.2f/%.2f\tresult: %s\t%s",
            len(self._history), self._flops(pair) / 1e9, self.best_flops / 1e9, result, inp.config,
        )  # fmt: skip
        for callback in callbacks:
            callback(self, [inp], [result])

    def _measurement(self, record: Record, seconds: float) -> Measurement:
        assert not isinstance(record.choice, Script)
        space = self.task.config_space
        config = space.entity(space.checked(record.choice))
        costs: tuple[Any, ...] = record.seconds or (record.error,)
        number = error_number(record.error)
        result = MeasureResult(costs, int(number), seconds, time.time())
        return MeasureInput(self.task.target, self.task, config), result

    def _consider(self, pair: Measurement) -> None:
        if pair[1].error_no != MeasureErrorNo.NO_ERROR:
            return
        best = self.best_measure_pair
        if best is None or fmean(pair[1].costs) < fmean(best[1].costs):
            self.best_flops, self.best_measure_pair = self._flops(pair), pair
            self.best_config = pair[0].config
            self.best_iter = len(self._history) - 1

    def _flops(self, pair: Measurement) -> float:
        result = pair[1]
        return self.task.flop / fmean(result.costs) if result.error_no == 0 else 0.0

    # -- what is known ---------------------------------------------------------------------------

    def load_history(self, data_set: Iterable[Measurement], min_seed_records: int = 500) -> None:
        """Take measurements of earlier runs, such as `record.load_from_file` gives.

        Those of this task and target count as its own: they are learned from, may be the best, and
        are not measured again. The fastest of other tasks of the same kind are tried early where
        this one has them. Histories of fewer than `min_seed_records` are taken, too.
        """
        others: dict[tuple[str, str], Measurement] = {}
        for pair in data_set:
            inp, result = pair
            if inp.target == self.task.target and inp.task.key == self.task.key:
                self._take(pair)
            elif result.error_no == 0 and _kind(inp.task.name) == _kind(self.task.name):
                known = others.get(inp.task.key)
                if known is None or fmean(result.costs) < fmean(known[1].costs):
                    others[inp.task.key] = pair
        for pair in sorted(others.values(), key=lambda p: fmean(p[1].costs))[:_MOST_SUGGESTED]:
            self._take(pair, _OPTIONS_ELSEWHERE)

    def _take(self, pair: Measurement, options: str = "") -> None:
        inp, result = pair
        try:
            config = self.task.config_space.config(inp.config)
        except ConfigError:
            return  # the template has changed, or does not offer it for these arguments
        seconds = () if result.error_no else tuple(map(float, result.costs))
        is_default = config == self.task.config_space.checked(DEFAULTS)
        self._history.append(
            Record(
                self.task.kernel_name, str(self.task.target), DEFAULTS if is_default else config,
                seconds,
                "" if seconds else str(result.costs[0]), space="template",
                point=config.to_json(), options=options,
            )
        )  # fmt: skip
        if not options:
            named = MeasureInput(self.task.target, self.task, self.task.config_space.entity(config))
            self._consider((named, result))

    def _own(self, measure: MeasureOptions) -> list[Record]:
        return [r for r in self._resumed(measure) if r.options != _OPTIONS_ELSEWHERE]

    def _resumed(self, measure: MeasureOptions) -> list[Record]:
        """Return the history as the engine reads it: this task's own trials count as this run's."""
        compiler = (compiler_digest() or "")[:16]
        name = self.task.engine.name
        return [
            r
            if r.options == _OPTIONS_ELSEWHERE
            else replace(r, kernel=name, compiler=compiler, options=measure.text())
            for r in self._history
        ]


def _kind(name: str) -> str:
    """Return what kernels of the same operators have in common; of a template its name."""
    return _DIGEST.sub("", name)


class _Trials:
    """The records of a tuning in memory; `on_append(record, seconds)` is told of each new one.

    The seconds are those since the one before, or since the start.
    """

    def __init__(self, known: Sequence[Record], on_append: Callable[[Record, float], None]) -> None:
        self._known = list(known)
        self._on_append = on_append
        self._last = time.monotonic()

    def close(self) -> None:
        """Do nothing."""

    def read_new(self) -> list[Record]:
        """Return what is known, once."""
        known, self._known = self._known, []
        return known

    def append(self, record: Record | MethodRecord) -> None:
        """Tell of a trial."""
        now = time.monotonic()
        if isinstance(record, Record):
            self._on_append(record, now - self._last)
        self._last = time.monotonic()


def _linked(task: EngineTask, builder: LocalBuilder) -> EngineTask:
    return task if builder.link is None else replace(task, link=builder.link)


def _log_failures(state: TaskState, task: Task) -> None:
    """Say why candidates have failed where none has run, each kind of failure once."""
    if state.best is not None:
        return
    for kind, count in state.failures.items():
        logger.warning("%s: no candidate has run; %d x %s", task.name, count, kind)


class XGBTuner(Tuner):
    """Simulated annealing, guided by gradient-boosted trees that learn from what was measured.

    A plan has up to `plan_size` candidates. `feature_type` "knob" lets the trees learn from the
    values that were chosen; with "itervar" and "curve" a second model, which learns from the loop
    nests, ranks what was planned. `loss_type` is "rank", "rank-binary" (the same) or "reg".
    `num_threads` train (default: one, so that builders keep their cores). Of
    `diversity_filter_ratio` times a plan, the promising that are unlike each other are taken. After
    `log_interval` trials each, the log says where the search stands.

    Raises: UsageError where an option is out of range.
    """

    def __init__(
        self,
        task: Task,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "rank",
        num_threads: int | None = None,
        optimizer: str = "sa",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
    ) -> None:
        super().__init__(task)
        if feature_type not in (*KINDS, "knob"):
            raise UsageError(
                f"there is no feature_type {feature_type!r}",
                hint=f"there is {', '.join((*KINDS, 'knob'))}",
            )
        if optimizer != "sa":
            raise UsageError(f"there is no optimizer {optimizer!r}", hint='there is "sa"')
        if plan_size < 1 or log_interval < 1 or (num_threads is not None and num_threads < 1):
            raise UsageError("plan_size, log_interval and num_threads are at least 1")
        if diversity_filter_ratio is not None and diversity_filter_ratio < 1:
            raise UsageError("diversity_filter_ratio is at least 1")
        make_model(loss_type)
        self._plan_size = plan_size
        self._feature_type = feature_type
        self._loss_type = loss_type
        self._threads = num_threads or 1
        self._diversity = diversity_filter_ratio
        self._log_interval = log_interval

    def _strategy(self, task: EngineTask, space: SearchSpace[Any]) -> Strategy[Any]:
        model, note = make_model(self._loss_type, self._threads)
        if note is not None:
            logger.warning(note)
        annealing: Annealing[Any] = Annealing(Scorer(space, model))
        ranker = self._ranker(task, space) if not isinstance(model, AnalyticModel) else None
        return Planned(annealing, self._plan_size, ranker=ranker, diversity=self._diversity)

    def _ranker(self, task: EngineTask, space: SearchSpace[Any]) -> LoopRanker[Any] | None:
        kind = self._feature_type
        if kind == "knob":
            return None

        def describe(candidate: Any) -> Floats | None:  # of whatever space it is
            try:
                choice = space.choice(candidate)
                return None if choice is None else loop_features(task.candidate(choice).loops, kind)
            except TreadleError:
                return None

        return LoopRanker(describe, make_model(self._loss_type, self._threads)[0])

    def _tried(self, record: Record, seconds: float, callbacks: Sequence[Callback]) -> None:
        super()._tried(record, seconds, callbacks)
        count = len(self._history)
        if count % self._log_interval == 0:
            logger.info("%d trials, best %.2f GFLOPS", count, self.best_flops / 1e9)


class GATuner(Tuner):
    """Genetic search: children of the `pop_size` latest and the `elite_num` fastest.

    `mutation_prob` is the chance of a choice to change.

    Raises: UsageError where an option is out of range.
    """

    def __init__(
        self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1
    ) -> None:
        super().__init__(task)
        if pop_size < 1 or elite_num < 0 or elite_num > pop_size or not 0 <= mutation_prob <= 1:
            raise UsageError(
                "GATuner takes a pop_size of at least 1, no more than that as elite_num, and a "
                "mutation_prob from 0 to 1"
            )
        self._population = pop_size
        self._elite = elite_num
        self._mutation = mutation_prob

    def _strategy(self, task: EngineTask, space: SearchSpace[Any]) -> Strategy[Any]:
        choices = len(self.task.config_space.space_map)
        mutated = 1 - (1 - self._mutation) ** choices
        return Genetic(self._population, mutated, elite=self._elite)


class RandomTuner(Tuner):
    """Tries configurations drawn at random.

    Raises: UsageError where `range_idx` is given: all of the space is drawn from.
    """

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task)
        _check_range(range_idx)

    def _strategy(self, task: EngineTask, space: SearchSpace[Any]) -> Strategy[Any]:
        return RandomStrategy()


class GridSearchTuner(Tuner):
    """Tries configurations in the order of the space.

    Raises: UsageError where `range_idx` is given: all of the space is gone through.
    """

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task)
        _check_range(range_idx)

    def _strategy(self, task: EngineTask, space: SearchSpace[Any]) -> Strategy[Any]:
        return Grid()


def _check_range(range_idx: tuple[int, int] | None) -> None:
    if range_idx is not None:
        raise UsageError(
            "a tuner of a part of the space (range_idx) is not there",
            hint="limit what the template defines, for example with max_factor or filter",
        )
