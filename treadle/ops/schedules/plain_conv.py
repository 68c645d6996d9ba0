# SPDX-License-Identifier: Apache-2.0
"""Schedules of convolutions of [n, c, *spatial] data, transposed ones included.

Output channels times vectors along the last spatial axis are kept in registers; one input vector
meets a broadcast weight of every channel of the tile.
"""

from __future__ import annotations

from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.ops.schedules.default import injective
from treadle.ops.schedules.stages import (
    PARALLEL_WORK,
    inline_moves,
    known,
    lanes_of,
    live_stages,
    size_of,
)
from treadle.ops.schedules.tiles import Tile, best_tile
from treadle.target.base import Target
from treadle.te.schedule import Stage
from treadle.te.tensor import ComputeOp

_MOST_VECTORS = 4


def schedule_plain_conv(group: Group, target: Target) -> None:
    """Tile (oc, last axis) into registers; reduce over channels and taps; apply the tail; store.

    parallel over (n, channel tile, rows): for each strip of a row: sums in registers, the
    element-wise tail, the store.
    """
    inline_moves(group)
    s = group.schedule
    sums = next(x for x in s.stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis)
    tail = next((x for x in s.readers(sums)), None)
    if tail is None or not _is_same_space(tail, sums):
        _schedule_alone(group, sums, target)
        return
    result = s[group.outputs[0]]
    _roots(group, (sums, result), target)
    _compute_inside(result, sums, group, target)


def _is_same_space(tail: Stage, sums: Stage) -> bool:
    """True when the tail is the one result and has an element where the sums have one."""
    shapes = [[int_value(d) for d in x.op.outputs[0].shape] for x in (tail, sums)]
    return tail.is_output and shapes[0] == shapes[1] and len(tail.schedule.outputs) == 1


def _schedule_alone(group: Group, sums: Stage, target: Target) -> None:
    """The sums are a stage of their own; what reads them afterwards puts them in order."""
    s = group.schedule
    local = s[s.cache_write(sums.op.outputs[0], "local")]
    _roots(group, (local, sums), target)
    _compute_inside(sums, local, group, target)


def _roots(group: Group, besides: tuple[Stage, ...], target: Target) -> None:
    for stage in live_stages(group.schedule):
        if not any(stage is b for b in besides):
            injective(group.schedule, stage, target)


def _compute_inside(result: Stage, sums: Stage, group: Group, target: Target) -> None:
    op = result.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(result, target)
    n, oc, *rows, last = op.axis
    tile = _tile(op, _filters(op, group), lanes, target)
    oc_outer, oc_inner = result.split(oc, factor=tile.rows)
    outer, strip = result.split(last, factor=tile.vectors * lanes)
    vector, lane = result.split(strip, factor=lanes)
    result.reorder(n, oc_outer, *rows, outer, oc_inner, vector, lane)
    fused = result.fuse(n, oc_outer, *rows)
    if (size_of(op.shape) or PARALLEL_WORK) * _turns(sums) >= PARALLEL_WORK:
        result.parallel(fused)
    result.unroll(oc_inner)
    result.unroll(vector)
    result.vectorize(lane)
    sums.compute_at(result, outer)
    _register_sums(sums, lanes)


def _turns(sums: Stage) -> int:
    op = sums.op
    assert isinstance(op, ComputeOp)
    return size_of(tuple(a.extent for a in op.reduce_axis)) or PARALLEL_WORK


def _filters(op: ComputeOp, group: Group) -> int:
    """Output channels that read the same input channels."""
    groups = int(getattr(group.attrs, "groups", 1))
    return max(1, known(op.axis[1]) // groups)


def _tile(op: ComputeOp, filters: int, lanes: int, target: Target) -> Tile:
    last = known(op.axis[-1])
    vectors = max(1, -(-last // lanes)) if last else 2
    tile = best_tile(min(filters, 64), min(vectors, 64), target)
    if known(op.axis[1]) == filters:
        return tile
    divisors = [r for r in range(1, tile.rows + 1) if filters % r == 0]
    return Tile(divisors[-1], tile.vectors)


def _register_sums(sums: Stage, lanes: int) -> None:
    op = sums.op
    assert isinstance(op, ComputeOp)
    *outside, last = op.axis
    vector, lane = sums.split(last, factor=lanes)
    sums.reorder(*op.reduce_axis, *outside, vector, lane)
    for axis in (*outside, vector):
        sums.unroll(axis)
    sums.vectorize(lane)


