# SPDX-License-Identifier: Apache-2.0
"""Schedules of convolutions of [n, c, *spatial] data, transposed ones included.

Output channels times vectors along the last spatial axis are kept in registers; one input vector
meets a broadcast weight of every channel of the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.cost.registers import (
    cycles_with_bodies,
    loads_of_vector,
    parts_of,
    tile_steps,
    vectors_of,
)
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.limits import TILE_VECTORS
from treadle.ops.schedules.default import injective
from treadle.ops.schedules.stages import (
    compute_of,
    inline_movement,
    inline_tail,
    is_shared,
    known,
    lanes_of,
    live_stages,
    size_of,
    split_accumulators,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def schedule_plain_conv(group: Group, target: Target, knobs: Knobs) -> None:
    """Tile (oc, last axis) into registers; reduce over channels and taps; apply the tail; store.

    parallel over (n, channel tile, rows): for each strip of a row: sums in registers, the
    element-wise tail, the store.
    """
    inline_movement(group)
    s = group.schedule
    sums = next(x for x in s.stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis)
    result = s[group.outputs[0]]
    if len(s.outputs) > 1 or sums.is_output or not _is_tail(_after(s, sums), sums):
        _schedule_alone(group, sums, target, knobs)
        return
    inline_tail(s, sums)
    _roots(group, (sums, result), target, knobs)
    _compute_inside(result, sums, group, target, knobs)


def _after(s: Schedule, sums: Stage) -> list[Stage]:
    """Return the stages that are computed of `sums`, producers first."""
    found = [sums]
    for stage in s.stages:
        if any(stage in s.readers(x) for x in found):
            found.append(stage)
    return found[1:]


def _is_tail(stages: Sequence[Stage], sums: Stage) -> bool:
    """True when the stages after `sums` have an element where the sums have one, the last alone
    being a result."""
    shape = [int_value(d) for d in compute_of(sums).shape]
    return all(
        isinstance(x.op, ComputeOp)
        and not x.op.reduce_axis
        and [int_value(d) for d in x.op.shape] == shape
        for x in stages
    )


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
        for v in range(1, min(vectors, TILE_VECTORS) + 1)
        for h in (range(1, min(rows, TILE_VECTORS // v) + 1) if v == vectors else (1,))
        for f in range(1, min(filters, (target.vector_registers - 1) // (v * h) - 1) + 1)
        if every == filters or filters % f == 0
    ]
    whole = (filters, max(rows, 1), last or vectors * lanes)

    def rank(tile: ConvTile) -> tuple[float, int]:
        bodies = prod(len(parts) for parts in _parts_of(tile, whole, lanes))
        cycles = cycles_with_bodies(conv_tile_cycles(tile, whole, lanes, target), bodies)
        return round(cycles, 6), -tile.filters * tile.height * tile.vectors

    return knobs.pick("tile", candidates or [ConvTile(1, 1, 1)], cost=rank)


_Parts = list[tuple[int, int]]


def _parts_of(
    tile: ConvTile, whole: tuple[int, int, int], lanes: int
) -> tuple[_Parts, _Parts, _Parts]:
    """Return the tiles along filters, rows and columns as (size, count), remainders included."""
    filters, rows, columns = whole
    return (
        parts_of(filters, tile.filters),
        parts_of(rows, tile.height),
        parts_of(columns, tile.vectors * lanes),
    )


def conv_tile_cycles(
    tile: ConvTile, whole: tuple[int, int, int], lanes: int, target: Target, stride: int = 1
) -> float:
    """Return the cycles of one reduction step over filters x rows x columns, `whole`.

    Inputs lie `stride` apart along a row.
    """
    filters, rows, columns = _parts_of(tile, whole, lanes)
    loads = loads_of_vector(stride, lanes)
    cycles, step_of = 0.0, tile_steps(target)
    for width, strips in columns:
        vectors = vectors_of(width, lanes, target)
        for height, high in rows:
            for f, count in filters:
                step = step_of(f, height * vectors, loads)
                cycles += step * count * high * strips
    return cycles
