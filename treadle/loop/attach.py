# SPDX-License-Identifier: Apache-2.0
"""Stages that are computed at loops: do their readers stand inside those loops?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.errors import ScheduleError
from treadle.expr.nodes import Expr
from treadle.loop.bodies import read_by
from treadle.te.loops import Attach
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


class Attached:
    """Which stages are computed at which loops."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._has_shared = any(s.scope == "shared" for s in schedule.stages)
        self._at = _by_loop((s, s.attach) for s in schedule.stages if s.attach.kind == "at")
        self._stored = _by_loop((s, s.attach.stored) for s in schedule.stages)

    def at(self, stage: Stage, axis: IterVar) -> list[Stage]:
        """Return the stages that are computed at a loop."""
        return self._at.get((id(stage), id(axis)), [])

    def stored(self, stage: Stage, axis: IterVar) -> list[Stage]:
        """Return the stages that are stored at a loop, and computed further in."""
        return self._stored.get((id(stage), id(axis)), [])

    def inside(self, stage: Stage, k: int) -> set[int]:
        """Return the ids of the stages that are computed inside leaf `k` of a stage."""
        found: set[int] = set()
        queue = [p for a in stage.leaf_iter_vars[k:] for p in self.at(stage, a)]
        while queue:
            producer = queue.pop()
            found.add(id(producer))
            queue += [p for a in producer.leaf_iter_vars for p in self.at(producer, a)]
        return found

    def is_shared_inside(self, stage: Stage, k: int = 0) -> bool:
        """True when threads wait for each other inside leaf `k` of a stage: all must be there."""
        if not self._has_shared:
            return False
        inside = self.inside(stage, k)
        return any(s.scope == "shared" for s in self.schedule.stages if id(s) in inside)


def _by_loop(
    places: Iterable[tuple[Stage, Attach | None]],
) -> dict[tuple[int, int], list[Stage]]:
    """Return the stages by the loop of their place, if they have one."""
    found: dict[tuple[int, int], list[Stage]] = {}
    for stage, at in places:
        if at is not None:
            found.setdefault((id(at.stage), id(at.axis)), []).append(stage)
    return found


def check_attached(schedule: Schedule, bodies: Mapping[int, tuple[Expr, ...]]) -> None:
    """Raise ScheduleError where a stage is computed at a loop that some reader is not inside.

    `bodies` are those of the stages that are computed, by stage id.
    """
    live = [s for s in schedule.stages if id(s) in bodies]
    attached = [s for s in live if s.attach.kind == "at"]
    reads = {id(s): {id(schedule[t]) for t in read_by(s, bodies)} for s in live if attached}
    for stage in attached:
        _check_place(stage, bodies)
        for reader in live:
            if id(stage) in reads[id(reader)]:
                _check_reader(stage, reader)
    for stage in attached:  # none of which is computed inside of itself
        if stage.attach.stored is not None:
            _check_stored(stage, stage.attach.stored)


def attaching_step(stage: Stage) -> str:
    """Return the step that said at which loop a stage is computed."""
    return _step(stage, "compute_at", stage.attach)


def _step(stage: Stage, primitive: str, at: Attach) -> str:
    assert at.stage is not None
    assert at.axis is not None
    return f"s[{stage.name}].{primitive}(s[{at.stage.name}], {at.axis.name})"


def _check_place(stage: Stage, bodies: Mapping[int, tuple[Expr, ...]]) -> None:
    parent, axis = stage.attach.stage, stage.attach.axis
    assert parent is not None
    assert axis is not None
    if parent.attach.kind == "inline":
        problem = f"{parent.name} is inlined and has no loops"
    elif id(parent) not in bodies:
        problem = f"{parent.name} is not computed: nothing reads it"
    elif not any(leaf is axis for leaf in parent.leaf_iter_vars):
        loops = ", ".join(a.name for a in parent.leaf_iter_vars) or "none"
        problem = f"{axis.name} is no loop of {parent.name} any more; its loops are {loops}"
    else:
        return
    raise ScheduleError(
        f"{stage.name} cannot be computed at {axis.name} of {parent.name}: {problem}",
        at=attaching_step(stage),
        hint="compute it at a loop of a stage that reads it, or at root",
    )


def _check_stored(stage: Stage, stored: Attach) -> None:
    """The loop must enclose the one where it is computed, by loops that run one after the other."""
    at = stage.attach
    between: list[tuple[Stage, IterVar]] = []
    while at.stage is not None and at.axis is not None:
        around = at.stage.leaf_iter_vars
        around = around[: [a is at.axis for a in around].index(True) + 1]
        if at.stage is stored.stage and any(a is stored.axis for a in around):
            k = [a is stored.axis for a in around].index(True)
            between += [(at.stage, a) for a in around[k + 1 :]]
            break
        between += [(at.stage, a) for a in around]
        at = at.stage.attach
    else:
        problem = "it is no loop around the one where the stage is computed"
        raise stored_error(stage, problem, "store it further out")
    for s, axis in between:
        note = s.notes.get(axis)
        if note is not None and (note.kind not in ("serial", "unrolled") or note.ranges):
            problem = f"the iterations of {axis.name} of {s.name}, in between, are {note.said()}"
            raise stored_error(stage, problem, "what they share is to be computed before them")
    if stage.rounded:
        axis = next(iter(stage.rounded))
        problem = f"its axis {axis.name} is rounded up, past the end of what is kept"
        raise stored_error(stage, problem, "store it where it is computed")


def stored_error(stage: Stage, problem: str, hint: str) -> ScheduleError:
    """Return the error for a stage that cannot be kept where its schedule says."""
    stored = stage.attach.stored
    assert stored is not None
    assert stored.stage is not None
    assert stored.axis is not None
    return ScheduleError(
        f"{stage.name} cannot be stored at {stored.axis.name} of {stored.stage.name}: {problem}",
        at=_step(stage, "store_at", stored),
        hint=hint,
    )


def _check_reader(stage: Stage, reader: Stage) -> None:
    """The reader must be the stage whose loop it is, or computed at that loop or further in."""
    parent, axis = stage.attach.stage, stage.attach.axis
    assert parent is not None
    assert axis is not None
    if reader is parent:
        return
    inner = parent.leaf_iter_vars[[a is axis for a in parent.leaf_iter_vars].index(True) :]
    seen: set[int] = set()
    at = reader.attach
    while at.kind == "at" and at.stage is not None and id(at.stage) not in seen:
        if at.stage is parent:
            if any(at.axis is a for a in inner):
                return
            break
        seen.add(id(at.stage))
        at = at.stage.attach
    raise ScheduleError(
        f"{stage.name} is computed inside loop {axis.name} of {parent.name}, but {reader.name}, "
        "which reads it, is not inside that loop",
        at=attaching_step(stage),
        hint="compute it at a loop that encloses all its readers, or at root",
    )
