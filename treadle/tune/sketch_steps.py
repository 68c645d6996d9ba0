# SPDX-License-Identifier: Apache-2.0
"""From a sketch and values for its open choices to the steps of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from treadle.expr.nodes import Expr, int_value
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.steps import Step
from treadle.tune.sketch_block_steps import block_steps
from treadle.tune.sketch_places import Places, rows_of, sizes_of
from treadle.tune.sketch_plans import (
    MOST_UNROLLED,
    Blocks,
    Choices,
    Place,
    Simple,
    Sketch,
    Tiled,
    Unused,
    numbered,
    structured,
)


def steps_of(schedule: Schedule, sketch: Sketch, choices: Choices) -> tuple[Step, ...]:
    """Return all steps of a candidate, for a fresh schedule of the tensors of `schedule`.

    Raises: ScheduleError where a step is refused.
    """
    made = structured(schedule, sketch)
    values = {**sketch.fixed, **choices}
    where = Places(sketch, rows_of(sketch, choices), 1)
    found: list[list[Place]] = []
    for k, plan in enumerate(sketch.plans):
        host = int(where.host[k][0])
        place = found[host][int(where.place[k][0]) - 1] if host >= 0 else None
        sizes = sizes_of(where.regions[k])
        if isinstance(plan, Simple):
            task = _simple(made, plan, values, place)
            found.append([] if task is None else [task])
        elif isinstance(plan, Blocks):
            is_host = bool(where.is_host(k)[0])
            found.append(block_steps(made, plan, values, place, sizes, is_host=is_host))
        else:
            is_whole = all(s.primitive != "rfactor" for s in sketch.steps)
            unused = sketch.unused if is_whole else None
            found.append([_Tiles(made, plan, values, place, sizes, unused).apply()])
    return tuple(made.steps)


def _value(values: Choices, stage: int, name: str, default: int) -> int:
    return values.get(f"{stage}.{name}", (default,))[0]


# -- plain loops ------------------------------------------------------------------------------


def _simple(schedule: Schedule, plan: Simple, values: Choices, place: Place | None) -> Place | None:
    """Schedule a stage by itself; return its loop over tasks."""
    stage = numbered(schedule, plan.stage)
    if place is not None:
        stage.compute_at(*place)
    axes = list(_compute(stage).axis)
    if not axes:
        return None
    is_parallel = place is None and _value(values, plan.stage, "parallel", 1) == 1
    if plan.is_reduction:
        return _shared(stage, axes, is_parallel=is_parallel)
    square = _value(values, plan.stage, "square", 0)
    if square:
        return _in_squares(stage, plan, square, is_parallel=is_parallel)
    rows = _value(values, plan.stage, "rows", plan.rows[0])
    lanes = _value(values, plan.stage, "lanes", plan.lanes)
    if rows == 0:
        outer = _vectorized(stage, [stage.fuse(*axes)], lanes)[0]
        if is_parallel and stage.leaf_iter_vars[0] is not stage.leaf_iter_vars[-1]:
            stage.parallel(outer)
        return None
    inner = axes[rows:]
    joint = min(plan.joint, len(inner))
    if joint > 1:
        inner[-joint:] = [stage.fuse(*inner[-joint:])]
    stage.reorder(*axes[:rows], *_vectorized(stage, inner, lanes))
    return _shared(stage, axes[:rows], is_parallel=is_parallel)


def _shared(stage: Stage, axes: Sequence[IterVar], *, is_parallel: bool) -> Place:
    """Make one loop of neighbouring axes, which threads may share."""
    task = stage.fuse(*axes, name="task")
    if is_parallel:
        stage.parallel(task)
    return stage, task


def _vectorized(stage: Stage, axes: list[IterVar], lanes: int) -> list[IterVar]:
    """Vectorise the last axis that is longer than 1; return the loops in their new order."""
    if not lanes:
        return axes
    extents = stage.extents()
    long = [a for a in axes if _known(extents[a]) != 1]
    wide = long[-1] if long else axes[-1]
    rest = [a for a in axes if a is not wide]
    if _known(extents[wide]) <= lanes:
        stage.vectorize(wide)
        return [*rest, wide]
    outer, inner = stage.split(wide, factor=lanes)
    stage.vectorize(inner)
    return [*rest, outer, inner]


def _in_squares(stage: Stage, plan: Simple, size: int, *, is_parallel: bool) -> Place:
    """Tile the axis of reads and that of writes alike, which lowering transposes in registers."""
    axes = _compute(stage).axis
    along = axes[plan.square]
    outer, inner = stage.split(along, factor=size)
    last_outer, last_inner = stage.split(axes[-1], factor=size)
    rows = [a for a in axes[:-1] if a is not along]
    stage.reorder(*rows, outer, last_outer, inner, last_inner)
    stage.unroll(inner)
    stage.vectorize(last_inner)
    return _shared(stage, [*rows, outer], is_parallel=is_parallel)


# -- tiles ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Inner:
    """The loops of a tile in registers: rows, vectors, lanes."""

    loops: list[IterVar] = field(default_factory=list)
    lanes: IterVar | None = None
    count: int = 1
    """Iterations of `loops`."""

    def order(self) -> list[IterVar]:
        """Return the loops, the lanes last."""
        return self.loops if self.lanes is None else [*self.loops, self.lanes]


class _Tiles:
    """Makes the steps of a plan of tiles in several levels."""

    def __init__(
        self,
        schedule: Schedule,
        plan: Tiled,
        values: Choices,
        place: Place | None,
        sizes: tuple[int, ...],
        unused: Unused | None = None,
    ) -> None:
        self.unused = unused
        self.schedule, self.plan, self.values, self.place = schedule, plan, values, place
        self.extents = sizes
        self.result = numbered(schedule, plan.result)
        self.sums = numbered(schedule, plan.stage)
        self.at = self._choice("at", plan.levels.outer - 1)
        self.unroll = self._choice("unroll", 1)
        self.lanes = plan.lanes if self._choice("vectorize", 1) else 0
        self.last: dict[IterVar, IterVar] = {}
        """By the axes of the reduction: their innermost loops."""

    def apply(self) -> Place:
        """Schedule both stages; return the loop over tasks."""
        if self.place is not None:
            self.result.compute_at(*self.place)
        task, innermost = self._stores()
        self.sums.compute_at(self.result, innermost)
        reductions = self._accumulators()
        self._skip_unused()
        for number in self.plan.packable:
            if self._choice(f"pack{number}", 0):
                self._pack(number, task)
        for number in self.plan.fetchable:
            distance = self._choice(f"fetch{number}", 0)
            if distance and reductions:
                tensor = numbered(self.schedule, number).op.output(0)
                self.sums.prefetch(tensor, reductions[-1], distance)
            if self._choice(f"panel{number}", 0) and reductions:
                self._fetch_panel(number, reductions[-1])
        return self.result, task

    def _choice(self, name: str, default: int) -> int:
        return _value(self.values, self.plan.stage, name, default)

    def _sizes(self, axis: int) -> list[int]:
        """Return the positions along an axis over which each level of its loops steps."""
        factors = self.values[self.plan.tile_key(axis)]
        return [prod(factors[level:]) for level in range(len(factors))]

    # -- the stage that stores ---------------------------------------------------------------

    def _stores(self) -> tuple[IterVar, IterVar]:
        """Split the stage that stores; return its loop over tasks, and the innermost over tiles."""
        plan, result = self.plan, self.result
        axes = _compute(result).axis
        tiled = list(plan.tiled_axes)
        if tiled:
            tiled.insert(0, tiled.pop(self._choice("first", 0)))
        levels: list[list[IterVar]] = [[] for _ in range(self.at + 1)]
        inner = _Inner()
        for axis in tiled:
            loops, rest, size = self._outer_loops(axis, axes[plan.places[axis]])
            for level, loop in loops:
                levels[level].append(loop)
            if rest is not None:
                self._add_inner(result, axis, rest, size, inner)
        used = {plan.places[axis] for axis in tiled}
        single = [a for k, a in enumerate(axes) if k not in used]
        levels[0][:0] = single
        if not levels[0]:
            levels[0].append(self._once([*levels[1:], inner.loops], inner))
        flat = [loop for level in levels for loop in level]
        result.reorder(*flat, *inner.order())
        self._write_out(result, inner)
        depth = self._choice("parallel", len(tiled))
        task = levels[0][-1]
        if self.place is None and depth:
            shared = levels[0][: len(single) + depth]
            fused = result.fuse(*shared, name="task")
            result.parallel(fused)
            task = task if len(levels[0]) > len(shared) else fused
        return task, flat[-1] if len(flat) > len(levels[0]) else task

    def _outer_loops(
        self, axis: int, loop: IterVar
    ) -> tuple[list[tuple[int, IterVar]], IterVar | None, int]:
        """Return the loops over tiles as (level, loop), the loop inside of one, and its extent."""
        size = self.extents[axis]
        found: list[tuple[int, IterVar]] = []
        for level, step in enumerate(self._sizes(axis)[: self.at + 1]):
            if step >= size:
                continue
            if step == 1:
                return [*found, (level, loop)], None, 1
            outer, loop = self.result.split(loop, factor=step)
            found.append((level, outer))
            size = step
        return found, loop, size

    def _once(self, levels: Sequence[list[IterVar]], inner: _Inner) -> IterVar:
        """Return a loop of one iteration around all others."""
        extents = self.result.extents()
        for loops in (level for level in levels if level):
            outer, loops[0] = self.result.split(loops[0], factor=_known(extents[loops[0]]))
            return outer
        assert inner.lanes is not None
        outer, inner.lanes = self.result.split(inner.lanes, factor=_known(extents[inner.lanes]))
        return outer

    def _add_inner(self, stage: Stage, axis: int, loop: IterVar, size: int, inner: _Inner) -> None:
        """Take a loop into a tile: those of the lanes stay innermost."""
        if axis != self.plan.vector or not self.lanes:
            inner.loops.append(loop)
            inner.count *= size
            return
        if size > self.lanes:
            outer, loop = stage.split(loop, factor=self.lanes)
            inner.loops.append(outer)
            inner.count *= -(-size // self.lanes)
        inner.lanes = loop

    def _write_out(self, stage: Stage, inner: _Inner) -> None:
        """Unroll and vectorise the loops of a tile, if its accumulators fit in registers."""
        if self.unroll and inner.count <= self.plan.most_accumulators:
            for loop in inner.loops:
                stage.unroll(loop)
        if inner.lanes is not None:
            stage.vectorize(inner.lanes)

    # -- the accumulators --------------------------------------------------------------------

    def _accumulators(self) -> list[IterVar]:
        """Split and order the loops of the sums; return the reduction loops that stay loops."""
        plan, sums = self.plan, self.sums
        op = _compute(sums)
        inner = _Inner()
        spatial: list[list[IterVar]] = [[] for _ in range(plan.levels.spatial)]
        reduced: list[list[IterVar]] = [[] for _ in range(plan.levels.reduction)]
        for axis in plan.register_order:
            if axis in plan.tiled_axes:
                self._inside_tile(axis, op.axis[axis], spatial, inner)
            elif plan.nest.extents[axis] > 1:
                self._add_inner(sums, axis, op.axis[axis], self.extents[axis], inner)
        for axis in plan.reduced_axes:
            root = op.reduce_axis[axis - plan.nest.data]
            self.last[root] = self._reduced(axis, root, reduced)
        spatial[-1] = inner.loops
        order = self._in_order(spatial, reduced)
        loops = [*order, *([inner.lanes] if inner.lanes is not None else [])]
        if loops:
            sums.reorder(*loops)
        self._write_out(sums, inner)
        return self._unrolled_reduction(reduced, inner)

    def _inside_tile(
        self, axis: int, loop: IterVar, spatial: list[list[IterVar]], inner: _Inner
    ) -> None:
        """Split a data axis of the sums, which are computed for a tile."""
        sizes = self._sizes(axis)
        size = min(self.extents[axis], sizes[self.at])
        for level, step in enumerate(sizes[self.at + 1 :], start=self.at + 1):
            if step >= size:
                continue
            if step == 1:
                spatial[level].append(loop)
                return
            outer, loop = self.sums.split(loop, factor=step)
            spatial[level].append(outer)
            size = step
        if size > 1:
            self._add_inner(self.sums, axis, loop, size, inner)

    def _reduced(self, axis: int, loop: IterVar, reduced: list[list[IterVar]]) -> IterVar:
        """Split an axis of the reduction into loops of its levels; return the innermost."""
        size = self.plan.nest.extents[axis]
        for level, step in enumerate(self._sizes(axis) if len(reduced) > 1 else []):
            if step >= size:
                continue
            if step == 1:
                reduced[level].append(loop)
                return loop
            outer, loop = self.sums.split(loop, factor=step)
            reduced[level].append(outer)
            size = step
        reduced[-1].append(loop)
        return loop

    def _skip_unused(self) -> None:
        """Skip the terms that are known to be zero, in the innermost loop of their axes."""
        axes = _compute(self.sums).reduce_axis
        if self.unused is None or len(axes) < 2:
            return
        ends = (axes[self.unused.blocks], axes[-1])
        loops = [self.last[a] for a in ends if a in self.last]
        if loops:
            innermost = max(loops, key=self.sums.leaf_iter_vars.index)
            end = prod(_known(a.extent) for a in ends) - self.unused.terms
            self.sums.skip_past(innermost, ends, end)

    def _in_order(
        self, spatial: list[list[IterVar]], reduced: list[list[IterVar]]
    ) -> list[IterVar]:
        """Return the loops as the structure says."""
        data, terms = iter(spatial[self.at + 1 :]), iter(reduced)
        levels = (next(data if c == "S" else terms) for c in self.plan.levels.inside(self.at))
        return [loop for level in levels for loop in level]

    def _unrolled_reduction(self, reduced: list[list[IterVar]], inner: _Inner) -> list[IterVar]:
        """Unroll the innermost level of the reduction if asked to; return the other loops."""
        loops = [loop for level in reduced for loop in level]
        if self.unroll < 2 or not reduced[-1]:
            return loops
        extents = self.sums.extents()
        if inner.count * prod(_known(extents[a]) for a in reduced[-1]) > MOST_UNROLLED:
            return loops
        for loop in reduced[-1]:
            self.sums.unroll(loop)
        return [loop for level in reduced[:-1] for loop in level]

    def _fetch_panel(self, number: int, loop: IterVar) -> None:
        """Let a tile fetch, step by step of the reduction, what the next one reads of an operand.

        The next one lies further along the axes that have loops around the tile: all of those
        whose tiles have one place, after the end of which comes the next tile of another one.
        """
        plan, axes = self.plan, _compute(self.sums).axis
        read = next(r for r in plan.nest.reads if r.source == number)
        register = [self._sizes(a)[-1] if a in plan.tiled_axes else n
                    for a, n in enumerate(self.extents[: plan.nest.data])]  # fmt: skip
        whole = plan.nest.extents
        moving = [a for a in plan.tiled_axes if register[a] < whole[a]]
        inner = [a for a in moving if read.uses(a) and register[a] == 1 < self.extents[a]]
        first = [a for a in moving if read.uses(a) and a not in inner]
        if not (inner or first) or len(first) > 1:
            return
        tiles = [([axes[a]], register[a], self.extents[a])
                 for a in moving if not read.uses(a) and register[a] < self.extents[a]]  # fmt: skip
        step = register[first[0]] if first else 1
        tensor = numbered(self.schedule, number).op.output(0)
        ahead = [axes[a] for a in (*first, *inner)]
        self.sums.prefetch_panel(tensor, loop, ahead, step=step, tiles=tiles)

    def _pack(self, number: int, task: IterVar) -> None:
        """Let the sums read a copy of an operand: what a task needs, without gaps."""
        tensor = numbered(self.schedule, number).op.output(0)
        copy = self.schedule[self.schedule.cache_read(tensor, "local", [self.sums.op])]
        copy.compute_at(self.result, task)
        _vectorized(copy, list(_compute(copy).axis), self.plan.lanes)


# -- facts ------------------------------------------------------------------------------------


def _compute(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def _known(extent: Expr) -> int:
    return int_value(extent) or 0
