# SPDX-License-Identifier: Apache-2.0
"""Which task is tried next: the one whose trials promise most for the time of the whole model.

The gradient of Zheng et al., Ansor (OSDI 2020), section 6: what the last trials of a task gained,
and what it may gain at best, each per trial and times how often the model calls it. So a budget of
a trial or two per task goes to those that take long, and what hardly counts is not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

_FLOOR = 0.5
"""No kernel is expected to become faster than this share of its time."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """How a promise is made: over how many trials a gain is looked at, and its weight against what
    may be gained at best."""

    window: int = 16
    backward: float = 0.3


@dataclass(slots=True)
class Progress:
    """The best time of a task after each of its trials, `uses` calls of it in a run.

    `expected` are the seconds that its first trial is expected to take; infinite where nobody
    knows, and it goes first. `is_done` tasks have nothing left to try.
    """

    uses: float
    best: list[float] = field(default_factory=list)
    queued: int = 0
    is_done: bool = False
    expected: float = inf
    gradient: Gradient = field(default_factory=Gradient)

    def add(self, seconds: float) -> None:
        """Take note of a trial; infinity for one that failed."""
        self.best.append(min(seconds, self.best[-1] if self.best else inf))

    @property
    def promise(self) -> float:
        """The seconds of a run that the next trial is expected to save."""
        trials = len(self.best) + self.queued
        if not self.best:  # what follows the first trial waits for it
            return 0.0 if self.queued else self.uses * (1 - _FLOOR) * self.expected
        now = self.best[-1]
        if now == inf:
            return 1.0 / trials  # nothing runs yet: goes before what does
        window, backward = self.gradient.window, self.gradient.backward
        past = self.best[max(0, len(self.best) - 1 - window)]
        gained = (past - now) / window if past < inf else now / window
        reachable = (1 - _FLOOR) * now / trials
        return self.uses * (backward * gained + (1 - backward) * reachable)


def next_task(tasks: Sequence[Progress], *, in_turn: bool = False) -> int | None:
    """Return the place of the task to try next; None where all are done.

    `in_turn` takes the one with the fewest trials in place of the most promising.
    """
    open_ = [k for k, t in enumerate(tasks) if not t.is_done]
    if in_turn:
        return min(open_, key=lambda k: len(tasks[k].best) + tasks[k].queued, default=None)
    return max(open_, key=lambda k: tasks[k].promise, default=None)
