# SPDX-License-Identifier: Apache-2.0
"""Schedules of convolutions in the blocked layout: register tiles, the tail on the sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from treadle.cost.depthwise import WindowTaps
from treadle.cost.registers import Taps, WindowTile, function_registers, image_cycles
from treadle.cost.unknown import IMAGE_WIDTHS
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Const, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import walk
from treadle.graph.operator import Group
from treadle.limits import DEPTHWISE_WIDTH, REMAINDER_WIDTH
from treadle.ops.schedules.conv_bands import rows_per_band
from treadle.ops.schedules.conv_fetches import fetch_ahead, fetch_operands, share_next_panels
from treadle.ops.schedules.conv_reduction import may_cut, pick_blocks, run_blocks
from treadle.ops.schedules.default import schedule_operands
from treadle.ops.schedules.depthwise_tiles import depthwise_tile, lane_group_tile
from treadle.ops.schedules.stages import (
    apart_from_result,
    axes_of,
    by_register,
    compute_of,
    inline_border,
    inline_movement,
    inline_tail,
    is_costly,
    is_long,
    known,
    lanes_of,
    peel_border,
    skip_unused,
    unroll_accumulators,
)
from treadle.ops.schedules.tiles import pick_window_tile, tiles_in_registers
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.stage import Stage


def schedule_conv2d_nchwc(group: Group, target: Target, knobs: Knobs) -> None:
    """Tile output channels and positions into registers; reduce; apply the tail; store.

    parallel over (n, channel tile, row): for each tile of positions: sums in registers over
    (ic, kh, kw, icb), two vectors of weights against a broadcast input, then the element-wise tail.
    Of volumes a band of rows is finished in all planes before the next: windows of planes that
    follow each other read the same rows.
    """
    total = _prepare(group, target, knobs)
    s = group.schedule
    result = s[group.outputs[0]]
    peel_border(result)
    n, oc, *deep, oh, ow, ocb = _image_axes(result)
    registers = max(1, known(ocb) // lanes_of(result, target))
    groups = group.attrs.groups  # channels of two groups read nothing in common
    taps = _taps(total, group.attrs)
    unused = getattr(group.attrs, "unused", 0)
    size = (_inside(result, oh), _inside(result, ow))
    ic, *window, icb = map(known, compute_of(total).reduce_axis)
    cuts = not unused and may_cut(prod(size), ic * icb, prod(window), groups, target)
    reduction = 0 if cuts else _steps(total, unused)
    tile = image_tile(
        size, known(oc) // groups, target, registers, knobs,
        whole=groups > 1, taps=taps, reduction=reduction,
    )  # fmt: skip
    blocks = None
    if cuts:
        blocks = pick_blocks(total, _data_of(total), tile, registers, target, knobs)
    if blocks is not None:
        axes = (n, oc, *deep, oh, ow, ocb)
        part = run_blocks(total, result, axes, tile, registers, blocks, target, knobs)
        if taps is not None:
            _skip_zeros(part, taps)
        share_next_panels(part, tile, blocks.rows, target, knobs, blocks.panels)
        return
    oc_outer, oc_inner = result.split(oc, factor=tile.vectors)
    oh_outer, oh_inner = result.split(oh, factor=tile.high)
    ow_outer, ow_inner = result.split(ow, factor=tile.wide)
    tasks = [n, *deep, oc_outer, oh_outer]
    height, rows = _inside(result, oh), 0
    if height != DYNAMIC:
        strides = group.attrs.strides
        count = -(-height // tile.high)
        rows = rows_per_band(total, count, tile, target, knobs, groups=groups, strides=strides)
        band, oh_outer = result.split(oh_outer, factor=rows)
        tasks = [n, band, *deep, oc_outer, oh_outer]
    tiles = (oc_inner, oh_inner, ow_inner)
    _run_tiles(total, result, tasks, ow_outer, tiles, ocb, target, knobs)
    fetch_operands(total, result, ow_outer, target, knobs)
    _register_accumulators(total)
    if taps is not None:
        _skip_zeros(total, taps)
    if unused:
        skip_unused(total, group.attrs)
    fetch_ahead(total, tile, registers, target, knobs)
    share_next_panels(total, tile, rows, target, knobs)


def _run_tiles(
    total: Stage,
    result: Stage,
    tasks: Sequence[IterVar],
    step: IterVar,
    tile: Sequence[IterVar],
    lanes: IterVar,
    target: Target,
    knobs: Knobs,
) -> None:
    """Order the loops of the result: tasks for the threads, tiles, a tile written out in vectors.

    The sums of a tile are computed in `step`, the loop over the tiles of a task.
    """
    result.reorder(*tasks, step, *tile, lanes)
    task = result.fuse(*tasks, name="task")
    if knobs.flag("parallel", default=is_long(total, lanes_of(result, target), target)):
        result.parallel(task)
    for axis in tile:
        result.unroll(axis)
    result.vectorize(lanes)
    total.compute_at(result, step)


DYNAMIC = 0
"""The extent of an axis of symbolic size."""


def schedule_phased_conv(group: Group, target: Target, knobs: Knobs) -> None:
    """As `schedule_conv2d_nchwc`, the phases of the outputs one after the other.

    Tiles and rows are of one phase: the outputs of a tile lie a stride apart, whole vectors each.
    """
    total = _prepare(group, target, knobs)
    s = group.schedule
    result = s[group.outputs[0]]
    peel_border(result)
    n, oc, *image, ocb = axes_of(result)
    if len(image) == 1:
        n, one = result.split(n, factor=1)
        image = [one, *image]
    strides = (*(1,) * (len(image) - len(group.attrs.strides)), *group.attrs.strides)
    sizes = [-(-_inside(result, o) // k) for o, k in zip(image, strides, strict=True)]
    parts = [result.split(o, factor=k) for o, k in zip(image, strides, strict=True)]
    *deep, oh, ow = (step for step, _ in parts)
    phases = [phase for _, phase in parts]
    registers = max(1, known(ocb) // lanes_of(result, target))
    tile = image_tile((sizes[-2], sizes[-1]), known(oc), target, registers, knobs, whole=False)
    oc_outer, oc_inner = result.split(oc, factor=tile.vectors)
    oh_outer, oh_inner = result.split(oh, factor=tile.high)
    ow_outer, ow_inner = result.split(ow, factor=tile.wide)
    lead = 1 + len(group.attrs.strides)
    rows = rows_per_band(total, -(-sizes[-2] // tile.high), tile, target, knobs, lead=lead)
    band, oh_outer = result.split(oh_outer, factor=rows)
    tasks = (n, *deep, band, *phases, oc_outer, oh_outer)
    tiles = (oc_inner, oh_inner, ow_inner)
    _run_tiles(total, result, tasks, ow_outer, tiles, ocb, target, knobs)
    _register_accumulators(total, lead=lead)
    fetch_ahead(total, tile, registers, target, knobs)


def _image_axes(result: Stage, *, flat: bool = False) -> tuple[IterVar, ...]:
    """Return n, channels, axes of depth, height, width, lanes; a signal is one column (or row)."""
    n, oc, *deep, ocb = axes_of(result)
    if len(deep) > 1:
        return n, oc, *deep, ocb
    n, one = result.split(n, factor=1)
    return (n, oc, one, *deep, ocb) if flat else (n, oc, *deep, one, ocb)


def image_tile(
    image: tuple[int, int],
    vectors: int,
    target: Target,
    registers: int,
    knobs: Knobs,
    *,
    whole: bool,
    taps: tuple[Taps, Taps] | None = None,
    reduction: int = 0,
) -> WindowTile:
    """Return knob "tile"; of an image of one column the positions of the column count as a row."""
    high, wide = image
    is_column = wide == 1 and (DYNAMIC in image or taps is None)
    if DYNAMIC in image:
        width = DYNAMIC if is_column else wide
        tile = _tile_for_any_width(width, vectors, target, registers, knobs, whole=whole)
    elif is_column:
        tile = pick_window_tile(knobs, 1, high, vectors, target, registers=registers, whole=whole)
    else:
        tile = pick_window_tile(
            knobs,
            high,
            wide,
            vectors,
            target,
            registers=registers,
            whole=whole,
            taps=taps,
            reduction=reduction,
        )
    return WindowTile(tile.wide, 1, tile.vectors) if is_column else tile


def _tile_for_any_width(
    width: int, vectors: int, target: Target, registers: int, knobs: Knobs, *, whole: bool
) -> WindowTile:
    """Return the tile of one row that does best on a known width, or on typical ones."""
    if width != DYNAMIC:
        return pick_window_tile(knobs, 1, width, vectors, target, registers=registers, whole=whole)
    tiles = [
        WindowTile(1, t.rows, t.vectors)
        for t in tiles_in_registers(REMAINDER_WIDTH, vectors, target, width=registers)
        if not whole or vectors % t.vectors == 0
    ]

    def cycles(tile: WindowTile) -> float:
        images = ((1, w, vectors) for w in IMAGE_WIDTHS)
        return sum(image_cycles(i, tile, registers, target) / i[1] for i in images)

    return knobs.pick("tile", tiles, cost=lambda t: (round(cycles(t), 6), -t.wide * t.vectors))


def _steps(total: Stage, unused: int) -> int:
    """Return how many products are added up for an element, where channels are not read."""
    op = total.op
    assert isinstance(op, ComputeOp)
    ic, *taps = (known(a) for a in op.reduce_axis)
    return prod(taps[:-1]) * (ic * taps[-1] - unused) if unused else ic * prod(taps)


def _taps(total: Stage, attrs: Any) -> tuple[Taps, Taps] | None:
    """Return the taps of a window on an image whose padding this kernel makes itself."""
    op = total.op
    assert isinstance(op, ComputeOp)
    if len(op.axis) != 5 or not any((*attrs.pads_before, *attrs.pads_after)):
        return None
    if len(op.reduce_axis) != 4:  # the channels of a group are looked up
        return None
    before, ones = attrs.pads_before or (0, 0), (1, 1)
    sizes = [int_value(d) for d in _reads_of(total)[1].source.shape[2:4]]
    counts = [int_value(a.extent) for a in op.reduce_axis[1:3]]
    after, strides, dilations = (
        attrs.pads_after or (0, 0),
        attrs.strides or ones,
        attrs.dilations or ones,
    )
    if None in sizes or None in counts:
        return None
    high, wide = (
        Taps(
            counts[k] or 0,
            (sizes[k] or 0) - before[k] - after[k],
            before[k],
            strides[k],
            dilations[k],
        )
        for k in (0, 1)
    )
    return high, wide


def _reads_of(total: Stage) -> tuple[ex.Load, ex.Load]:
    """Return the reads of the weights and of the data."""
    op = total.op
    assert isinstance(op, ComputeOp)
    loads = [n for n in walk(op.body[0]) if isinstance(n, ex.Load)]
    weights = next(x for x in loads if x.indices[-1] is op.axis[-1])
    return weights, next(x for x in loads if x.indices[-1] is op.reduce_axis[-1])


def _data_of(total: Stage) -> Tensor:
    data = _reads_of(total)[1].source
    assert isinstance(data, Tensor)
    return data


def _skip_zeros(total: Stage, taps: tuple[Taps, Taps]) -> None:
    """Skip the taps of a tile that only meet padding."""
    op = total.op
    assert isinstance(op, ComputeOp)
    data = _data_of(total)
    for dim, axis, along in zip((2, 3), op.reduce_axis[1:3], taps, strict=True):
        if axis in total.leaf_iter_vars and int_value(axis.extent) != 1:
            total.skip_outside(axis, data, dim, along.before, along.before + along.size)


def _register_accumulators(total: Stage, *, lead: int = 1) -> None:
    """Order the loops of the accumulators: reduction outside, positions, then vectors.

    One broadcast input value meets all weight vectors before the next is loaded: so only the
    accumulators, the weights and one value are live.
    """
    first, (oc, *deep, lane) = axes_of(total)[:lead], axes_of(total)[lead:]
    unroll_accumulators(total, (*first, *deep, oc, lane))


def schedule_depthwise_nchwc(group: Group, target: Target, knobs: Knobs) -> None:
    """Sums of a row in registers, one register of channels after the other; see depthwise_tile.

    parallel over (n, channels, row): for each register of channels: for each tile of positions:
    sums over the window, then the element-wise tail.

    The border of the image is read as guarded zeros, at its edges alone: lanes are channels, so
    that a position is inside or outside, and tiles inside have no guard (`specialize_guards`).
    """
    total = _prepare(group, target, knobs, inlines_border=True)
    _positions_in_registers(group, total, target, knobs)


def schedule_lane_groups(group: Group, target: Target, knobs: Knobs) -> None:
    """As `schedule_depthwise_nchwc`, for each channel of a group: shuffles of a row of inputs.

    What is written out are the channels, the positions and the taps of a row, in this order: a tap
    finds the shuffle that the next position's tap before it has made.
    """
    total = _prepare(group, target, knobs)
    _positions_in_registers(group, total, target, knobs, share_registers=True)
    op = total.op
    assert isinstance(op, ComputeOp)
    total.unroll(op.reduce_axis[-2])


def _positions_in_registers(
    group: Group, total: Stage, target: Target, knobs: Knobs, *, share_registers: bool = False
) -> None:
    """Keep the sums of a tile of positions in registers, a lane for each channel.

    `share_registers`: groups of several channels share one.
    """
    s = group.schedule
    result = s[group.outputs[0]]
    peel_border(result)
    n, oc, *deep, oh, ow, ocb = _image_axes(result, flat=True)
    height, width = _inside(result, oh), _inside(result, ow)
    image = (1, width or DEPTHWISE_WIDTH) if DYNAMIC in (height, width) else (height, width)
    taps = _taps_of(total)
    if share_registers:
        tile = lane_group_tile(knobs, image, taps, target)
    else:
        tail = function_registers() if any(is_costly(x) for x in s.stages) else 0
        tile = depthwise_tile(knobs, image, taps, target, tail=tail)
    oh_outer, oh_inner = result.split(oh, factor=tile.high)
    ow_outer, ow_inner = result.split(ow, factor=tile.wide)
    register, ocb = by_register(result, ocb, target)
    tasks = [n, oc, *deep, oh_outer]
    if height != DYNAMIC:
        rows = _rows_of_a_core(result, oh, tile.high, target, knobs)
        band, oh_outer = result.split(oh_outer, factor=rows)
        tasks = [n, band, oc, *deep, oh_outer]
    result.reorder(*tasks, register, ow_outer, oh_inner, ow_inner, ocb)
    task = result.fuse(*tasks, name="task")
    if knobs.flag("parallel", default=is_long(total, lanes_of(result, target), target)):
        result.parallel(task)
    result.unroll(oh_inner)
    result.unroll(ow_inner)
    result.vectorize(ocb)
    total.compute_at(result, ow_outer)
    _window_accumulators(total, tile.unrolled)


def _rows_of_a_core(result: Stage, oh: IterVar, high: int, target: Target, knobs: Knobs) -> int:
    """Return knob "band": the tile rows that a core takes of all channels, as its neighbours do.

    Where rows are not distributed evenly, the cores share the channels.
    """
    rows, rest = divmod(_inside(result, oh), high)
    every = rows + (rest > 0)
    if rest or rows % target.cores:
        return every
    return knobs.option("band", rows // target.cores, (1, every))


def _window_accumulators(total: Stage, unrolled: int) -> None:
    """Order the loops of the sums: a position takes the innermost `unrolled` axes of the window."""
    op = total.op
    assert isinstance(op, ComputeOp)
    split = len(op.reduce_axis) - unrolled
    outer, inner = op.reduce_axis[:split], op.reduce_axis[split:]
    *places, lanes = op.axis
    total.reorder(*outer, *places, *inner, lanes)
    for axis in (*places, *inner):
        total.unroll(axis)
    total.vectorize(lanes)


def _taps_of(total: Stage) -> WindowTaps:
    """Return the window of a depthwise convolution and how it moves along its last axis."""
    op = total.op
    assert isinstance(op, ComputeOp)
    column, tap = op.axis[-2], op.reduce_axis[-1]
    for load in walk(op.body[0]):
        if isinstance(load, ex.Load) and len(load.indices) > 1:
            terms = decompose(load.indices[-2]).terms
            if column in terms:
                window = tuple(known(a) for a in op.reduce_axis)
                return WindowTaps(window, terms[column], terms.get(tap, 0))
    raise AssertionError(f"{total.name} reads nothing along {column.name}")


def _prepare(group: Group, target: Target, knobs: Knobs, *, inlines_border: bool = False) -> Stage:
    """Inline the tail; return the stage of the sums, made one of its own if it is the result.

    With `inlines_border` the sums read the image itself where it is padded, else a padded copy.
    """
    inline_movement(group)
    s = group.schedule
    sums = next(x for x in s.stages if isinstance(x.op, ComputeOp) and x.op.reduce_axis)
    if inlines_border:
        inline_border(s, sums)
    inline_tail(s, sums)
    sums = apart_from_result(s, sums)
    schedule_operands(s, (sums,), target, knobs)
    return sums


def _inside(stage: Stage, axis: IterVar) -> int:
    """The extent the scheduled loops cover; DYNAMIC where it is symbolic."""
    begin, end = stage.peeled.get(axis, (Const.of(0), axis.extent))
    extent = int_value(simplify(end - begin))
    return DYNAMIC if extent is None else extent
