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
MOST_ROWS = 192
"""Rows whose sums stay in the second cache while all pieces of k are added."""


def schedule_dense_packed(group: Group, target: Target) -> None:
    """Walk panels of weights outside and blocks of rows inside, so that a panel stays in cache.

    parallel over (panel, row block): sums of rows x vectors in registers over k, the tail, store.
    A panel too long for the first cache is taken in pieces of k, each for all rows of the block
    before the next (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication").
    """
    width = panel_columns(group)
    sums = _sums_of(group)[0]
    depth = _piece(reduction_length(sums), width, target)
    if width is not None and depth is not None and known(_rows_axis(sums)) > 1:
        _schedule_pieces(group, target, width, depth)
    else:
        _schedule(group, target, width)


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
    sums = _prepared_sums(group, target)
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


def _prepared_sums(group: Group, target: Target) -> Stage:
    """Inline the tail, schedule what the product reads; return the sums, never the result."""
    s = group.schedule
    sums = _sums_of(group)[0]
    _inline_tail(group, sums)
    if sums.is_output:
        sums = s[s.cache_write(sums.op.outputs[0], "local")]
    for stage in live_stages(s):
        if stage is not sums and not stage.is_output:
            injective(s, stage, target)
    return sums


def reduction_length(sums: Stage) -> int:
    """Return how many products a sum has, 0 where that is symbolic."""
    return known(_compute(sums).reduce_axis[0])


def _rows_axis(sums: Stage) -> IterVar:
    return _compute(sums).axis[-2]


def _piece(length: int, width: int | None, target: Target) -> int | None:
    """Return the pieces to take k in: an even share that leaves half of the first cache free."""
    if width is None or length == 0:
        return None
    most = max(64, target.l1_bytes // 2 // (4 * width) * 4 // 3)
    if length <= most:
        return None
    shares = [d for d in range(most // 3, most + 1) if length % d == 0]
    return max(shares, default=None)


def _schedule_pieces(group: Group, target: Target, width: int, depth: int) -> None:
    s = group.schedule
    sums = _prepared_sums(group, target)
    total = sums.op.outputs[0]
    piece, _ = sums.split(_compute(sums).reduce_axis[0], factor=depth)
    part = s[s.rfactor(total, piece)]
    result = s[group.outputs[0]]
    lanes = lanes_of(result, target)
    *batch, m, n = _compute(result).axis
    tile = best_tile(min(known(m), MOST_ROWS), width // lanes, target)
    m_block, m_inner = result.split(m, factor=_rows(known(m), MOST_ROWS))
    n_outer, n_inner = result.split(n, factor=width)
    n_vector, n_lane = result.split(n_inner, factor=lanes)
    result.reorder(*batch, n_outer, m_block, m_inner, n_vector, n_lane)
    place = result.fuse(*batch, n_outer, m_block)
    result.unroll(n_vector)
    result.vectorize(n_lane)
    result.parallel(place)
    sums.compute_at(result, place)
    *rows, column = _compute(sums).axis
    row_outer, row_inner = sums.split(rows[-1], factor=tile.rows)
    vector, lane = sums.split(column, factor=lanes)
    steps = _compute(sums).reduce_axis
    sums.reorder(*rows[:-1], *steps, row_outer, row_inner, vector, lane)
    sums.unroll(row_inner)
    sums.unroll(vector)
    sums.vectorize(lane)
    part.compute_at(sums, row_outer)
    _register_sums(part, lanes)


def _compute(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


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
