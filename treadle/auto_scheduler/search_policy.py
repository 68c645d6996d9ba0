# SPDX-License-Identifier: Apache-2.0
"""How candidates of a task are found, in Ansor's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from treadle.auto_scheduler.cost_model import RandomModel, XGBModel
from treadle.auto_scheduler.custom_rule import PreloadCustomSketchRule
from treadle.auto_scheduler.log import Name
from treadle.auto_scheduler.screen import Screen
from treadle.errors import ScheduleError, UsageError
from treadle.tune.cost_model import Scorer
from treadle.tune.guided import Evolutionary, Generation
from treadle.tune.search import RandomStrategy, Search
from treadle.tune.sketch import SketchPoint, SketchSpace

if TYPE_CHECKING:
    from treadle.auto_scheduler.search_task import SearchTask

PARAMETERS: dict[str, float] = {
    "eps_greedy": 0.05,
    "retry_search_one_round_on_empty": 1,
    "sample_init_min_population": 50,
    "sample_init_use_measured_ratio": 0.2,
    "evolutionary_search_population": 2048,
    "evolutionary_search_num_iters": 4,
    "evolutionary_search_mutation_prob": 0.85,
    "cpu_multi_level_tiling_structure": 0,
    "gpu_multi_level_tiling_structure": 0,
    "disable_change_compute_location": 0,
}
"""The names that v0.8's `params` may have. Here `eps_greedy`, `evolutionary_search_population`,
`…_num_iters` and `…_mutation_prob` have an effect; the others change nothing."""


class PreloadMeasuredStates:
    """Lets a search go on from a log: what stands there is known and is not measured again."""

    def __init__(self, filename: Name) -> None:
        self.filename = filename


SearchCallback = PreloadMeasuredStates | PreloadCustomSketchRule


class SearchPolicy(Protocol):
    """What finds candidates of a task."""

    task: SearchTask
    init_search_callbacks: Sequence[SearchCallback]

    def space(self, screen: Screen) -> SketchSpace | None:
        """Return the space of the task; None where its target or sizes are none for sketches."""

    def search(self, space: SketchSpace, screen: Screen) -> Search[SketchPoint]:
        """Return a search through the space, which prints on `screen` how it goes."""


class _Policy:
    """What policies share: a task and what is done before the search."""

    def __init__(
        self,
        task: SearchTask,
        verbose: int = 1,
        init_search_callbacks: Sequence[SearchCallback] | None = None,
    ) -> None:
        self.task = task
        self.search_task = task
        self.verbose = verbose
        self.init_search_callbacks: Sequence[SearchCallback] = list(init_search_callbacks or ())
        given: Sequence[object] = self.init_search_callbacks
        strange = [c for c in given if not isinstance(c, SearchCallback)]
        if strange:
            raise UsageError(
                f"{strange[0]!r:.60} is not done before a search",
                hint="give PreloadMeasuredStates(log) or PreloadCustomSketchRule(...)",
            )

    def space(self, screen: Screen) -> SketchSpace | None:
        """Return the space of the task; None where its target or sizes are none for sketches."""
        task = self.task
        rules = [
            c.rule(self) for c in self.init_search_callbacks
            if isinstance(c, PreloadCustomSketchRule)
        ]  # fmt: skip
        schedule = task.compute_dag.schedule
        try:
            found = SketchSpace(schedule, task.hardware_params.applied(task.target), rules)
        except ScheduleError as error:
            screen.say(f"There are no sketches of {task.desc}: {error.problem}")
            return None
        screen.sketches(len(found.sketches))
        return found


class SketchPolicy(_Policy):
    """Evolution over sketches, guided by a cost model; after Zheng et al., Ansor, OSDI 2020.

    `params` are named in `PARAMETERS`. The same `seed` and the same times give the same search.

    Raises: UsageError where `params` has a name that is none, or a value out of range.
    """

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: XGBModel | RandomModel | None = None,
        params: Mapping[str, float] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[SearchCallback] | None = None,
        schedule_rules: Sequence[PreloadCustomSketchRule] | None = None,
    ) -> None:
        super().__init__(task, verbose, [*(init_search_callbacks or ()), *(schedule_rules or ())])
        self.cost_model = program_cost_model or RandomModel()
        self.params = _parameters(params or {})
        self.seed = 0 if seed is None else seed

    def search(self, space: SketchSpace, screen: Screen) -> Search[SketchPoint]:
        """Return a search through the space, which prints on `screen` how it goes."""
        size = int(self.params["evolutionary_search_population"])

        def told(found: Generation) -> None:
            if found.number == 0:
                screen.sampled(found.size, size - found.size, found.seconds)
            screen.generation(found)

        strategy = Evolutionary(
            Scorer(space, self.cost_model.model(self.task.name, space)),
            population=size,
            generations=int(self.params["evolutionary_search_num_iters"]),
            chance=self.params["eps_greedy"],
            crossed=1.0 - self.params["evolutionary_search_mutation_prob"],
            on_generation=told,
        )
        return Search(space, np.random.default_rng(self.seed), strategy)


class EmptyPolicy(_Policy):
    """Draws candidates at random: what other policies are held against."""

    def search(self, space: SketchSpace, screen: Screen) -> Search[SketchPoint]:
        """Return a search through the space."""
        return Search(space, np.random.default_rng(0), RandomStrategy())


def _parameters(given: Mapping[str, float]) -> dict[str, float]:
    short = {name.replace("evolutionary_search_", ""): name for name in PARAMETERS}
    found = dict(PARAMETERS) | {"evolutionary_search_population": 384}
    for name, value in given.items():
        known = name if name in PARAMETERS else short.get(name)
        if known is None:
            names = ", ".join(PARAMETERS)
            raise UsageError(f"{name!r:.60} is no parameter of a search", hint=f"there is {names}")
        if known in _RANGES:
            _check_range(known, value)
            found[known] = float(value)
    return found


_RANGES = {
    "eps_greedy": (0.0, 1.0),
    "evolutionary_search_population": (2, 100_000),
    "evolutionary_search_num_iters": (0, 1000),
    "evolutionary_search_mutation_prob": (0.0, 1.0),
}


def _check_range(name: str, value: object) -> None:
    low, high = _RANGES[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]  # is_number
        raise UsageError(f"{name} is {value!r:.40}", hint=f"it is from {low} to {high}")


def make_policies(
    search_policy: str | Sequence[SearchPolicy],
    params: Mapping[str, float] | None,
    tasks: Sequence[SearchTask],
    verbose: int,
    load_model_file: str | None,
    load_log_file: Name | None,
) -> list[SearchPolicy]:
    """Return a policy for each task: those given, or new ones of a name, which share a model.

    Raises: UsageError where there is no such policy, or not one for each task.
    """
    if not isinstance(search_policy, str):
        return _given(search_policy, tasks)
    name = "sketch.xgb" if search_policy == "default" else search_policy
    callbacks = [PreloadMeasuredStates(load_log_file)] if load_log_file is not None else []
    if name == "empty":
        return [EmptyPolicy(t, verbose, callbacks) for t in tasks]
    if name not in ("sketch.xgb", "sketch.random"):
        raise UsageError(
            f"there is no search policy {search_policy!r:.40}",
            hint="there is default, sketch.xgb, sketch.random and empty",
        )
    model: XGBModel | RandomModel = RandomModel() if name == "sketch.random" else XGBModel()
    if isinstance(model, XGBModel) and load_model_file is not None:
        model.load(load_model_file)
    elif isinstance(model, XGBModel) and load_log_file is not None:
        model.update_from_file(load_log_file)
    return [
        SketchPolicy(t, model, params, verbose=verbose, init_search_callbacks=callbacks)
        for t in tasks
    ]


def _given(policies: Sequence[SearchPolicy], tasks: Sequence[SearchTask]) -> list[SearchPolicy]:
    if [p.task for p in policies] != list(tasks):
        raise UsageError(
            "the search policies are not those of the tasks, one for each in their order",
            hint="[auto_scheduler.SketchPolicy(task, model) for task in tasks]",
        )
    return list(policies)


def reads_of(policy: SearchPolicy) -> list[Name]:
    """Return the logs that a policy goes on from."""
    found = policy.init_search_callbacks
    return [c.filename for c in found if isinstance(c, PreloadMeasuredStates)]
