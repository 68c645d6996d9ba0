# SPDX-License-Identifier: Apache-2.0
"""Which task is tried next."""

from __future__ import annotations

from math import inf

import pytest

from treadle.tune.allocate import Gradient, Progress, next_task

pytestmark = pytest.mark.tiny


def progress(uses: int, *best: float) -> Progress:
    made = Progress(uses)
    for seconds in best:
        made.add(seconds)
    return made


def test_every_task_has_its_first_trial_first() -> None:
    assert next_task([progress(9, 1.0), progress(1)]) == 1


def test_what_hardly_counts_is_not_tried_before_what_takes_long() -> None:
    untried = Progress(2, expected=1e-6)
    tried = progress(1, 1e-3, 1e-3, 1e-3)
    assert next_task([untried, tried]) == 1
    untried.expected = 1e-3
    assert next_task([untried, tried]) == 0
    untried.queued = 1  # its first trial is on its way
    assert next_task([untried, tried]) == 1


def test_a_task_that_takes_long_goes_before_one_that_does_not() -> None:
    assert next_task([progress(1, 1e-6), progress(1, 1e-3)]) == 1
    assert next_task([progress(8, 1e-3), progress(1, 1e-3)]) == 0


def test_a_task_that_gains_goes_before_one_that_stands_still() -> None:
    still = progress(1, *[1e-3] * 20)
    gaining = progress(1, *[2e-3 * 0.966**k for k in range(20)])
    assert still.best[-1] < gaining.best[-1] * 1.01
    assert next_task([still, gaining]) == 1


def test_what_fails_does_not_hide_what_runs() -> None:
    failing = progress(1, inf, inf)
    assert failing.best == [inf, inf]
    assert next_task([failing, progress(1, 1e-3)]) == 0
    failing.is_done = True
    assert next_task([failing, progress(1, 1e-3)]) == 1


def test_in_turn_all_have_as_many_trials() -> None:
    tasks = [progress(9, 1.0, 1.0), progress(1, 1.0), progress(1, 1.0, 1.0, 1.0)]
    assert next_task(tasks, in_turn=True) == 1
    tasks[1].queued = 2
    assert next_task(tasks, in_turn=True) == 0


def test_nothing_is_left_when_all_are_done() -> None:
    done = progress(1, 1.0)
    done.is_done = True
    assert next_task([done]) is None
    assert next_task([]) is None


def test_what_was_gained_counts_as_much_as_is_said() -> None:
    gaining = progress(1, *[2e-3 * 0.9**k for k in range(8)])
    still = progress(1, *[gaining.best[-1]] * 8)
    for backward, gains in ((0.9, True), (0.0, False)):
        for task in (gaining, still):
            task.gradient = Gradient(window=4, backward=backward)
        assert (gaining.promise > still.promise) is gains
