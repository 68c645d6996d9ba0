# SPDX-License-Identifier: Apache-2.0
"""Schedules of chains of reductions along rows: softmax, normalisations, sums of the last axes.

All stages of a row are computed together while it is in cache; rows are distributed to the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from treadle.cost.forks import ROWS_PER_CORE, least_elements
from treadle.cost.memory import most_sums, row_stage_bytes
from treadle.expr import nodes as ex
from treadle.expr.nodes import int_value
from treadle.expr.traversal import loads
from treadle.graph.operator import Group
from treadle.limits import MOST_ROW_TERMS, ROW_TERMS
from treadle.loop.bodies import inline_bodies
from treadle.ops.schedules.stages import (
    inline_movement,
    is_reduction,
    is_step,
    itemsize_of,
    joint_axes,
    known,
    lanes_of,
    live_stages,
    size_of,
    stands_for,
    steps_in_memory,
    vector_lengths,
    walks_along,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def schedule_rows(group: Group, target: Target, knobs: Knobs) -> bool:
    """Compute everything of a row inside one parallel loop over rows; False if there are no rows.

    before: for i: max[i]; for i, j: exp[i, j]; for i: sum[i]; for i, j: y[i, j]
    after:  parallel for i: max; for j: exp[j]; sum; for j: y[i, j]

    What is computed for every element of rows of symbolic length has its place in the workspace.
    """
    s = group.schedule
    inline_movement(group)
    live = live_stages(s)
    results = [x for x in live if x.is_output]
    if len(results) != 1 or not any(map(is_step, live)):
        return False
    result = results[0]
    op = result.op
    assert isinstance(op, ComputeOp)
    axes = _rows_first(s, live, result)
    count = shared_rows(s, live, result, axes)
    rows = list(axes[:count])
    if not rows or not is_along_rows(s, live, count) or not _is_worth(live, result, rows, target):
        return False
    if is_reduction(result) or count == len(op.axis):
        _hoist(result, rows)
    else:
        wide = fused_wide(result, s, rows)
        _vectors(result, wide, lanes_of(result, target), knobs.within(result.name))
        _hoist(result, rows)
    task = result.fuse(*rows, name="task")
    least = least_elements(target)
    if knobs.flag("parallel", default=_work(live, least) >= least):
        result.parallel(task)
    for stage in live:
        if stage is result:
            continue
        stage.compute_at(result, task)
        if _is_long_sum(stage, count):
            for part in _in_lanes(s, stage, lanes_of(stage, target)):
                part.compute_at(result, task)
            continue
        if size_of(stage.op.outputs[0].shape[count:]) is None:
            stage.set_scope("workspace")
        _inside(stage, s, count, target, knobs.within(stage.name))
    return True


def _is_long_sum(stage: Stage, count: int) -> bool:
    """True for a row's one value, combined of symbolically many neighbours in memory."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if not is_reduction(stage) or len(op.body) > 1 or size_of(op.outputs[0].shape[count:]) != 1:
        return False
    return int_value(op.reduce_axis[-1].extent) is None and walks_along(stage, op.reduce_axis[-1])


def _in_lanes(s: Schedule, stage: Stage, lanes: int) -> list[Stage]:
    """Combine into the lanes of a vector, then halves of it; return the stages of these.

    before: y = sum over k of x[k]
    after:  v[l] = sum over k of x[k * 16 + l];  w[l] = v[l] + v[l + 8];  ...;  y = z[0] + z[1]
    """
    parts: list[Stage] = []
    while lanes > 1:
        op = stage.op
        assert isinstance(op, ComputeOp)
        _, lane = stage.split(op.reduce_axis[-1], factor=lanes)
        part = s[s.rfactor(op.output(0), lane, factor_axis=len(op.axis))]
        made = part.op
        assert isinstance(made, ComputeOp)
        part.reorder(*made.axis[:-1], *made.reduce_axis, made.axis[-1])
        if parts:
            part.unroll(made.reduce_axis[-1])
        part.vectorize(made.axis[-1])
        parts.append(part)
        stage, lanes = s[op], lanes // 2
    if parts:
        op = stage.op
        assert isinstance(op, ComputeOp)
        stage.unroll(op.reduce_axis[-1])
    return parts


def _hoist(result: Stage, rows: list[IterVar]) -> None:
    others = [a for a in result.leaf_iter_vars if a not in rows]
    result.reorder(*rows, *others)


def _rows_first(s: Schedule, live: list[Stage], result: Stage) -> tuple[IterVar, ...]:
    """Return the axes of the result, first those that index the stages it is computed of.

    A result in blocks of channels, [n, chunks, rows, block], has its rows further inside.
    """
    op = result.op
    assert isinstance(op, ComputeOp)
    ours = {id(x) for x in live}
    for body in inline_bodies(s)[id(result)]:
        for n in loads(body):
            if is_reduction(result) or not isinstance(n.source, Tensor):
                continue
            if id(s[n.source]) in ours:
                return _in_order_of(n.indices, op.axis)
    return op.axis


def _in_order_of(indices: tuple[ex.Expr, ...], axes: tuple[IterVar, ...]) -> tuple[IterVar, ...]:
    """Return the axes, first those that the leading indices are.

    A 0 is the axis in its place if that has one element: others may be inside of rows.
    """
    left, first = list(axes), []
    for index, own in zip(indices, axes, strict=False):
        mine = (a for a in left if a is index or (a is own and stands_for(index, own)))
        found = next(mine, None)
        if found is None:
            break
        left.remove(found)
        first.append(found)
    return (*first, *left)


def shared_rows(
    s: Schedule, live: list[Stage], result: Stage, axes: tuple[IterVar, ...] | None = None
) -> int:
    """Return how many leading axes of the result, in the order `axes`, index every stage alike."""
    bodies = inline_bodies(s)
    ours = {id(x) for x in live}
    count = len(result.op.axis) if isinstance(result.op, ComputeOp) else 0
    for reader in live:
        op = reader.op
        assert isinstance(op, ComputeOp)
        own = axes if axes is not None and reader is result else op.axis
        for body in bodies[id(reader)]:
            for n in loads(body):
                if not isinstance(n.source, Tensor):
                    continue
                if id(s[n.source]) in ours:
                    count = min(count, _same_prefix(n.indices, own))
                elif op.reduce_axis:
                    count = min(count, _before_memory(n, op.axis))
    return max(0, count)


def _before_memory(load: ex.Load, axes: tuple[IterVar, ...]) -> int:
    """Return how many axes stand before the one along which elements are neighbours."""
    if not load.indices:
        return len(axes)
    steps = steps_in_memory(load)
    walked = (d for d, a in enumerate(axes) if steps.get(a) == 1 and known(a) != 1)
    return next(walked, len(axes))


def _same_prefix(indices: tuple[ex.Expr, ...], axes: tuple[IterVar, ...]) -> int:
    """Return how many leading indices are the axes themselves, in order."""
    count = 0
    for index, axis in zip(indices, axes, strict=False):
        if not stands_for(index, axis):
            break
        count += 1
    return count


def is_along_rows(s: Schedule, live: list[Stage], count: int) -> bool:
    """True when the finished reductions leave one value of a row, not one per column."""
    return all(
        size_of(x.op.outputs[0].shape[count:]) == 1
        for x in live
        if is_step(x) and (x.is_output or not all(map(is_step, s.readers(x))))
    )


def _is_worth(live: list[Stage], result: Stage, axes: list[IterVar], target: Target) -> bool:
    count, rows = len(axes), size_of(tuple(a.extent for a in axes))
    for stage in live:
        inside = size_of(stage.op.outputs[0].shape[count:])
        if stage is result and _is_long_sum(stage, count):
            return False
        if inside is None:
            if is_reduction(stage):
                return False
            continue
        if stage is not result and inside * itemsize_of(stage) > row_stage_bytes(target):
            return False
    many = rows is None or rows >= ROWS_PER_CORE * target.cores
    least = least_elements(target)
    return many or _work(live, least) < least * ROWS_PER_CORE


def _work(live: list[Stage], unknown: int) -> int:
    """Return how many elements the stages compute; one of unknown size counts as so many."""
    total = 0
    for stage in live:
        op = stage.op
        assert isinstance(op, ComputeOp)
        size = size_of(tuple(a.extent for a in (*op.axis, *op.reduce_axis)))
        total += unknown if size is None else size
    return total


def _inside(stage: Stage, s: Schedule, count: int, target: Target, knobs: Knobs) -> None:
    """Order and vectorise the loops of a stage that is computed for one row."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    rows, inner = list(op.axis[:count]), list(op.axis[count:])
    if not is_reduction(stage):
        if inner:
            wide = fused_wide(stage, s, rows)
            _vectors(stage, wide, lanes_of(stage, target), knobs)
            _hoist(stage, rows)
        return
    terms = size_of(tuple(a.extent for a in op.reduce_axis)) or MOST_ROW_TERMS + 1
    if terms <= MOST_ROW_TERMS and knobs.flag("unroll", default=terms <= ROW_TERMS):
        for axis in op.reduce_axis:
            stage.unroll(axis)
    long = [a for a in inner if known(a) > 1]
    if not long:
        return
    last = long[-1]
    lanes = lanes_of(stage, target)
    if known(last) > most_sums(itemsize_of(stage), target) or (
        known(last) > lanes and knobs.flag("strips", default=False)
    ):
        outer, last = stage.split(last, factor=lanes)
        inner = [a for a in inner if a is not long[-1]] + [outer]
    else:
        inner = [a for a in inner if a is not last]
    stage.reorder(*rows, *inner, *op.reduce_axis, last)
    stage.vectorize(last)


def fused_wide(stage: Stage, s: Schedule, rows: Sequence[IterVar]) -> IterVar:
    """Fuse the last axes that run through memory together everywhere; return the one axis.

    Not those in `rows`, nor those outside of one of them. At least one axis is not in `rows`.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    joint = list(takewhile(lambda a: a not in rows, reversed(joint_axes(stage, s))))[::-1]
    if not joint:
        return next(a for a in reversed(op.axis) if a not in rows)
    return stage.fuse(*joint) if len(joint) > 1 else joint[0]


def _vectors(stage: Stage, wide: IterVar, lanes: int, knobs: Knobs) -> None:
    extent = int_value(stage.extents()[wide])
    if extent is not None and extent <= lanes:
        stage.vectorize(wide)
        return
    lanes = knobs.option("lanes", lanes, vector_lengths(lanes))
    _, inner = stage.split(wide, factor=lanes)
    stage.vectorize(inner)
