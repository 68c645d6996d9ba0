# SPDX-License-Identifier: Apache-2.0
"""Tuning and the best schedule in one call."""

from __future__ import annotations

import tempfile
from pathlib import Path

from treadle.auto_scheduler.log import RecordToFile
from treadle.auto_scheduler.measure import TuningOptions
from treadle.auto_scheduler.search_policy import SearchPolicy
from treadle.auto_scheduler.search_task import SearchTask
from treadle.expr.nodes import Var
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule


def auto_schedule(
    task: SearchTask,
    search_policy: SearchPolicy | None = None,
    tuning_options: TuningOptions | None = None,
) -> tuple[Schedule, list[Tensor | Var]]:
    """Tune a task and return its best schedule, and the kernel's arguments.

    The best is that of the first `RecordToFile` among the callbacks of the options, earlier runs
    included; without one, that of this run.

    Raises: as `SearchTask.tune` and `SearchTask.apply_best`.

    >>> schedule, args = auto_scheduler.auto_schedule(task, tuning_options=TuningOptions(64))
    >>> kernel = treadle.build(schedule, args, task.target)
    """
    options = tuning_options or TuningOptions(num_measure_trials=64)
    logs = [c.filename for c in options.measure_callbacks if isinstance(c, RecordToFile)]
    if logs:
        task.tune(options, search_policy)
        return task.apply_best(logs[0])
    with tempfile.TemporaryDirectory(prefix="treadle-schedule-") as folder:
        log = str(Path(folder) / "log.jsonl")
        callback = RecordToFile(log)
        options.measure_callbacks.append(callback)
        try:
            task.tune(options, search_policy)
        finally:
            options.measure_callbacks.remove(callback)
        return task.apply_best(log)
