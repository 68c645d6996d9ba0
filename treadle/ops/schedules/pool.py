# SPDX-License-Identifier: Apache-2.0
"""Schedules of pooling: taps unrolled, vectors along channels or along the width."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cost.forks import CHANNELS_PER_CORE
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.limits import MOST_POOL_TERMS, POOL_TERMS, POOL_WINDOWS
from treadle.ops.schedules.default import schedule_default, schedule_operands
from treadle.ops.schedules.stages import (
    apart_from_result,
    compute_of,
    inline_movement,
    inline_tail,
    is_reduction,
    is_shared,
    known,
    lanes_of,
    size_of,
    vector_lengths,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.stage import Stage


def schedule_pool(group: Group, target: Target, knobs: Knobs) -> None:
    """Walk the rows of a channel (or block of channels); combine the taps in registers.

    Rows and strips where no tap needs a guard get a body of their own in lowering.
    """
    s = group.schedule
    if sum(is_reduction(x) for x in s.stages) != 1 or len(s.outputs) != 1:
        schedule_default(group, target, knobs)
        return
    inline_movement(group)
    sums = next(x for x in s.stages if is_reduction(x))
    result = s[group.outputs[0]]
    if not _has_same_shape(sums, result):
        schedule_default(group, target, knobs)
        return
    inline_tail(s, sums)
    sums = apart_from_result(s, sums)
    schedule_operands(s, (sums,), target, knobs)
    _windows(result, sums, group, target, knobs)


def _has_same_shape(a: Stage, b: Stage) -> bool:
    return [int_value(d) for d in a.op.outputs[0].shape] == [
        int_value(d) for d in b.op.outputs[0].shape
    ]


def _windows(result: Stage, sums: Stage, group: Group, target: Target, knobs: Knobs) -> None:
    op = result.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(result, target)
    lead, rows, strips = _loops(result, op, group, lanes, knobs)
    task = result.fuse(*lead, name="task")
    count = size_of(tuple(a.extent for a in op.axis[:2]))
    inside = [*rows, strips] if strips is not None else rows
    few = count is not None and count < CHANNELS_PER_CORE * target.cores
    if rows and knobs.flag("by_row", default=few):
        task = result.fuse(task, *rows, name="task")
        inside = inside[len(rows) :]
    if knobs.flag("parallel", default=is_shared(_work(op, sums), target)):
        result.parallel(task)
    sums.compute_at(result, inside[-1] if inside else task)
    _combine_taps(sums, knobs)


def _loops(
    result: Stage, op: ComputeOp, group: Group, lanes: int, knobs: Knobs
) -> tuple[list[IterVar], list[IterVar], IterVar | None]:
    """Make the inner loops; return leading axes, row axes and the loop over strips of a row."""
    blocked = getattr(group.attrs, "layout", "NC") == "NCc"
    n, c, *spatial = op.axis
    if not blocked:
        *rows, last = spatial
        if 0 < known(last) <= lanes:
            result.vectorize(last)
            return [n, c], rows, None
        outer, lane = result.split(last, factor=knobs.option("lanes", lanes, vector_lengths(lanes)))
        result.vectorize(lane)
        return [n, c], rows, outer
    *rows, last, channel = spatial
    outer, inner = result.split(last, factor=knobs.option("strip", POOL_WINDOWS, (1, 2, 8)))
    result.unroll(inner)
    result.vectorize(channel)
    return [n, c], rows, outer


def _work(op: ComputeOp, sums: Stage) -> int | None:
    """Return how many elements all windows have, None where that is not known."""
    return size_of((*op.shape, *(a.extent for a in compute_of(sums).reduce_axis)))


def _axes_within(axes: Sequence[IterVar], most: int) -> int:
    """Return how many of the first axes take `most` steps at most."""
    taps = 1
    for count, axis in enumerate(axes):
        taps *= known(axis)
        if taps > most:
            return count
    return len(axes)


def _combine_taps(sums: Stage, knobs: Knobs) -> None:
    op = sums.op
    assert isinstance(op, ComputeOp)
    sums.reorder(*op.reduce_axis, *op.axis)
    axes = tuple(reversed(op.reduce_axis))
    usual, most = (_axes_within(axes, limit) for limit in (POOL_TERMS, MOST_POOL_TERMS))
    for axis in axes[: knobs.option("unrolled", usual, range(most + 1))]:
        sums.unroll(axis)
    for axis in op.axis[:-1]:
        sums.unroll(axis)
    sums.vectorize(op.axis[-1])
