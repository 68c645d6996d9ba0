# SPDX-License-Identifier: Apache-2.0
"""Schedules of convolutions of [n, c, *spatial] data, transposed ones included.

Output channels times vectors along the last spatial axis are kept in registers; one input vector
meets a broadcast weight of every channel of the tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.cost.registers import tile_cycles
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.ops.schedules.default import injective
from treadle.ops.schedules.stages import (
    compute_of,
    inline_movement,
    is_shared,
    known,
    lanes_of,
    live_stages,
    size_of,
    split_accumulators,
)
from treadle.ops.schedules.tiles import MOST_VECTORS
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp
from treadle.te.stage import Stage


def schedule_plain_conv(group: Group, target: Target, knobs: Knobs) -> None:
    """Tile (oc, last axis) into registers; reduce over channels and taps; apply the tail; store.

    parallel over (n, channel tile, rows): for each strip of a row: sums in registers, the
    element-wise tail, the store.
    """
    inline_movement(group)
    s = group.schedule
    sums = next(x for x in s.stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis)
    tail = next((x for x in s.readers(sums)), None)
    if tail is None or not _is_same_space(tail, sums):
        _schedule_alone(group, sums, target, knobs)
        return
    result = s[group.outputs[0]]
    _roots(group, (sums, result), target, knobs)
    _compute_inside(result, sums, group, target, knobs)


def _is_same_space(tail: Stage, sums: Stage) -> bool:
    """True when the tail is the one result and has an element where the sums have one."""
    shapes = [[int_value(d) for d in x.op.outputs[0].shape] for x in (tail, sums)]
    return tail.is_output and shapes[0] == shapes[1] and len(tail.schedule.outputs) == 1


def _schedule_alone(group: Group, sums: Stage, target: Target, knobs: Knobs) -> None:
    """The sums are a stage of their own; what reads them afterwards puts them in order."""
    s = group.schedule
    local = s[s.cache_write(sums.op.outputs[0], "local")]
    _roots(group, (local, sums), target, knobs)
    _compute_inside(sums, local, group, target, knobs)


def _roots(group: Group, without: tuple[Stage, ...], target: Target, knobs: Knobs) -> None:
    for stage in live_stages(group.schedule):
        if not any(stage is b for b in without):
            injective(group.schedule, stage, target, knobs)


def _compute_inside(result: Stage, sums: Stage, group: Group, target: Target, knobs: Knobs) -> None:
    op = result.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(result, target)
    n, oc, *rows, last = op.axis
    height = known(rows[-1]) if rows else 1
    extents = (known(oc), height, known(last))
    tile = conv_tile(extents, _filters(op, group), lanes, target, knobs)
    oc_outer, oc_inner = result.split(oc, factor=tile.filters)
    outer, strip = result.split(last, factor=tile.vectors * lanes)
    vector, lane = result.split(strip, factor=lanes)
    inside = [oc_inner, vector]
    if tile.height > 1:
        row, row_inner = result.split(rows.pop(), factor=tile.height)
        rows.append(row)
        inside.insert(1, row_inner)
    result.reorder(n, oc_outer, *rows, outer, *inside, lane)
    fused = result.fuse(n, oc_outer, *rows, name="task")
    if knobs.flag("parallel", default=is_shared(_work(op, sums), target)):
        result.parallel(fused)
    for axis in inside:
        result.unroll(axis)
    result.vectorize(lane)
    sums.compute_at(result, outer)
    split_accumulators(sums, lanes)


def _work(op: ComputeOp, sums: Stage) -> int | None:
    """Return how many products all results take, None where that is not known."""
    return size_of((*op.shape, *(a.extent for a in compute_of(sums).reduce_axis)))


def _filters(op: ComputeOp, group: Group) -> int:
    """Output channels that read the same input channels."""
    groups = int(getattr(group.attrs, "groups", 1))
    return max(1, known(op.axis[1]) // groups)


@dataclass(frozen=True, slots=True)
class ConvTile:
    """Filters x rows x vectors of one row whose sums are in registers."""

    filters: int
    height: int
    vectors: int


def conv_tile(
    extents: tuple[int, int, int], filters: int, lanes: int, target: Target, knobs: Knobs
) -> ConvTile:
    """Return the tile with the fewest cycles; short rows are tiled several at a time.

    `extents` are the filters, rows and columns of the result (0 where symbolic); `filters` of them
    read the same input, others are never in one tile.
    """
    every, rows, last = extents
    vectors = max(1, -(-last // lanes)) if last else 2
    candidates = [
        ConvTile(f, h, v)
        for v in range(1, min(vectors, MOST_VECTORS) + 1)
        for h in (range(1, min(rows, MOST_VECTORS // v) + 1) if v == vectors else (1,))
        for f in range(1, min(filters, (target.vector_registers - 1) // (v * h) - 1) + 1)
        if every == filters or filters % f == 0
    ]
    whole = (filters, max(rows, 1), vectors)
    choices = candidates or [ConvTile(1, 1, 1)]
    return knobs.pick("tile", choices, cost=lambda t: conv_tile_cost(t, whole, target))


def conv_tile_cost(
    tile: ConvTile, whole: tuple[int, int, int], target: Target
) -> tuple[float, int]:
    """Return the cycles of one reduction step over everything; bodies for remainders cost a bit."""
    sizes = (tile.filters, tile.height, tile.vectors)
    blocks = prod(-(-n // size) for n, size in zip(whole, sizes, strict=True))
    bodies = prod(2 if n % size else 1 for n, size in zip(whole, sizes, strict=True))
    cycles = tile_cycles(tile.filters, tile.height * tile.vectors, target)
    return round(blocks * cycles * (0.98 + 0.02 * bodies), 6), -prod(sizes)
