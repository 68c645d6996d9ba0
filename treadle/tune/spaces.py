# SPDX-License-Identifier: Apache-2.0
"""The spaces of a task by name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from treadle.errors import ScheduleError, UsageError
from treadle.tune.sketch import SketchSpace
from treadle.tune.space import SearchSpace
from treadle.tune.task import Task
from treadle.tune.template import TemplateSpace

KINDS = ("template", "sketch", "both")


def spaces_of(task: Task, kind: str) -> list[SearchSpace[Any]]:
    """Return the spaces of a task; those of a kind that has no choice for it are left out.

    Raises: UsageError where there is no such kind.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no space {kind!r}", hint=f"there is {', '.join(KINDS)}")
    found: list[SearchSpace[Any]] = []
    if kind != "sketch":
        found.append(TemplateSpace(task.kernel.space))
    if kind != "template":
        with suppress(ScheduleError):  # a target or a size that sketches are not made for
            found.append(SketchSpace.of_function(task.function, task.target))
    return found
