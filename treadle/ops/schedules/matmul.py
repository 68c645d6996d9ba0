# SPDX-License-Identifier: Apache-2.0
"""Schedules of matrix products: register tiles of rows times vectors of columns."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.cost.forks import is_worth_forking
from treadle.cost.memory import (
    aligned_pitch,
    fetches_by_step,
    kept_bytes,
    outlast_products,
    panel_level,
    rows_side_by_side,
    steps_to_memory,
    stream_cycles,
    waits_for_level3,
)
from treadle.cost.registers import Tile, tile_cycles, tile_set_cycles
from treadle.dtype import itemsize
from treadle.expr.nodes import int_value
from treadle.expr.traversal import loads
from treadle.graph.operator import Group
from treadle.limits import BLOCK_SIZES, BLOCK_TILES, TILE_VECTORS, WAITING_BLOCK_TILES
from treadle.loop.bodies import inline_bodies
from treadle.ops.schedules.default import schedule_operands
from treadle.ops.schedules.product_reduction import reduction_block, run_blocks
from treadle.ops.schedules.stages import (
    apart_from_result,
    compute_of,
    fetch_distance,
    inline_movement,
    inline_tail,
    is_long,
    itemsize_of,
    known,
    lanes_of,
    size_of,
    split_accumulators,
)
from treadle.ops.schedules.tiles import best_rows, pick_rows, pick_tile, row_pitch
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True)
class Order:
    """How the tiles of a product follow each other: (block of rows, strip, batch, tile of rows).

    `block`: the rows of a block, None where all are one. `rows_first`: (batch, tile, strip)
    instead, without blocks. `is_joint`: the rows of all matrices are taken as those of one.
    """

    block: int | None = None
    rows_first: bool = False
    is_joint: bool = False


def schedule_panels(group: Group, target: Target, knobs: Knobs) -> None:
    """Walk panels of weights outside and tiles of rows inside, so that a panel stays in cache.

    parallel over (panel, tile): sums of rows x vectors in registers over all of k, the tail, store.
    The first tile of a panel would wait for memory, so every tile of the panel before fetches its
    part of it; weights are fetched some steps ahead, too, where that pays (`fetches_by_step`). Rows
    that would not stay in a cache are taken in blocks, each with all the panels: a core reads the
    rows it made before, and each of them once. Where level 2 holds the weights alone the loops are
    the other way round (`_order`).
    Where so few rows are multiplied that weights alone decide, nothing is fetched ahead.
    """
    weights = group.anchor[0].op.input_tensors[-1]
    width = known_size(weights)
    sums = _prepared_accumulators(group, target, knobs)
    result = group.schedule[group.outputs[0]]
    lanes = lanes_of(result, target)
    vectors = max(1, width // lanes)
    *batch, m, _ = compute_of(result).axis
    row_bytes = known(compute_of(sums).reduce_axis[0]) * itemsize_of(sums)
    matrices = prod(map(known, batch))
    joint = joint_rows(matrices, known(m), best_rows(0, vectors, row_bytes, target), knobs)
    if not joint:
        row_bytes = _set_rows_apart(sums, lanes, target, knobs)
    tile = Tile(joint or pick_rows(knobs, known(m), vectors, row_bytes, target), vectors)
    is_stream = not joint and _is_stream(sums, tile, target)
    block = 0 if joint else reduction_block(sums, tile, width, target, knobs)
    order = Order(is_joint=joint > 0)
    if block:
        sums = run_blocks(sums, result, tile, block, target, knobs)
    else:
        if not joint:
            order = _order(sums, tile, width, target, knobs)
        _schedule(group, sums, tile, lanes, order, target, knobs)
    fetch_steps_ahead(sums, weights, tile, target, knobs, is_stream=is_stream)
    if knobs.flag("fetch_panel", default=not is_stream and not order.rows_first):
        share_next_panel(sums, weights, tile, target, is_cut=block > 0)


def _set_rows_apart(sums: Stage, lanes: int, target: Target, knobs: Knobs) -> int:
    """Let rows of values lie a line further apart where that pays; return how many bytes they do.

    Values that this kernel makes are written so, others are copied. Knob "copy_rows", where rows
    evict each other.
    """
    op, s = compute_of(sums), sums.schedule
    values, size = op.input_tensors[0], itemsize_of(sums)
    steps, rows = int_value(values.shape[-1]) or 0, known(op.axis[-2])
    row_bytes = known(op.reduce_axis[0]) * size
    further = aligned_pitch(row_bytes, target)
    is_plain = steps * itemsize(values.dtype) == row_bytes and len(op.reduce_axis) == 1
    if not is_plain or not rows_side_by_side(row_bytes, target) < rows:
        return row_bytes
    columns = -(-known(op.axis[-1]) // lanes)
    usual = row_pitch(rows, columns, steps, size, target)
    if not knobs.flag("copy_rows", default=usual != row_bytes):
        return row_bytes
    stage = s[values]
    if not isinstance(stage.op, ComputeOp):
        stage = s[s.cache_read(values, "workspace", [op])]
        *lead, step = compute_of(stage).axis
        _, lane = stage.split(step, factor=lanes)
        stage.vectorize(lane)
        stage.parallel(stage.fuse(*lead))
    spread_rows(stage, size, target)
    return further


def spread_rows(values: Stage, itemsize: int, target: Target) -> None:
    """Let each row of a matrix begin a line further in its page than the one before."""
    machine, row = target.machine, compute_of(values).axis[-2]
    values.storage_align(row, machine.page_bytes // itemsize, machine.line_bytes // itemsize)


def schedule_dense_blocks(group: Group, target: Target, knobs: Knobs) -> None:
    """Widen packed weights in registers, once for all rows of a tile.

    parallel over (strip of columns, tile): sums over blocks and their bytes in registers. Few rows
    take many columns, to have enough sums; the tile leaves registers to a weight, a scale and a
    zero per vector. Fetching the bytes ahead gains nothing.
    """
    sums = _prepared_accumulators(group, target, knobs)
    result = group.schedule[group.outputs[0]]
    lanes = lanes_of(result, target)
    *batch, m, n = compute_of(result).axis
    rows = known(m)
    columns = -(-(known(n) or lanes) // lanes)
    usual = min(columns, 4 if 0 < rows <= 4 else 2)
    vectors = knobs.option("vectors", usual, range(1, min(columns, 4) + 1))
    most = max(1, (target.vector_registers - 3 * vectors - 2) // vectors)
    joint = joint_rows(prod(map(known, batch)), rows, most, knobs)
    tile = Tile(joint or _even_rows(rows, most, knobs), vectors)
    _schedule(group, sums, tile, lanes, Order(is_joint=joint > 0), target, knobs)
    if knobs.flag("unroll", default=True):
        sums.unroll(compute_of(sums).reduce_axis[-1])


def _even_rows(rows: int, most: int, knobs: Knobs) -> int:
    """Return knob "rows": `most` in a tile, or so many less that as few tiles are alike."""

    def tiles(high: int) -> tuple[float, int]:
        return (-(-rows // high), high) if rows else (1 / high, 0)

    return knobs.pick("rows", range(1, most + 1), cost=tiles)


def schedule_matmul(group: Group, target: Target, knobs: Knobs) -> None:
    """Tile rows and columns of both factors where they lie."""
    sums = _prepared_accumulators(group, target, knobs)
    result = group.schedule[group.outputs[0]]
    lanes = lanes_of(result, target)
    *_, m, n = compute_of(result).axis
    row_bytes = known(compute_of(sums).reduce_axis[0]) * itemsize_of(sums)
    tile = matmul_tile((known(m), known(n)), row_bytes, lanes, target, knobs)
    _schedule(group, sums, tile, lanes, Order(), target, knobs)


def _is_shared(sums: Stage, lanes: int, target: Target) -> bool:
    """True where the products, or reading the second factor once, are worth other threads."""
    if is_long(sums, lanes, target):
        return True
    op = compute_of(sums)
    *batch, _, columns = op.shape
    elements = size_of((*batch, columns, op.reduce_axis[0].extent)) or 0
    return is_worth_forking(stream_cycles(elements * itemsize_of(sums), target), target)


def accumulators_of(group: Group) -> list[Stage]:
    """Return the stages that sum, in the order of what they read."""
    stages = group.schedule.stages
    return [x for x in stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis]


def _schedule(
    group: Group,
    sums: Stage,
    tile: Tile,
    lanes: int,
    how: Order,
    target: Target,
    knobs: Knobs,
) -> None:
    """Order tiles of rows and strips of columns; let threads share them."""
    result = group.schedule[group.outputs[0]]
    *batch, m, n = compute_of(result).axis
    blocks: list[IterVar] = []
    if how.is_joint:
        m, batch = result.fuse(*batch, m, name="row"), []
    if how.block is not None:
        outer, m = result.split(m, factor=how.block)
        blocks.append(outer)
    m_outer, n_outer = tile_result(result, (m, n), tile, lanes)
    order = (*batch, m_outer, n_outer) if how.rows_first else (*blocks, n_outer, *batch, m_outer)
    result.reorder(*order)
    place = result.fuse(*order, name="task")
    if knobs.flag("parallel", default=_is_shared(sums, lanes, target)):
        result.parallel(place)
    compute_tiles(sums, result, place, lanes, knobs)


def tile_result(
    result: Stage, axes: tuple[IterVar, IterVar], tile: Tile, lanes: int
) -> tuple[IterVar, IterVar]:
    """Cut rows and columns into tiles, written out, innermost; return the loops over them."""
    m_outer, m_inner = result.split(axes[0], factor=tile.rows)
    n_outer, n_inner = result.split(axes[1], factor=tile.vectors * lanes)
    n_vector, n_lane = result.split(n_inner, factor=lanes)
    result.reorder(m_outer, n_outer, m_inner, n_vector, n_lane)
    result.unroll(m_inner)
    result.unroll(n_vector)
    result.vectorize(n_lane)
    return m_outer, n_outer


def compute_tiles(sums: Stage, result: Stage, place: IterVar, lanes: int, knobs: Knobs) -> None:
    """Compute the sums of each tile at `place`, in registers; operands of the tail come meanwhile.

    Knob "fetch_operands".
    """
    sums.compute_at(result, place)
    split_accumulators(sums, lanes)
    addends = _addends(result, sums)
    if addends and knobs.flag("fetch_operands", default=True):
        for tensor in addends:
            result.prefetch(tensor, place, 0)


def joint_rows(matrices: int, rows: int, most: int, knobs: Knobs) -> int:
    """Return the rows of a tile of several matrices where each has few rows; 0 for one by one.

    Knob "matrices": as many as make the fewest tiles, of these the fewest, so that tiles are alike.
    """
    if matrices < 2 or not 0 < 2 * rows <= most or not knobs.flag("joint", default=True):
        return 0
    counts = range(1, most // rows + 1)
    return knobs.pick("matrices", counts, cost=lambda n: (-(-matrices // n), n)) * rows


def _addends(result: Stage, sums: Stage) -> list[Tensor]:
    """Return the operands of the epilogue, to be fetched while sums are computed."""
    op = compute_of(result)
    found: dict[Tensor, None] = {}
    for body in inline_bodies(result.schedule)[id(result)]:
        for n in loads(body):
            if not isinstance(n.source, Tensor):
                continue
            uses_rows = any(op.axis[-2] in i.leaves for i in n.indices)
            uses_columns = n.indices and op.axis[-1] in n.indices[-1].leaves
            if uses_rows and uses_columns and result.schedule[n.source] is not sums:
                found[n.source] = None
    return list(found)


def _prepared_accumulators(group: Group, target: Target, knobs: Knobs) -> Stage:
    """Inline the tail, schedule what the product reads; return the sums, never the result."""
    s = group.schedule
    sums = accumulators_of(group)[0]
    _inline_tail(group, sums)
    sums = apart_from_result(s, sums)
    schedule_operands(s, (sums,), target, knobs)
    return sums


def _order(sums: Stage, tile: Tile, width: int, target: Target, knobs: Knobs) -> Order:
    """Return how the tiles of one matrix, or of each of several, follow each other.

    Knob "rows_first", where there are several panels of `width` columns and several tiles of rows:
    a tile of rows in the first cache meets panels that stay in level 2, where rows and results do
    not: so rows are read once, and results are written along their rows.
    """
    op = compute_of(sums)
    rows, columns, steps = known(op.axis[-2]), known(op.axis[-1]), known(op.reduce_axis[0])
    size = itemsize_of(sums)
    if rows > tile.rows and columns > width:
        stay = 0 < columns * steps * size <= target.l2_bytes < rows * (steps + columns) * size
        fits = tile.rows * steps * size <= target.l1_bytes
        if knobs.flag("rows_first", default=fits and stay):
            return Order(rows_first=True)
    return Order(_row_block(sums, tile, target, knobs))


def _row_block(sums: Stage, tile: Tile, target: Target, knobs: Knobs) -> int | None:
    """Return how many rows stay in a cache while panels pass by; None for all of them.

    Those stay in level 2 of which a tile fits the first cache, where that is enough of them to
    fetch the next panel evenly; longer ones multiply for longer before they wait, and stay in
    level 3, if that gives enough. Knob "block", where there is a choice.
    """
    op = compute_of(sums)
    rows, steps = known(op.axis[-2]), known(op.reduce_axis[0])
    row_bytes = max(1, steps * itemsize_of(sums))
    most = kept_bytes(target, 2) // row_bytes
    is_short = tile.rows * row_bytes <= target.l1_bytes
    speed = tile.rows * itemsize_of(sums) / tile_cycles(tile.rows, tile.vectors, target)
    waits = waits_for_level3(speed, target)
    enough = WAITING_BLOCK_TILES if waits else BLOCK_TILES
    stay = (is_short or waits) and most >= enough * tile.rows
    if not stay or rows * row_bytes <= target.l2_bytes:
        most = kept_bytes(target, 3) // row_bytes
    most = max(most, tile.rows)
    if rows <= most:
        return None
    least, tiles = max(tile.rows, most // BLOCK_SIZES), -(-rows // tile.rows)
    fewest = -(-tiles // (most // tile.rows))
    whole = {-(-tiles // (fewest * k)) * tile.rows for k in range(1, BLOCK_SIZES + 1)}
    sizes = sorted({*whole, *(b for b in range(least, most + 1) if rows % b == 0)})

    def cost(block: int) -> tuple[float, int, int]:
        """Blocks of whole tiles leave one remainder, others one each; of alike ones the fewest."""
        alone = rows if block % tile.rows == 0 else block
        cycles = tile_set_cycles(alone, tile.vectors, tile, 1, target) / alone
        blocks = -(-rows // block)
        return round(cycles, 6), blocks, blocks * block

    return knobs.pick("block", sizes, cost=cost)


def _is_stream(sums: Stage, tile: Tile, target: Target) -> bool:
    """Return whether weights are read once, and take longer to read than to multiply.

    Panels follow each other in memory, which the machine foresees by itself: asking for what it has
    asked for already takes the place of reading it.
    """
    op = compute_of(sums)
    rows, columns, steps = known(op.axis[-2]), known(op.axis[-1]), known(op.reduce_axis[0])
    size = columns * steps * itemsize_of(sums)
    return rows <= tile.rows and outlast_products(size, rows, target)


def fetch_steps_ahead(
    sums: Stage,
    weights: Tensor,
    tile: Tile,
    target: Target,
    knobs: Knobs,
    *,
    is_stream: bool = False,
) -> None:
    """Fetch weights some steps before they are read: knob "fetch_weights"."""
    op = compute_of(sums)
    if not any(t is weights for t in op.input_tensors):
        return
    in_time = steps_to_memory(tile_cycles(tile.rows, tile.vectors, target), target)
    row_bytes = known_size(weights) * itemsize_of(sums)
    in_cache = kept_bytes(target, 1) // max(1, row_bytes)
    steps = max(1, min(int(in_time), in_cache))
    tiles = -(-known(op.axis[-2]) // tile.rows)
    pays = not is_stream and fetches_by_step(target.vector_bytes, tiles, target)
    if steps := fetch_distance(knobs, "fetch_weights", steps, pays=pays):
        sums.prefetch(weights, op.reduce_axis[0], steps)


def share_next_panel(
    sums: Stage, weights: Tensor, tile: Tile, target: Target, *, is_cut: bool = False
) -> None:
    """Fetch the panel after this one evenly while the tiles of this one are computed.

    Of a reduction that is cut the next block, whose number is the first axis.
    """
    op = compute_of(sums)
    if not any(t is weights for t in op.input_tensors):
        return
    *batch, m, n = op.axis
    ahead = [n]
    if is_cut:
        block, *batch = batch
        ahead.append(block)
    tiles: list[tuple[list[IterVar], int]] = [([m], tile.rows)]
    if tile.rows > known(m) > 0:  # tiles of several matrices
        tiles = [([*batch, m], tile.rows)]
    elif batch:
        tiles = [(batch, 1), *tiles]
    loop, step, level = op.reduce_axis[0], known_size(weights), panel_level(target)
    sums.prefetch_panel(weights, loop, ahead, step=step, tiles=tiles, level=level)


def known_size(weights: Tensor) -> int:
    """Return the columns of a panel."""
    return int_value(weights.shape[2]) or 1


def _feeds(stage: Stage, sums: Stage) -> bool:
    return any(r is sums for r in stage.schedule.readers(stage))


def _inline_tail(group: Group, sums: Stage) -> None:
    """Inline the element-wise tail; what the product reads is computed beforehand."""
    inline_movement(group)
    inline_tail(group.schedule, sums)
    for stage in group.schedule.stages:
        if isinstance(stage.op, ComputeOp) and _feeds(stage, sums):
            stage.compute_root()


def matmul_tile(
    sizes: tuple[int, int], row_bytes: int, lanes: int, target: Target, knobs: Knobs
) -> Tile:
    """Return knob "tile": rows x vectors in registers for a result of `sizes`; 0: unknown.

    Rows of the first factor lie `row_bytes` apart; no more of them are read together than stay in
    the first cache.
    """
    rows, columns = sizes
    vectors = max(1, -(-columns // lanes))
    if vectors % TILE_VECTORS == 0 or vectors > 2 * TILE_VECTORS:
        vectors = TILE_VECTORS
    most = rows_side_by_side(row_bytes, target) if row_bytes else 0
    return pick_tile(knobs, rows or 8, vectors, target, most_rows=most)
