# SPDX-License-Identifier: Apache-2.0
"""The steps of a stage whose axes have digits: tiles, single places, digits written out, lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from treadle.expr.nodes import int_value
from treadle.ops.schedules.stages import compute_of
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.tune.sketch_plans import MOST_WRITTEN, Blocks, Choices, Place, numbered


@dataclass(slots=True)
class _Loops:
    """The loops of a stage, by what they are: three levels of tiles, then what is inside."""

    levels: tuple[list[IterVar], list[IterVar], list[IterVar]] = field(
        default_factory=lambda: ([], [], [])
    )
    inner: list[IterVar] = field(default_factory=list)
    chosen: list[IterVar] = field(default_factory=list)
    lanes: list[IterVar] = field(default_factory=list)

    def order(self) -> list[IterVar]:
        """Return all loops, outermost first."""
        tiles = [loop for level in self.levels for loop in level]
        return [*tiles, *self.inner, *self.chosen, *self.lanes]


def block_steps(
    schedule: Schedule,
    plan: Blocks,
    values: Choices,
    place: Place | None,
    sizes: Sequence[int],
    *,
    is_host: bool,
) -> list[Place]:
    """Schedule a stage by digits, of which `sizes` are computed; return the loops for others.

    before: for n: for a in range(30): ...
    after:  for n: for a.tile: for a // 6 in the tile: for a % 6 in unrolled: ...
    """
    stage = numbered(schedule, plan.stage)
    if place is not None:
        stage.compute_at(*place)
    loops = _divided(stage, plan, values, sizes)
    if not loops.levels[0]:
        loops.levels[0].append(_once(stage, loops))
    stage.reorder(*loops.order())
    _write_out(stage, plan, values, sizes, loops, is_whole=place is not None and not is_host)
    for loop in loops.lanes:
        stage.vectorize(loop)
    first = loops.levels[0][-1]
    if place is None and values.get(f"{plan.stage}.parallel", (1,))[0]:
        first = stage.fuse(*loops.levels[0], name="task")
        stage.parallel(first)
    second = loops.levels[1][-1] if loops.levels[1] else first
    third = loops.levels[2][-1] if loops.levels[2] else second
    return [(stage, first), (stage, second), (stage, third)]


def _divided(stage: Stage, plan: Blocks, values: Choices, sizes: Sequence[int]) -> _Loops:
    """Split every axis into its digits, and those into tiles."""
    loops = _Loops()
    for axis, loop in enumerate(compute_of(stage).axis):
        own = [k for k, d in enumerate(plan.digits) if d.axis == axis]
        rest = loop
        for k in own:
            digit = plan.digits[k]
            if k != own[-1]:
                if sizes[k] == 1:
                    continue
                outer, rest = stage.split(rest, factor=digit.unit)
            else:
                outer = rest
            if digit.role == "tile":
                factors = values.get(plan.tile_key(k), (1, 1))
                _tile(stage, outer, sizes[k], factors, loops)
            else:
                kinds = {"inner": loops.inner, "chosen": loops.chosen, "lanes": loops.lanes}
                kinds[digit.role].append(outer)
    return loops


def _tile(stage: Stage, loop: IterVar, size: int, factors: tuple[int, ...], loops: _Loops) -> None:
    """Split a loop into tiles of two levels; what is inside of them stays one."""
    for level, step in enumerate((prod(factors), factors[-1], 1)):
        if step == 1 or size == 1:
            loops.levels[level].append(loop)
            return
        if step < size:
            outer, loop = stage.split(loop, factor=step)
            loops.levels[level].append(outer)
            size = step


def _once(stage: Stage, loops: _Loops) -> IterVar:
    """Return a loop of one iteration around all others."""
    extents = stage.extents()
    for own in (*loops.levels[1:], loops.inner, loops.chosen, loops.lanes):
        if own:
            outer, own[0] = stage.split(own[0], factor=int_value(extents[own[0]]) or 1)
            return outer
    raise AssertionError("a stage by digits has at least two loops")


def _write_out(
    stage: Stage,
    plan: Blocks,
    values: Choices,
    sizes: Sequence[int],
    loops: _Loops,
    *,
    is_whole: bool,
) -> None:
    """Unroll the digits that choose, those inside of tiles, and all else if there is little."""
    out = values.get(f"{plan.stage}.out", (2,))[0]
    written = list(loops.chosen)
    if out >= 1:
        written += loops.inner
    count = prod(n for n, d in zip(sizes, plan.digits, strict=True) if d.role != "lanes")
    if out == 2 and is_whole and count <= MOST_WRITTEN:
        written += [loop for level in loops.levels for loop in level]
    for loop in written:
        stage.unroll(loop)
