# SPDX-License-Identifier: Apache-2.0
"""A candidate of a task: what its schedule is made by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.build.kernel import Kernel, Scheduled
from treadle.te.choice import Choice
from treadle.te.steps import Step

if TYPE_CHECKING:
    from treadle.auto_scheduler.search_task import SearchTask


class State:
    """A candidate of a task; `print` shows its schedule as Python that can be pasted and edited.

    `point` is what a space of sketches says of it, None where it is of none.
    """

    def __init__(self, task: SearchTask, choice: Choice, point: object = None) -> None:
        self.task = task
        self.choice = choice
        self.point = point

    def kernel(self) -> Kernel:
        """Return the kernel that it is; no code is made."""
        return Kernel(self.task.workload.work, self.task.target, self.choice)

    def scheduled(self) -> Scheduled:
        """Return its schedule and the arguments of the kernel.

        Raises: ConfigError where it does not fit the task.
        """
        return self.kernel().scheduled[0]

    @property
    def transform_steps(self) -> Sequence[Step]:
        """The steps of its schedule."""
        return tuple(self.scheduled().schedule.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and (self.task.name, self.choice) == (
            other.task.name,
            other.choice,
        )

    def __hash__(self) -> int:
        return hash((self.task.name, self.choice))

    def __str__(self) -> str:
        return self.scheduled().schedule.as_python()


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """A candidate that is measured, and the task that it is of."""

    task: SearchTask
    state: State
