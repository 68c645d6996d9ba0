# SPDX-License-Identifier: Apache-2.0
"""Steps of a schedule as data: plain values that compare, hash and go through JSON unchanged.

A step is the call of one primitive: `Step(2, "split", (0, 16))` is `split(axis 0, factor=16)` of
stage 2. Stages are numbered in the order a schedule makes them, first those of the tensors from
producers to outputs; axes in the order their stage makes them, first those of the tensor, then the
reduction's, then what each split (outer, inner) and fuse gives. Neither number ever changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from treadle.errors import ScheduleError

Plain: TypeAlias = "int | float | str | bool | tuple[Plain, ...] | None"

VERSION = 1
"""Of the JSON form; it changes when an older reader would read steps wrongly."""
_DEEPEST = 6
"""How deeply the lists of an argument may nest."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a schedule primitive: the number of the stage, the name, the arguments.

    Arguments at the end that have their default are left out.
    """

    stage: int
    primitive: str
    args: tuple[Plain, ...] = ()

    def __str__(self) -> str:
        return f"stage {self.stage}: {self.primitive}({', '.join(map(repr, self.args))})"


def steps_to_json(steps: Iterable[Step]) -> str:
    """Return steps as JSON text: {"version": 1, "steps": [[stage, primitive, argument, ...]]}."""
    rows = [[s.stage, s.primitive, *s.args] for s in steps]
    return json.dumps({"version": VERSION, "steps": rows}, allow_nan=False)


def steps_from_json(text: str) -> tuple[Step, ...]:
    """Return the steps that `steps_to_json` has written.

    What they say is checked where they are replayed, on stages and axes that are there.

    Raises: ScheduleError where the text is no JSON of this form and version.
    """
    data = _parsed(text)
    if not isinstance(data, dict) or set(data) != {"version", "steps"}:
        raise ScheduleError('steps in JSON are an object {"version": ..., "steps": [...]}')
    if type(data["version"]) is not int or data["version"] != VERSION:
        raise ScheduleError(
            f"the steps are of version {data['version']!r:.40}, this Treadle reads {VERSION}",
            hint="record the schedule again with this version",
        )
    if not isinstance(data["steps"], list):
        raise ScheduleError('"steps" is not a list')
    return tuple(_step(row, k) for k, row in enumerate(data["steps"]))


def argument_from_json(text: str) -> Plain:
    """Read an argument of a step: lists become tuples.

    Raises: ScheduleError where the text is no JSON, or nothing that a step takes.
    """
    return _plain(_parsed(text), 0, _DEEPEST)


def _parsed(text: str) -> object:
    def refuse(word: str) -> object:
        raise ValueError(f"{word} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, TypeError, RecursionError) as e:
        problem = "it is nested too deeply" if isinstance(e, RecursionError) else str(e)
        raise ScheduleError(f"the steps are not JSON: {problem}") from None


def _step(row: object, k: int) -> Step:
    if not isinstance(row, list) or len(row) < 2:
        raise ScheduleError(f"step {k} is not a list [stage, primitive, argument, ...]")
    stage, primitive, *args = row
    if type(stage) is not int:
        raise ScheduleError(f"step {k}: {stage!r:.40} is not the number of a stage")
    if not isinstance(primitive, str):
        raise ScheduleError(f"step {k}: {primitive!r:.40} is not the name of a primitive")
    return Step(stage, primitive, tuple(_plain(a, k, _DEEPEST) for a in args))


def _plain(value: object, k: int, depth: int) -> Plain:
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, list) and depth > 0:
        return tuple(_plain(v, k, depth - 1) for v in value)
    raise ScheduleError(f"step {k}: {value!r:.40} is not the argument of a step")
