# SPDX-License-Identifier: Apache-2.0
"""Schedules of matrix products: register tiles of rows times vectors of columns."""

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
from treadle.te.tensor import ComputeOp, IterVar

_PARALLEL_COLUMNS = 256
"""Results of a product below which other threads are not woken."""


def schedule_dense_packed(group: Group, target: Target) -> None:
    """Walk panels of weights outside and blocks of rows inside, so that a panel stays in cache.

    parallel over (panel, row block): sums of rows x vectors in registers over k, the tail, store.
    """
    _schedule(group, target, panel_columns(group))


def schedule_matmul(group: Group, target: Target) -> None:
    """Tile rows and columns of both factors where they lie."""
    _schedule(group, target, None)


def panel_columns(group: Group) -> int | None:
    """Return the columns of one panel of packed weights: the last operand of the product."""
    anchor = group.anchor[0].op
    weights = anchor.input_tensors[-1]
    return int_value(weights.shape[-1])


def _sums_of(group: Group) -> list[Stage]:
    stages = group.schedule.stages
    return [x for x in stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis]


def _schedule(group: Group, target: Target, width: int | None) -> None:
    s = group.schedule
    sums = _sums_of(group)[0]
    _inline_tail(group, sums)
    if sums.is_output:
        sums = s[s.cache_write(sums.op.outputs[0], "local")]
    for stage in live_stages(s):
        if stage is not sums and not stage.is_output:
            injective(s, stage, target)
    result = s[group.outputs[0]]
    op = result.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(result, target)
    *batch, m, n = op.axis
    tile = _tile(known(m), known(n), width, lanes, target)
    place = _tile_result(result, batch, m, n, tile, lanes)
    if (size_of(op.shape) or PARALLEL_WORK) >= _PARALLEL_COLUMNS:
        result.parallel(place)
    sums.compute_at(result, place)
    _register_sums(sums, lanes)


def _feeds(stage: Stage, sums: Stage) -> bool:
    return any(r is sums for r in stage.schedule.readers(stage))


def _inline_tail(group: Group, sums: Stage) -> None:
    """Inline the element-wise tail; what the product reads is computed beforehand."""
    inline_moves(group)
    for stage in group.schedule.stages:
        if isinstance(stage.op, ComputeOp) and _feeds(stage, sums):
            stage.compute_root()


def _tile(rows: int, columns: int, width: int | None, lanes: int, target: Target) -> Tile:
    if width is not None:
        vectors = max(1, width // lanes)
        limit = max(1, (target.vector_registers - 1 - vectors) // vectors)
        return Tile(_rows(rows, limit), vectors)
    vectors = max(1, -(-columns // lanes))
    if vectors % 4 == 0 or vectors > 8:
        vectors = 4
    return best_tile(rows or 8, vectors, target)


def _rows(rows: int, limit: int) -> int:
    """The row block: as even as possible, no larger than `limit`."""
    if rows == 0:
        return limit
    blocks = -(-rows // limit)
    return -(-rows // blocks)


def _tile_result(
    result: Stage, batch: list[IterVar], m: IterVar, n: IterVar, tile: Tile, lanes: int
) -> IterVar:
    m_outer, m_inner = result.split(m, factor=tile.rows)
    n_outer, n_inner = result.split(n, factor=tile.vectors * lanes)
    n_vector, n_lane = result.split(n_inner, factor=lanes)
    result.reorder(*batch, n_outer, m_outer, m_inner, n_vector, n_lane)
    fused = result.fuse(*batch, n_outer, m_outer)
    result.unroll(m_inner)
    result.unroll(n_vector)
    result.vectorize(n_lane)
    return fused


def _register_sums(sums: Stage, lanes: int) -> None:
    op = sums.op
    assert isinstance(op, ComputeOp)
    *rows, n = op.axis
    vector, lane = sums.split(n, factor=lanes)
    sums.reorder(*op.reduce_axis, *rows, vector, lane)
    for axis in (*rows, vector):
        sums.unroll(axis)
    sums.vectorize(lane)
