# SPDX-License-Identifier: Apache-2.0
"""What a tuning run is told: what to try, for how long, and how to measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from treadle.errors import UsageError
from treadle.tune.runner import MeasureOptions

_LEAST = {"trials": 0, "minutes": 0, "seed": 0, "early_stopping": 1, "builders": 1}


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
    that was handed over in addition to the options has another name.

    Raises: UsageError where a number is out of range.
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

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"{name} of tuning is {value}", hint=f"it is at least {least:g}")
