# SPDX-License-Identifier: Apache-2.0
"""Which of the best trials of a task, or its default, becomes the decision.

A trial is one figure on a machine that is never quite still: what only looked faster does not
become a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from treadle.build.records import Record
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS
from treadle.tune.executor import Workers
from treadle.tune.runner import Measured
from treadle.tune.state import TaskState

_GAIN = 0.99
"""A decision against the default takes at most this share of its time,"""
_OFTEN = 0.8
"""or less time than it in so many of the rounds: by chance alone once in 50 races of 15."""
_FINALISTS, _ROUNDS = 3, 15


def decided(state: TaskState, workers: Workers) -> tuple[Choice, tuple[float, ...]]:
    """Time the best of a task and its default alternately; return which to take, and its times.

    The times are in seconds; there are none where the default wins without a race.
    """
    choices = [DEFAULTS, *(r.choice for r in _finalists(state))]
    if len(choices) > 1:
        found = workers.race(state.number, choices, _ROUNDS)
        place = _winner(found)
        if place is not None:
            return choices[place], found[place].seconds
    return DEFAULTS, ()


def _finalists(state: TaskState) -> list[Record]:
    """Return the fastest trials that may beat the default."""
    limit = inf if state.default is None else state.default
    ran = sorted((r for r in state.trials if r.time < limit), key=lambda r: r.time)
    return ran[:_FINALISTS]


def _winner(found: Sequence[Measured]) -> int | None:
    """Return the place of the fastest, where it is faster than the default (place 0) for certain.

    None where neither the default nor another has run.
    """
    ran = {k: np.asarray(m.seconds) for k, m in enumerate(found) if m.seconds}
    if not ran:
        return None
    if 0 not in ran:
        return min(ran, key=lambda k: float(np.median(ran[k])))
    ratios = {k: float(np.median(s / ran[0])) for k, s in ran.items()}
    best = min(ratios, key=lambda k: ratios[k])
    often = float(np.mean(ran[best] < ran[0]))
    return best if ratios[best] <= _GAIN or often >= _OFTEN else 0
