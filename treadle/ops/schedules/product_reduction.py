# SPDX-License-Identifier: Apache-2.0
"""Products by panels of weights whose reduction is cut into blocks (kc).

Every tile of rows reads a panel, and while they do, they fetch the next one into level 2. Of a long
reduction level 2 does not hold both: what is fetched has left it again when it is wanted. So the
sums of a panel's columns are kept in memory, and a block of the reduction is added to those of all
rows: its part of the panel stays in level 2, and the next part fits there too (Goto and van de
Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).
"""

from __future__ import annotations

from math import prod

from treadle.cost.forks import STRIPS_PER_CORE
from treadle.cost.memory import filled_bytes, local_bytes, next_panel_leaves
from treadle.cost.registers import Tile
from treadle.limits import LEAST_STEPS_OF_BLOCK
from treadle.ops.schedules.stages import (
    compute_of,
    cut_reduction,
    is_long,
    itemsize_of,
    known,
    lanes_of,
    split_accumulators,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.stage import Stage


def reduction_block(sums: Stage, tile: Tile, width: int, target: Target, knobs: Knobs) -> int:
    """Return knob "reduction_block": the steps of a block; 0 where the reduction is not cut.

    One of a single matrix of several tiles can be, if the sums of a panel of `width` columns fit
    the stack and all cores have some. It is where level 2 would not hold two panels: then in the
    longest blocks of which it holds the sums, too, and the rows that pass between a fetch and its
    use.
    """
    op = compute_of(sums)
    *batch, rows, columns = map(known, op.axis)
    steps, *others = map(known, op.reduce_axis)
    size = itemsize_of(sums)
    is_shared = -(-columns // width) >= STRIPS_PER_CORE * target.cores
    if others or prod(batch) != 1 or rows <= tile.rows or not is_shared:
        return 0
    held = rows * width * size
    if held > local_bytes(target):
        return 0
    blocks = [b for b in range(LEAST_STEPS_OF_BLOCK, steps) if steps % b == 0]
    room = filled_bytes(target, 2)
    fitting = [b for b in blocks if held + (rows + 2 * width) * b * size <= room]
    leaves = next_panel_leaves(steps * width * size, target)
    usual = max(fitting, default=0) if leaves else 0
    return knobs.option("reduction_block", usual, (0, *blocks)) if blocks else 0


def run_blocks(
    sums: Stage, result: Stage, tile: Tile, block: int, target: Target, knobs: Knobs
) -> Stage:
    """Compute the sums of a panel's columns in memory, a block of the reduction after the other.

    parallel over panels: for each block: for each tile of rows: sums in registers over the steps of
    the block, added to those in memory; then the tail. Return the stage of the sums of a block.
    """
    lanes = lanes_of(result, target)
    *batch, m, n = compute_of(result).axis
    panel, inside = result.split(n, factor=tile.vectors * lanes)
    vector, lane = result.split(inside, factor=lanes)
    result.reorder(*batch, panel, m, vector, lane)
    result.vectorize(lane)
    task = result.fuse(*batch, panel, name="task")
    if knobs.flag("parallel", default=is_long(sums, lanes, target)):
        result.parallel(task)
    sums.compute_at(result, task)
    return _cut(sums, tile, lanes, block)


def _cut(sums: Stage, tile: Tile, lanes: int, block: int) -> Stage:
    """Add the sums of a block to those of all rows before the next; return the stage of a block."""
    part = cut_reduction(sums, block)
    op = compute_of(sums)
    (cut,) = op.reduce_axis
    *batch, m, n = op.axis
    rows, row = sums.split(m, factor=tile.rows)
    vector, lane = sums.split(n, factor=lanes)
    sums.reorder(*batch, cut, rows, row, vector, lane)
    for axis in (row, vector):
        sums.unroll(axis)
    sums.vectorize(lane)
    part.compute_at(sums, rows)
    split_accumulators(part, lanes)
    return part
