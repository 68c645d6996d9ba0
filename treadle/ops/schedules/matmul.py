# SPDX-License-Identifier: Apache-2.0
"""Schedules of matrix products: register tiles of rows times vectors of columns."""

from __future__ import annotations

from math import prod

from treadle.expr import nodes as ex
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.loop.bodies import inline_bodies
from treadle.loop.prefetch import LINE_BYTES
from treadle.ops.schedules.default import injective
from treadle.ops.schedules.stages import (
    PARALLEL_WORK,
    compute_of,
    inline_moves,
    inline_tail,
    itemsize_of,
    known,
    lanes_of,
    live_stages,
    size_of,
)
from treadle.ops.schedules.tiles import (
    BUSY,
    Tile,
    best_rows,
    best_tile,
    tile_cycles,
    tile_set_cycles,
)
from treadle.ops.schedules.winograd import bytes_per_cycle
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.schedule import Stage
from treadle.te.tensor import ComputeOp, IterVar, Tensor, floordiv

_PARALLEL_COLUMNS = 256
"""Results of a product below which other threads are not woken."""
_TILES_OF_MANY = 8
"""Tiles of a panel where it is not known how many there are: more only fetch lines twice."""
_TYPICAL_ROWS = 128
"""What an extent that only a run knows counts as in estimates."""
_LEAST_BLOCK = 4
"""Blocks of rows are not taken smaller than this part of what fits, to divide them evenly: a rest
of a rest would leave tiles of no known size."""
_AHEAD = 1000
"""Cycles from the fetch of weights to their use: what memory takes to answer, and some more."""


def schedule_dense_packed(group: Group, target: Target, knobs: Knobs) -> None:
    """Walk panels of weights outside and tiles of rows inside, so that a panel stays in cache.

    parallel over (panel, tile): sums of rows x vectors in registers over all of k, the tail, store.
    The first tile of a panel would wait for memory, so every tile of the panel before fetches its
    part of it, and all fetch weights some steps ahead. Rows that would not stay in the last cache
    are taken in blocks, each with all the panels; so are those that leave a core's own cache where
    the weights do not: a core reads the rows it made before, and each of them once.
    """
    weights = group.anchor[0].op.input_tensors[-1]
    width = known_size(weights)
    sums = _prepared_sums(group, target, knobs)
    result = group.schedule[group.outputs[0]]
    lanes = lanes_of(result, target)
    vectors = max(1, width // lanes)
    *batch, m, _ = compute_of(result).axis
    row_bytes = known(compute_of(sums).reduce_axis[0]) * itemsize_of(sums)
    matrices, rows = prod(map(known, batch)), known(m)
    tile = packed_tile(matrices, rows, vectors, row_bytes, target)
    is_joint = tile.rows > rows > 0
    block = None if is_joint else _row_block(sums, tile, target)
    _schedule(group, sums, tile, lanes, block, is_joint=is_joint)
    _fetch_ahead(sums, weights, tile, target)
    _fetch_next_panel(sums, weights, tile)


def packed_tile(matrices: int, rows: int, vectors: int, row_bytes: int, target: Target) -> Tile:
    """Return the tile of rows x vectors in registers for panels of `vectors`; 0 rows: not known.

    It has the rows of several matrices where each has few.
    """
    joint = _joint_rows(matrices, rows, best_rows(0, vectors, row_bytes, target))
    return Tile(joint or best_rows(rows, vectors, row_bytes, target), vectors)


def dense_packed_cycles(
    sizes: tuple[int, int, int, int], width: int, dtype_bits: int, target: Target
) -> float:
    """Return the cycles of one core of `schedule_dense_packed`.

    `sizes` are matrices, rows of each (0 where not known), columns and steps; `width` are the
    columns of a panel. Weights come from memory once, while products are computed.
    """
    matrices, rows, columns, steps = sizes
    vectors = max(1, width // target.lanes(dtype_bits))
    tile = packed_tile(matrices, rows, vectors, steps * dtype_bits // 8, target)
    rows = rows or _TYPICAL_ROWS
    if tile.rows > rows:  # of several matrices
        matrices, rows = 1, matrices * rows
    strips = -(-columns // target.lanes(dtype_bits))
    products = matrices * steps * tile_set_cycles(rows, strips, tile, 1)
    return max(products, _reading_cycles(sizes, dtype_bits, target))


def matmul_cycles(sizes: tuple[int, int, int, int], dtype_bits: int, target: Target) -> float:
    """Return the cycles of one core of `schedule_matmul`; `sizes` as for `dense_packed_cycles`."""
    matrices, rows, columns, steps = sizes
    lanes, steps = target.lanes(dtype_bits), steps or _TYPICAL_ROWS
    strips = -(-(columns or _TYPICAL_ROWS) // lanes)
    tile = _tile(rows, columns, lanes, target)
    products = matrices * steps * tile_set_cycles(rows or _TYPICAL_ROWS, strips, tile, 1)
    return max(products, _reading_cycles(sizes, dtype_bits, target))


def _reading_cycles(sizes: tuple[int, int, int, int], dtype_bits: int, target: Target) -> float:
    """Return the cycles in which the second factor is read from memory once."""
    _, _, columns, steps = sizes
    return steps * columns * dtype_bits / 8 / (BUSY * bytes_per_cycle(target))


def schedule_dense_blocks(group: Group, target: Target, knobs: Knobs) -> None:
    """Widen packed weights in registers, once for all rows of a tile.

    parallel over (strip of columns, tile): sums over blocks and their bytes in registers. Few rows
    take many columns, to have enough sums; the tile leaves registers to a weight, a scale and a
    zero per vector. Fetching the bytes ahead gains nothing.
    """
    sums = _prepared_sums(group, target, knobs)
    result = group.schedule[group.outputs[0]]
    lanes = lanes_of(result, target)
    *batch, m, n = compute_of(result).axis
    rows = known(m)
    vectors = min(-(-(known(n) or lanes) // lanes), 4 if 0 < rows <= 4 else 2)
    most = max(1, (target.vector_registers - 3 * vectors - 2) // vectors)
    joint = _joint_rows(prod(map(known, batch)), rows, most)
    tiles = -(-rows // most)
    tile = Tile(joint or (-(-rows // tiles) if tiles else most), vectors)
    _schedule(group, sums, tile, lanes, None, is_joint=joint > 0)
    sums.unroll(compute_of(sums).reduce_axis[-1])


def schedule_matmul(group: Group, target: Target, knobs: Knobs) -> None:
    """Tile rows and columns of both factors where they lie."""
    sums = _prepared_sums(group, target, knobs)
    result = group.schedule[group.outputs[0]]
    lanes = lanes_of(result, target)
    *_, m, n = compute_of(result).axis
    _schedule(group, sums, _tile(known(m), known(n), lanes, target), lanes, None)


def _sums_of(group: Group) -> list[Stage]:
    stages = group.schedule.stages
    return [x for x in stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis]


def _schedule(
    group: Group,
    sums: Stage,
    tile: Tile,
    lanes: int,
    block: int | None,
    *,
    is_joint: bool = False,
) -> None:
    """Order (block of rows, strip of columns, batch, tile of rows) and let threads share it."""
    result = group.schedule[group.outputs[0]]
    op = compute_of(result)
    *batch, m, n = op.axis
    blocks: list[IterVar] = []
    if is_joint:
        m, batch = result.fuse(*batch, m), []
    if block is not None:
        outer, m = result.split(m, factor=block)
        blocks.append(outer)
    m_outer, m_inner = result.split(m, factor=tile.rows)
    n_outer, n_inner = result.split(n, factor=tile.vectors * lanes)
    n_vector, n_lane = result.split(n_inner, factor=lanes)
    order = (*blocks, n_outer, *batch, m_outer)
    result.reorder(*order, m_inner, n_vector, n_lane)
    place = result.fuse(*order)
    result.unroll(m_inner)
    result.unroll(n_vector)
    result.vectorize(n_lane)
    if (size_of(op.shape) or PARALLEL_WORK) >= _PARALLEL_COLUMNS:
        result.parallel(place)
    sums.compute_at(result, place)
    _register_sums(sums, lanes)
    for tensor in _addends(result, sums):
        result.prefetch(tensor, place, 0)


def _joint_rows(matrices: int, rows: int, most: int) -> int:
    """Return the rows of a tile of several matrices where each has few rows; 0 for one by one."""
    if matrices < 2 or not 0 < 2 * rows <= most:
        return 0
    return -(-matrices // -(-matrices // (most // rows))) * rows


def _addends(result: Stage, sums: Stage) -> list[Tensor]:
    """Return what the tail reads a tile of: it lies in far rows, and arrives during the sums."""
    op = compute_of(result)
    found: dict[Tensor, None] = {}
    for body in inline_bodies(result.schedule)[id(result)]:
        for n in ex.walk(body):
            if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
                continue
            uses_rows = any(op.axis[-2] in ex.walk(i) for i in n.indices)
            uses_columns = n.indices and op.axis[-1] in ex.walk(n.indices[-1])
            if uses_rows and uses_columns and result.schedule[n.source] is not sums:
                found[n.source] = None
    return list(found)


def _prepared_sums(group: Group, target: Target, knobs: Knobs) -> Stage:
    """Inline the tail, schedule what the product reads; return the sums, never the result."""
    s = group.schedule
    sums = _sums_of(group)[0]
    _inline_tail(group, sums)
    if sums.is_output:
        sums = s[s.cache_write(sums.op.outputs[0], "local")]
    for stage in live_stages(s):
        if stage is not sums and not stage.is_output:
            injective(s, stage, target, knobs)
    return sums


def _row_block(sums: Stage, tile: Tile, target: Target) -> int | None:
    """Return how many rows stay in a cache while panels pass by; None for all of them."""
    op = compute_of(sums)
    rows, columns, steps = known(op.axis[-2]), known(op.axis[-1]), known(op.reduce_axis[0])
    row_bytes = max(1, steps * itemsize_of(sums))
    most = target.l3_bytes // 2 // row_bytes
    is_near = 0 < columns * row_bytes <= target.l2_bytes // 2
    if is_near and rows * row_bytes > target.l2_bytes // 2:
        most = (target.l2_bytes * 3 // 4 - columns * row_bytes) // row_bytes
    if rows <= max(most, tile.rows):
        return None
    least = max(tile.rows, most // _LEAST_BLOCK)
    even = [block for block in range(least, most + 1) if rows % block == 0]

    def cost(block: int) -> float:
        cycles = tile_set_cycles(block, tile.vectors, tile, 1) / block
        return round(cycles, 6)

    return min(reversed(even), key=cost, default=None)


def _fetch_ahead(sums: Stage, weights: Tensor, tile: Tile, target: Target) -> None:
    op = compute_of(sums)
    if not any(t is weights for t in op.input_tensors):
        return
    in_time = _AHEAD / tile_cycles(tile.rows, tile.vectors)
    row_bytes = known_size(weights) * itemsize_of(sums)
    in_cache = target.l1_bytes // 2 // max(1, row_bytes)
    sums.prefetch(weights, op.reduce_axis[0], max(1, min(int(in_time), in_cache)))


def _fetch_next_panel(sums: Stage, weights: Tensor, tile: Tile) -> None:
    """Fetch the panel after this one evenly while the tiles of this one are computed.

    A step fetches a part of a line. Where the tiles are too few for that, a panel is used about as
    fast as memory gives it, and to fetch some steps ahead is enough.
    """
    op = compute_of(sums)
    if not any(t is weights for t in op.input_tensors):
        return
    *batch, m, n = op.axis
    k = op.reduce_axis[0]
    width, steps = known_size(weights), known(k)
    matrix: ex.Expr = ex.Const.of(0)
    for axis in batch:
        matrix = matrix * axis.extent + axis
    matrices, rows = prod(map(known, batch)), known(m)
    if tile.rows > rows > 0:  # tiles of several matrices
        tiles, index = -(-matrices * rows // tile.rows), floordiv(matrix * rows + m, tile.rows)
    else:
        high = -(-rows // tile.rows)
        tiles, index = matrices * high, matrix * max(1, high) + floordiv(m, tile.rows)
    part = -(-width // (tiles or _TILES_OF_MANY))
    if not steps or part > LINE_BYTES // itemsize_of(sums):
        return
    place = (ex.minimum(index, width // part) * steps + k) * part
    rest = (0,) * (len(weights.shape) - 3)  # steps side by side, of sums of small integers
    sums.prefetch_at(weights, k, (floordiv(n, width) + 1, 0, place, *rest))


def known_size(weights: Tensor) -> int:
    """Return the columns of a panel."""
    return int_value(weights.shape[2]) or 1


def _feeds(stage: Stage, sums: Stage) -> bool:
    return any(r is sums for r in stage.schedule.readers(stage))


def _inline_tail(group: Group, sums: Stage) -> None:
    """Inline the element-wise tail; what the product reads is computed beforehand."""
    inline_moves(group)
    inline_tail(group.schedule, sums)
    for stage in group.schedule.stages:
        if isinstance(stage.op, ComputeOp) and _feeds(stage, sums):
            stage.compute_root()


def _tile(rows: int, columns: int, lanes: int, target: Target) -> Tile:
    vectors = max(1, -(-columns // lanes))
    if vectors % 4 == 0 or vectors > 8:
        vectors = 4
    return best_tile(rows or 8, vectors, target)


def _register_sums(sums: Stage, lanes: int) -> None:
    op = compute_of(sums)
    *rows, n = op.axis
    vector, lane = sums.split(n, factor=lanes)
    sums.reorder(*op.reduce_axis, *rows, vector, lane)
    for axis in (*rows, vector):
        sums.unroll(axis)
    sums.vectorize(lane)
