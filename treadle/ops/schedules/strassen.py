# SPDX-License-Identifier: Apache-2.0
"""Schedule of Strassen's products: per pair of panels seven products, then their sums and the tail.

parallel over rows: sums of blocks of the values
parallel over pairs of panels: per product, per tile of rows: sums in registers over half of k;
                               then four results at a time of the seven products, the tail

Where a run makes the sums of the weights, the first tile of rows of a product makes those that it
takes, a step of the reduction at a time while it multiplies, and all other tiles read them from a
cache; the blocks of the next pair are fetched meanwhile.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from treadle.cost.memory import fetches_by_step, panel_level, steps_to_memory
from treadle.cost.registers import tile_cycles
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.ops.schedules.default import schedule_operands
from treadle.ops.schedules.stages import (
    axes_of,
    by_register,
    compute_of,
    fetch_distance,
    inline_movement,
    inline_tail,
    is_shared,
    itemsize_of,
    known,
    lanes_of,
    size_of,
)
from treadle.ops.schedules.tiles import pick_rows
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def schedule_strassen_blocks(group: Group, target: Target, knobs: Knobs) -> None:
    """Per pair of rows: their largest magnitudes; then a vector of each of the four blocks is read
    once, for all seven sums."""
    s = group.schedule
    blocks = s[group.outputs[0]]
    by_lane, largest = (s[t] for t in group.anchor[:2])
    lanes = lanes_of(blocks, target)
    *batch, p, row, k = axes_of(blocks)
    outer, lane = blocks.split(k, factor=lanes)
    blocks.reorder(*batch, row, outer, p, lane)
    blocks.unroll(p)
    blocks.vectorize(lane)
    place = blocks.fuse(*batch, row, name="task")
    size = size_of(blocks.op.outputs[0].shape)
    if knobs.flag("parallel", default=is_shared(size, target)):
        blocks.parallel(place)
    for stage in (by_lane, largest):
        stage.compute_at(blocks, place)
    op = compute_of(by_lane)
    *rows, down, interleaved = op.axis
    vector, lane = by_lane.split(interleaved, factor=lanes)
    by_lane.reorder(*rows, down, *op.reduce_axis, vector, lane)
    by_lane.unroll(vector)
    by_lane.vectorize(lane)


def schedule_dense_strassen(group: Group, target: Target, knobs: Knobs) -> None:
    """See the module."""
    inline_movement(group)
    s = group.schedule
    products = s[group.anchor[0]]
    inline_tail(s, products)
    result = s[group.outputs[0]]
    lanes = lanes_of(result, target)
    schedule_operands(s, (products,), target, knobs)
    place = _combine(result, products, group.attrs.half, lanes)
    sums, rows = _multiply(s, products, group.attrs.half, lanes, target, knobs)
    if group.attrs.plain_weights:
        _weight_sums(s, sums, products, target)
    _fetch(s, sums, rows, group.attrs, target, knobs)
    products.compute_at(result, place)


def _combine(result: Stage, products: Stage, half: int, lanes: int) -> IterVar:
    """Take the four results that share the seven products together; return the loop of pairs."""
    *batch, m, n = axes_of(result)
    width = known(axes_of(products)[-1])
    part, within = result.split(m, factor=2 * half)
    down, row = result.split(within, factor=half)
    pair, within = result.split(n, factor=2 * width)
    across, column = result.split(within, factor=width)
    vector, lane = result.split(column, factor=min(lanes, width))
    result.reorder(part, pair, *batch, row, vector, down, across, lane)
    for axis in (vector, down, across):
        result.unroll(axis)
    result.vectorize(lane)
    place = result.fuse(part, pair, *batch, name="task")
    result.parallel(place)
    return place


def _multiply(
    s: Schedule, products: Stage, half: int, lanes: int, target: Target, knobs: Knobs
) -> tuple[Stage, int]:
    """Schedule the register tiles; return the stage of their sums, and their rows."""
    sums = s[s.cache_write(products.op.outputs[0], "local")]
    p, *batch, row, pair, column = axes_of(products)
    vectors = max(1, known(column) // lanes)
    op = compute_of(sums)
    (k,) = op.reduce_axis
    row_bytes = (int_value(op.input_tensors[0].shape[-1]) or 1) * itemsize_of(sums)
    rows = pick_rows(knobs, half, vectors, row_bytes, target)
    row_outer, row_inner = products.split(row, factor=rows)
    vector, lane = products.split(column, factor=min(lanes, known(column)))
    products.reorder(p, *batch, pair, row_outer, row_inner, vector, lane)
    products.unroll(row_inner)
    products.unroll(vector)
    products.vectorize(lane)
    sums.compute_at(products, row_outer)
    *_, row, pair, column = op.axis
    vector, lane = sums.split(column, factor=min(lanes, known(column)))
    sums.reorder(k, row, vector, lane)
    sums.unroll(row)
    sums.unroll(vector)
    sums.vectorize(lane)
    return sums, rows


def _weight_sums(s: Schedule, sums: Stage, products: Stage, target: Target) -> None:
    """Make the sums of plain weights that a product takes in its first tile of rows."""
    made = s[compute_of(sums).input_tensors[1]]
    *_, column = axes_of(made)
    register, lane = by_register(made, column, target)
    made.unroll(register)
    made.vectorize(lane)
    (k,) = compute_of(sums).reduce_axis
    made.compute_at(sums, k)
    made.store_at(products, axes_of(products)[0])


def _fetch(
    s: Schedule,
    sums: Stage,
    rows: int,
    attrs: Any,  # the record of the operator, which imports this module
    target: Target,
    knobs: Knobs,
) -> None:
    """Fetch the weights of the next product evenly; plain ones, of the next pair of panels."""
    op = compute_of(sums)
    (k,), (p, *_, row, pair, column) = op.reduce_axis, op.axis
    weights, along = op.input_tensors[1], p
    before: list[tuple[list[IterVar], int]] = []  # the products that read the same
    if attrs.plain_weights:
        weights, along = compute_of(s[weights]).input_tensors[0], pair
        before = [([p], 1)]
    else:
        vectors = max(1, known(column) // target.lanes())
        ahead = ceil(steps_to_memory(tile_cycles(rows, vectors, target), target))
        by_step = fetches_by_step(target.vector_bytes, -(-attrs.half // rows), target)
        if steps := fetch_distance(knobs, "fetch_weights", ahead, pays=by_step):
            sums.prefetch(weights, k, steps)
    if knobs.flag("fetch_panel", default=True):
        sums.prefetch_panel(
            weights,
            k,
            [along],
            tiles=[*before, ([row], rows, attrs.half)],
            level=panel_level(target),
        )
