# SPDX-License-Identifier: Apache-2.0
"""Where a task stands after each of its trials."""

from __future__ import annotations

import pytest

from tests.tune.tasks import product_task
from treadle.build.records import Record
from treadle.te.knobs import Config
from treadle.tune.allocate import Progress
from treadle.tune.state import TaskState

pytestmark = pytest.mark.tiny


def test_a_task_goes_on_where_a_trial_on_its_way_was_better() -> None:
    task = product_task()
    state = TaskState(0, task, Progress(1))
    times = iter((2.0, 3.0, 1.0))

    def trial(rows: int) -> Record:
        config = Config.of({"rows": rows})
        return Record(task.name, str(task.target), config, seconds=(next(times),))

    state.add(trial(1))
    state.progress.is_done = True  # patience has ended
    state.add(trial(2))
    assert state.progress.is_done
    state.add(trial(4))
    assert not state.progress.is_done
    assert (state.seconds, len(state.trials)) == (1.0, 3)
