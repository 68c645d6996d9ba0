# SPDX-License-Identifier: Apache-2.0
"""Schedule of 1x1 convolutions by Strassen's algorithm: a pair of panels of channels at a time.

parallel over positions: sums of blocks of the image
parallel over parts of the image and pairs of panels: per product, per tile of positions: sums in
                               registers over half of the channels; all positions of the part, four
                               at a time of the seven products; the tail

The accumulators of a part are read by the core that made them, as far as parts are distributed
evenly.
"""

from __future__ import annotations

from math import ceil

from treadle.cost.memory import panel_level, spares_buffers, steps_to_memory
from treadle.cost.registers import tile_cycles
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
    known,
    lanes_of,
    peel_border,
    size_of,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def schedule_strassen_blocks_nchwc(group: Group, target: Target, knobs: Knobs) -> None:
    """Per tile of positions and of those half an image below: their largest magnitudes; then a
    vector of each of the four blocks is read once, for all seven sums."""
    s = group.schedule
    blocks = s[group.outputs[0]]
    n, p, t, chunk, r, lane = axes_of(blocks)
    register, lane = by_register(blocks, lane, target)
    blocks.reorder(n, t, chunk, r, register, p, lane)
    blocks.unroll(p)
    blocks.vectorize(lane)
    place = blocks.fuse(n, t, name="task")
    size = size_of(blocks.op.outputs[0].shape)
    if knobs.flag("parallel", default=is_shared(size, target)):
        blocks.parallel(place)
    by_lane, *of_all = (s[t] for t in group.anchor[:-1])
    for stage in (by_lane, *of_all):
        stage.compute_at(blocks, place)
    n, t, r, down, lane = axes_of(by_lane)
    register, lane = by_register(by_lane, lane, target)
    by_lane.reorder(n, t, *compute_of(by_lane).reduce_axis, r, down, register, lane)
    by_lane.vectorize(lane)


def schedule_conv_strassen(group: Group, target: Target, knobs: Knobs) -> None:
    """See the module."""
    inline_movement(group)
    s = group.schedule
    products, flat = (s[t] for t in group.anchor[:2])
    inline_tail(s, flat)
    result = s[group.outputs[0]]
    schedule_operands(s, (products, flat), target, knobs)
    peel_border(result)
    n, oc, oh, ow, ob = axes_of(result)
    _, _, _, tile, rows, width = axes_of(products)
    panel = known(width) // known(ob)
    pair, inner = result.split(oc, factor=2 * panel)
    part, row = result.split(oh, factor=group.attrs.band)
    register, lane = by_register(result, ob, target)
    result.reorder(n, part, pair, inner, row, ow, register, lane)
    result.vectorize(lane)
    place = result.fuse(n, part, pair, name="task")
    result.parallel(place)
    flat.compute_at(result, place)
    of_part = known(tile) // known(axes_of(flat)[2])
    _combine(flat, of_part * known(rows), known(rows), panel, target)
    _multiply(s, products, of_part, target, knobs)
    products.compute_at(result, place)


def _combine(flat: Stage, half: int, rows: int, panel: int, target: Target) -> None:
    """Take the four results that share the seven products together."""
    n, oc, part, place, lane = axes_of(flat)
    across, vector = flat.split(oc, factor=panel)
    down, row = flat.split(place, factor=half)
    t, r = flat.split(row, factor=rows)
    register, lane = by_register(flat, lane, target)
    flat.reorder(n, part, t, r, vector, register, down, across, lane)
    for axis in (vector, register, down, across):
        flat.unroll(axis)
    flat.vectorize(lane)


def _multiply(s: Schedule, products: Stage, tiles: int, target: Target, knobs: Knobs) -> None:
    lanes = lanes_of(products, target)
    sums = s[s.cache_write(products.op.outputs[0], "local")]
    p, n, pair, t, r, column = axes_of(products)
    vector, lane = products.split(column, factor=lanes)
    products.reorder(p, n, pair, t, r, vector, lane)
    products.unroll(r)
    products.unroll(vector)
    products.vectorize(lane)
    sums.compute_at(products, t)
    op = compute_of(sums)
    p, n, pair, t, r, column = op.axis
    vector, lane = sums.split(column, factor=lanes)
    sums.reorder(*op.reduce_axis, p, n, pair, t, r, vector, lane)
    sums.unroll(r)
    sums.unroll(vector)
    sums.vectorize(lane)
    weights = op.input_tensors[1]
    step = tile_cycles(known(r), known(column) // lanes, target)
    ahead, pays = ceil(steps_to_memory(step, target)), spares_buffers(target)
    if steps := fetch_distance(knobs, "fetch_weights", ahead, pays=pays):
        sums.prefetch(weights, op.reduce_axis[-1], steps)
    if knobs.flag("fetch_panel", default=True):
        [*_, loop], shared = op.reduce_axis, [([t], 1, tiles)]
        sums.prefetch_panel(weights, loop, [p], tiles=shared, level=panel_level(target))
