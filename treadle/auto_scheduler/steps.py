# SPDX-License-Identifier: Apache-2.0
"""Ansor's transform steps and the steps of Treadle's schedules: how they differ, and the way out.

Both are lists of calls of schedule primitives. Ansor names a stage by its place among all stages at
that moment and a loop by its place in the stage; Treadle by numbers that never change. So both are
found out by applying the steps to a schedule. Ansor's order of the first stages is that of TVM
v0.8's ComputeDAG: an operation comes when all that it reads has come, of those that may come the
one that was met last on the way from the outputs.

Steps that only say how loops run and that Ansor has no code for (`prefetch`, `prefetch_panel`,
`peel`, `round_up`) become pragmas, which leave the result as it is wherever they are not
understood. The way back is in `step_reader`.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence

from treadle.errors import ScheduleError
from treadle.expr.nodes import int_value
from treadle.te.operations import Operation
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.steps import Plain, Step
from treadle.tune.foreign_records import NoMeaning

CODES = ("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF")
"""Annotate, fuse, pragma, reorder, split, split as another step did (all its levels, or one),
align storage, compute at, inline, compute at root, cache read, cache write, rfactor."""

ANNOTATIONS = {"unroll": 1, "vectorize": 2, "parallel": 3}
OWN = "treadle_"
"""What the pragmas of Treadle's own primitives begin with."""
PREFETCHES = ("prefetch", "prefetch_panel")
HINTS = (*PREFETCHES, "peel", "round_up")
"""Primitives that become pragmas."""

Row = list[object]


def ansor_order(operations: Sequence[Operation], outputs: Sequence[Operation]) -> list[int]:
    """Return the places in `operations` in the order in which Ansor numbers stages at first."""
    place = {id(op): k for k, op in enumerate(operations)}
    met: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    stack = [place[id(op)] for op in outputs]
    while stack:
        k = stack.pop()
        if k in met:
            continue
        met[k] = len(met)
        inputs = [place[id(t.op)] for t in operations[k].input_tensors]
        missing[k] = len(inputs)
        for i in inputs:
            readers.setdefault(i, []).append(k)
            stack.append(i)
    ready = [(-met[k], k) for k, count in missing.items() if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, k = heapq.heappop(ready)
        order.append(k)
        for reader in readers.get(k, ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (-met[reader], reader))
    return order


class Replay:
    """A schedule, and its stages in Ansor's order."""

    def __init__(self, schedule: Schedule, outputs: Sequence[Operation]) -> None:
        self.schedule = schedule.fresh()
        operations = [s.op for s in self.schedule.stages]
        order = ansor_order(operations, outputs)
        self.stages: list[Stage] = [self.schedule.stages[k] for k in order]

    def apply(self, step: Step) -> None:
        """Apply a step of Treadle's, and take note of a stage that it makes."""
        before = set(map(id, self.schedule.stages))
        stage = self.schedule.numbered(step.stage)
        self.schedule.apply(step)
        for made in self.schedule.stages:
            if id(made) not in before:
                place = self.place(stage) if stage is not None else 0
                self.stages.insert(place + (step.primitive == "cache_read"), made)

    def place(self, stage: Stage | None) -> int:
        """Return Ansor's number of a stage."""
        return next(k for k, s in enumerate(self.stages) if s is stage)


def ansor_steps(
    schedule: Schedule, outputs: Sequence[Operation], steps: Sequence[Step]
) -> list[Row]:
    """Return steps of Treadle's as rows of Ansor's, for a record.

    `outputs` are the operations whose tensors the kernel takes, in the order of its arguments. A
    reorder that changes nothing is left out, as are the names of fused loops.

    Raises: NoMeaning where Ansor has no code for a primitive; ScheduleError where a step does not
        fit the schedule.
    """
    replay = Replay(schedule, outputs)
    rows: list[Row] = []
    for step in steps:
        row = _row(replay, step)
        replay.apply(step)
        if row[0] != "RE" or not _is_identity(row[2]):
            rows.append(row)
    return rows


def _is_identity(order: object) -> bool:
    return isinstance(order, list) and order == list(range(len(order)))


def _row(replay: Replay, step: Step) -> Row:
    stage = replay.schedule.numbered(step.stage)
    if stage is None:
        raise ScheduleError(f"there is no stage {step.stage}")
    at = replay.place(stage)
    args = step.args

    def loop(index: Plain) -> int:
        return _leaf(stage, index)

    name = step.primitive
    if name == "split":
        return _split_row(stage, at, args)
    if name in ANNOTATIONS:
        return ["AN", at, loop(args[0]), ANNOTATIONS[name]]
    if name in ("fuse", "reorder"):
        return _loops_row(stage, at, name, args[0])
    if name == "compute_at":
        place = args[0]
        assert isinstance(place, tuple)
        target = replay.schedule.numbered(place[0])
        assert target is not None
        return ["CA", at, replay.place(target), _leaf(target, place[1])]
    if name in ("compute_inline", "compute_root"):
        return ["CI" if name == "compute_inline" else "CR", at]
    if name in ("cache_read", "cache_write") and args[0] == 0:
        readers = args[2] if name == "cache_read" else ()
        places = [replay.place(replay.schedule.numbered(r)) for r in readers]  # type: ignore[union-attr]  # stages
        return ["CHR", at, args[1], places] if name == "cache_read" else ["CHW", at, args[1]]
    if name == "rfactor" and args[0] == 0:
        return ["RF", at, loop(args[1]), args[2] if len(args) > 2 else 0]
    if name == "storage_align":
        return ["SA", at, loop(args[0]), args[1], args[2] if len(args) > 2 else 0]
    if name == "pragma":
        value = args[2] if len(args) > 2 else True
        return ["PR", at, loop(args[0]), f"{args[1]}${int(value)}"]  # type: ignore[arg-type]
    if name in HINTS:
        return _hint_row(replay, stage, at, step)
    raise NoMeaning(f"Ansor has no step for {name}")


def _leaf(stage: Stage, index: Plain) -> int:
    """Return the place of a loop, given its number among all axes of the stage."""
    axis = stage.all_iter_vars[index]  # type: ignore[index]  # an axis
    return next(k for k, leaf in enumerate(stage.leaf_iter_vars) if leaf is axis)


def _split_row(stage: Stage, at: int, args: Sequence[Plain]) -> Row:
    defaults: Sequence[Plain] = (None, None, None, "cut")
    axis, factor, parts, tail = [*args, *defaults[len(args) :]]
    number = factor if parts is None else parts
    if tail != "cut" or not isinstance(number, int):
        raise NoMeaning("Ansor has no split with such a tail or factor")
    extent = int_value(stage.extents()[stage.all_iter_vars[axis]])  # type: ignore[index]
    return ["SP", at, _leaf(stage, axis), extent or 0, [number], int(parts is None)]


def _loops_row(stage: Stage, at: int, name: str, axes: Plain) -> Row:
    places = [_leaf(stage, a) for a in axes]  # type: ignore[union-attr]  # axes
    if name == "fuse":
        return ["FU", at, places]
    order = list(range(len(stage.leaf_iter_vars)))
    for place, loop in zip(sorted(places), places, strict=True):
        order[place] = loop
    return ["RE", at, order]


def _hint_row(replay: Replay, stage: Stage, at: int, step: Step) -> Row:
    """Return a primitive that Ansor does not have as a pragma: `treadle_name$number$…`.

    What the fetching of panels is given after the loop is JSON.
    """
    numbers = list(step.args)
    axis = numbers.pop(1 if step.primitive in PREFETCHES else 0)
    rest: list[str] = []
    if step.primitive == "prefetch_panel":
        numbers, rest = numbers[:1], [json.dumps(numbers[1:], separators=(",", ":"))]
    if step.primitive in PREFETCHES:
        tensor = numbers.pop(0)
        if step.primitive == "prefetch" and len(numbers) > 1:
            raise NoMeaning("Ansor has no step for a prefetch that a loop inside spreads")
        assert isinstance(tensor, tuple)
        source, output = tensor
        numbers = [replay.place(replay.schedule.numbered(source)), output, *numbers]
    if not all(type(n) is int for n in numbers):
        raise NoMeaning(f"Ansor has no step for {step.primitive} of a symbolic size")
    text = "$".join([OWN + step.primitive, *map(str, numbers), *rest])
    return ["PR", at, _leaf(stage, axis), text]
