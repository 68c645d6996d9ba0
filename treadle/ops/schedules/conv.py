# SPDX-License-Identifier: Apache-2.0
"""Schedules of convolutions in the blocked layout: register tiles, the tail on the sums."""

from __future__ import annotations

from math import ceil, prod

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, int_value
from treadle.expr.simplify import simplify
from treadle.graph.operator import Group
from treadle.ops.schedules.default import injective
from treadle.ops.schedules.stages import (
    inline_moves,
    inline_tail,
    is_long,
    itemsize_of,
    known,
    lanes_of,
    live_stages,
    peel_border,
)
from treadle.ops.schedules.tiles import (
    FROM_CACHE,
    FROM_MEMORY,
    WindowTile,
    best_tile,
    best_window_tile,
    image_cycles,
    tile_cycles,
    tiles_in_registers,
)
from treadle.target.base import Target
from treadle.te.schedule import Stage
from treadle.te.tensor import ComputeOp, IterVar, Tensor


def schedule_conv2d_nchwc(group: Group, target: Target) -> None:
    """Tile output channels and positions into registers; reduce; apply the tail; store.

    parallel over (n, channel tile, row): for each tile of positions: sums in registers over
    (ic, kh, kw, icb), two vectors of weights against a broadcast input, then the element-wise tail.
    """
    total = _prepare(group, target)
    s = group.schedule
    result = s[group.outputs[0]]
    peel_border(result)
    n, oc, *deep, oh, ow, ocb = _image_axes(result)
    registers = max(1, known(ocb) // lanes_of(result, target))
    groups = group.attrs.groups  # channels of two groups read nothing in common
    tile = _image_tile(
        (_inside(result, oh), _inside(result, ow)), known(oc) // groups, target, registers,
        whole=groups > 1,
    )  # fmt: skip
    oc_outer, oc_inner = result.split(oc, factor=tile.vectors)
    ow_outer, ow_inner = result.split(ow, factor=tile.wide)
    oh_outer, oh_inner = result.split(oh, factor=tile.high)
    rows = -(-_inside(result, oh) // tile.high)
    tasks = [n, *deep, oc_outer, oh_outer]
    if rows != OPEN:
        rows = rows_per_band(total, rows, tile, target, groups=groups)
        band, oh_outer = result.split(oh_outer, factor=rows)
        tasks = [n, *deep, band, oc_outer, oh_outer]
    result.reorder(*tasks, ow_outer, oc_inner, oh_inner, ow_inner, ocb)
    task = result.fuse(*tasks)
    if is_long(total, lanes_of(result, target)):
        result.parallel(task)
    for axis in (oc_inner, oh_inner, ow_inner):
        result.unroll(axis)
    result.vectorize(ocb)
    total.compute_at(result, ow_outer)
    _register_sums(total)
    _fetch_ahead(total, tile, registers)


OPEN = 0
"""The extent of an axis of symbolic size."""
TYPICAL = (7, 10, 14, 20, 28, 40, 56, 80, 112)
"""Widths of images in the midst of networks: a tile for any width does well on these."""
_WIDEST = 8
"""Positions of a tile for any width: the rest of a row may have any length below that, and each
has code of its own."""


def _image_axes(result: Stage) -> tuple[IterVar, ...]:
    """Return n, channels, axes of depth, height, width, lanes; a signal is one column."""
    n, oc, *deep, ocb = _axes(result)
    if len(deep) > 1:
        return n, oc, *deep, ocb
    n, column = result.split(n, factor=1)
    return n, oc, *deep, column, ocb


def _image_tile(
    image: tuple[int, int], vectors: int, target: Target, registers: int, *, whole: bool
) -> WindowTile:
    high, wide = image
    if OPEN in image and wide != 1:
        return _tile_for_any_width(wide, vectors, target, registers, whole=whole)
    if OPEN in image:
        tile = _tile_for_any_width(OPEN, vectors, target, registers, whole=whole)
        return WindowTile(tile.wide, 1, tile.vectors)
    if wide != 1:
        return best_window_tile(high, wide, vectors, target, registers=registers, whole=whole)
    tile = best_window_tile(1, high, vectors, target, registers=registers, whole=whole)
    return WindowTile(tile.wide, 1, tile.vectors)


def _tile_for_any_width(
    width: int, vectors: int, target: Target, registers: int, *, whole: bool
) -> WindowTile:
    """Return the tile of one row that does best on a known width, or on typical ones."""
    if width != OPEN:
        return best_window_tile(1, width, vectors, target, registers=registers, whole=whole)
    tiles = [
        WindowTile(1, t.rows, t.vectors)
        for t in tiles_in_registers(_WIDEST, vectors, target, width=registers)
        if not whole or vectors % t.vectors == 0
    ]

    def cycles(tile: WindowTile) -> float:
        images = ((1, w, vectors) for w in TYPICAL)
        return sum(image_cycles(i, tile, registers) / i[1] for i in images)

    return min(tiles, key=lambda t: (round(cycles(t), 6), -t.wide * t.vectors))


NEAR = 0.25
"""What a byte from the second level of cache costs, in bytes from further away."""
_MOST_BANDS = 4096  # sizes of a band that are looked at, whatever the image


def rows_per_band(
    total: Stage, rows: int, tile: WindowTile, target: Target, *, groups: int = 1
) -> int:
    """Return how many tile rows of the image to finish for all channels before the next ones.

    A band's input is read once per tile of output channels, all weights once per band: what fits
    a cache costs nothing to read again from there. The band that moves least wins.
    """
    op = total.op
    assert isinstance(op, ComputeOp)
    if any(int_value(a.extent) is None for a in (*op.axis[1:], *op.reduce_axis)):
        return rows
    _, oc, *deep, ocb = (known(a) for a in op.axis)
    oh, ow = deep[-2:] if len(deep) > 1 else (deep[0], 1)
    taps = [known(a) for a in op.reduce_axis]
    size: int = itemsize_of(total)
    window = prod(taps[1:-1])
    weights = oc * ocb * prod(taps) * size
    source = prod(taps) // window * ow * oh * size
    passes = -(-oc // (groups * tile.vectors))

    def moved(band: int, room: int) -> float:
        bands = -(-rows // band)
        lines = band / rows + (window > 1) * 2 * tile.high / max(oh, 1)
        held = source * lines + weights / (groups * passes)
        reads = groups * source * lines * bands * (1 if held <= room else passes)
        return reads + weights * (1 if weights <= room else bands)

    def cost(band: int) -> tuple[float, int]:
        far, near = target.l2_bytes // 2, target.l1_bytes * 3 // 4
        return moved(band, far) + NEAR * moved(band, near), -band

    # A last tile that is not as high as the others must be found from the parallel loop alone.
    shared = range(2, min(rows, _MOST_BANDS) if oh % tile.high == 0 else 2)
    return min((1, *(b for b in shared if rows % b == 0), rows), key=cost)


def _register_sums(total: Stage) -> None:
    """Order the loops of the sums: reduction outside, positions, then vectors.

    One broadcast input value meets all weight vectors before the next is loaded: so only the sums,
    the weights and one value are live.
    """
    op = total.op
    assert isinstance(op, ComputeOp)
    n, oc, *deep, ocb = op.axis
    total.reorder(*op.reduce_axis, n, *deep, oc, ocb)
    for axis in (n, *deep, oc):
        total.unroll(axis)
    total.vectorize(ocb)


def _fetch_ahead(total: Stage, tile: WindowTile, registers: int) -> None:
    """Fetch what the sums read before they need it.

    Past the end of a tile's panels of weights stand those of the next tile.
    Of the data a tile takes short rows, far apart, which no prefetcher of the machine foresees;
    larger windows read each of them several times, which hides the wait.
    """
    op = total.op
    assert isinstance(op, ComputeOp)
    step = tile_cycles(tile.high * tile.wide, tile.vectors * registers)
    weights = next(
        load.source
        for load in ex.walk(op.body[0])
        if isinstance(load, ex.Load) and load.indices[-1] is op.axis[-1]
    )
    assert isinstance(weights, Tensor)
    if _is_in_memory(total, weights):
        total.prefetch(weights, op.reduce_axis[-1], ceil(FROM_MEMORY / step))
    ic, *others = op.reduce_axis
    looks_up = len(op.input_tensors) > 2  # the channels of a group
    data = next(t for t in op.input_tensors if t is not weights)
    if not looks_up and _is_in_memory(total, data) and prod(known(a) for a in others[:-1]) == 1:
        total.prefetch(data, ic, ceil(FROM_CACHE / (step * max(1, known(others[-1])))))


def _is_in_memory(reader: Stage, tensor: Tensor) -> bool:
    return reader.schedule[tensor].attach.kind == "root"


def schedule_depthwise_nchwc(group: Group, target: Target) -> None:
    """Keep a row of sums in registers; every tap of the window reads a vector of channels."""
    total = _prepare(group, target)
    s = group.schedule
    result = s[group.outputs[0]]
    peel_border(result)
    n, oc, *deep, ow, ocb = _axes(result)
    tile = _row_tile(_inside(result, ow), target)
    ow_outer, ow_inner = result.split(ow, factor=tile)
    result.reorder(n, oc, *deep, ow_outer, ow_inner, ocb)
    task = result.fuse(n, oc, *deep)
    if is_long(total, lanes_of(result, target)):
        result.parallel(task)
    result.unroll(ow_inner)
    result.vectorize(ocb)
    total.compute_at(result, ow_outer)
    op = total.op
    assert isinstance(op, ComputeOp)
    total.reorder(*op.reduce_axis, *op.axis)
    for axis in (*op.reduce_axis, *op.axis[:-1]):
        total.unroll(axis)
    total.vectorize(op.axis[-1])


def _row_tile(width: int, target: Target) -> int:
    limit = max(4, (target.vector_registers - 4) // 3)
    if width == OPEN:
        return min(limit, _WIDEST // 2)
    limit = min(width, limit)
    return best_tile(width, 1, target).rows if limit >= width else min(limit, 8)


def _prepare(group: Group, target: Target) -> Stage:
    """Inline the tail; return the stage of the sums, made one of its own if it is the result."""
    inline_moves(group)
    s = group.schedule
    sums = next(x for x in s.stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis)
    inline_tail(s, sums)
    if sums.is_output:
        sums = s[s.cache_write(sums.op.outputs[0], "local")]
    for stage in live_stages(s):
        if stage is not sums and not stage.is_output:
            injective(s, stage, target)
    return sums


def _axes(stage: Stage) -> tuple[IterVar, ...]:
    op = stage.op
    assert isinstance(op, ComputeOp)
    return op.axis


def _inside(stage: Stage, axis: IterVar) -> int:
    """The extent the scheduled loops cover; OPEN where it is symbolic."""
    begin, end = stage.peeled.get(axis, (Const.of(0), axis.extent))
    extent = int_value(simplify(end - begin))
    return OPEN if extent is None else extent
