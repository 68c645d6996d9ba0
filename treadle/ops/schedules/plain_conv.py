# SPDX-License-Identifier: Apache-2.0
"""Schedules of convolutions of [n, c, *spatial] data, transposed ones included.

Output channels times vectors along the last spatial axis are kept in registers; one input vector
meets a broadcast weight of every channel of the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.cost.forks import unevenness
from treadle.cost.memory import (
    filled_bytes,
    kept_bytes,
    level_cycles,
    memory_bytes_per_cycle,
    panel_level,
    rows_side_by_side,
)
from treadle.cost.registers import (
    cycles_with_bodies,
    fma_cycles,
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
    itemsize_of,
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
    row_bytes = prod(known(a) for a in compute_of(sums).reduce_axis) * itemsize_of(sums)
    tile = conv_tile(extents, _filters(op, group), row_bytes, lanes, target, knobs)
    oc_outer, oc_inner = result.split(oc, factor=tile.filters)
    outer, strip = result.split(last, factor=tile.vectors * lanes)
    vector, lane = result.split(strip, factor=lanes)
    inside = [oc_inner, vector]
    if tile.height > 1:
        row, row_inner = result.split(rows.pop(), factor=tile.height)
        rows.append(row)
        inside.insert(1, row_inner)
    tasks = [n, oc_outer, *rows]
    if not rows and known(last) > tile.vectors * lanes:
        size = _strips_per_band(sums, tile, lanes, _filters(op, group), target, knobs)
        band, outer = result.split(outer, factor=size)
        tasks = [n, band, oc_outer]
    result.reorder(*tasks, outer, *inside, lane)
    fused = result.fuse(*tasks, name="task")
    if knobs.flag("parallel", default=is_shared(_work(op, sums), target)):
        result.parallel(fused)
    for axis in inside:
        result.unroll(axis)
    result.vectorize(lane)
    sums.compute_at(result, outer)
    split_accumulators(sums, lanes)
    _share_next_filters(sums, tile, lanes, row_bytes, target, knobs)


def _share_next_filters(
    sums: Stage, tile: ConvTile, lanes: int, row_bytes: int, target: Target, knobs: Knobs
) -> None:
    """Fetch the weights of the next filters evenly while those of these are multiplied.

    A tile reads a row of weights for each filter, a step of all before the next. Rows of less than
    a page give the machine's prefetchers too little time to find them, and weights come from memory
    once a run.
    """
    op = compute_of(sums)
    weights, [first, *taps] = op.input_tensors[-1], op.reduce_axis
    channels, step_bytes = known(first), itemsize_of(sums) * max(1, prod(map(known, taps)))
    line = target.machine.line_bytes
    steps = max((n for n in range(1, line // step_bytes + 1) if channels % n == 0), default=1)
    is_short = row_bytes < target.machine.page_bytes and tile.filters > 1
    if not is_short or channels in (0, steps):
        return
    if 2 * steps * step_bytes < line:
        return  # with parts of a line, each would be fetched again and again
    size = (size_of(weights.shape) or 0) * itemsize_of(sums)
    if not knobs.flag("fetch_filters", default=size > target.l1_bytes):
        return
    loop = first if steps == 1 else sums.split(first, factor=steps)[0]
    _, filters, *_, last = op.axis
    tiles = [([last], tile.vectors * lanes)]
    step, level = tile.filters, panel_level(target)
    sums.prefetch_panel(weights, loop, [filters], step=step, tiles=tiles, level=level)


def _strips_per_band(
    sums: Stage, tile: ConvTile, lanes: int, filters: int, target: Target, knobs: Knobs
) -> int:
    """Return knob "band": the strips of a row to finish for all filters before the next ones.

    A band's input is read once per tile of the `filters` that read the same one, all weights once
    per band: what fits a cache costs nothing to read again from there. Few bands of few tiles are
    no even shares for the cores.
    """
    op = compute_of(sums)
    size, (n, every, last) = itemsize_of(sums), (known(a) for a in op.axis)
    terms = prod(known(a) for a in op.reduce_axis)
    strips = -(-last // (tile.vectors * lanes))
    weights = filters * terms * size
    source = known(op.reduce_axis[0]) * last * size
    passes = -(-filters // tile.filters)
    jobs = n * -(-every // tile.filters)
    products = fma_cycles(n * every * terms * -(-last // lanes), target)

    def moved(bands: int, room: int) -> float:
        held = source / bands + weights / passes
        reads = source * (1 if held <= room else passes)
        return reads + weights * (1 if weights <= room else bands)

    def cost(band: int) -> tuple[float, int]:
        bands = strips // band
        far = moved(bands, kept_bytes(target, 2)) / memory_bytes_per_cycle(target)
        near = level_cycles(moved(bands, filled_bytes(target, 1)), 2, target)
        shares = unevenness(max(1, jobs) * bands, target)
        return products * shares + far + near, -band

    return knobs.pick("band", [b for b in range(strips, 0, -1) if strips % b == 0], cost=cost)


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
    extents: tuple[int, int, int],
    filters: int,
    row_bytes: int,
    lanes: int,
    target: Target,
    knobs: Knobs,
) -> ConvTile:
    """Return the tile with the fewest cycles; short rows are tiled several at a time.

    `extents` are the filters, rows and columns of the result (0 where symbolic); `filters` of them
    read the same input, others are never in one tile. Nor are more whose weights, `row_bytes` of
    each, stay side by side in the first cache.
    """
    every, rows, last = extents
    vectors = max(1, -(-last // lanes)) if last else 2
    most = min(filters, rows_side_by_side(row_bytes, target)) if row_bytes else filters
    candidates = [
        ConvTile(f, h, v)
        for v in range(1, min(vectors, TILE_VECTORS) + 1)
        for h in (range(1, min(rows, TILE_VECTORS // v) + 1) if v == vectors else (1,))
        for f in range(1, min(most, (target.vector_registers - 1) // (v * h) - 1) + 1)
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
