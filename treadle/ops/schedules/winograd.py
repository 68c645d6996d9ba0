# SPDX-License-Identifier: Apache-2.0
"""Schedule of Winograd convolutions: groups of tiles are transformed, multiplied, put back.

The transformed inputs V of a group stay in the caches; the products M of one panel of output
channels never leave the core. Two shapes of loops:

few weights    parallel over groups of tiles: V of the group; per panel: products, outputs
many weights   per group of tiles: V, made by all threads; parallel over panels: products, outputs,
               so that the weights, more than a cache holds, are read once by one core

Of a volume a group may have tiles of several frames: those that they meet are transformed once.

Where a run transforms the weights, either all threads do so before the first group; or a panel's
are transformed for one row of points at a time, and multiplied from level 2. Of many channels level
2 does not hold the taps until the last row of points has read them: then the products of a block
of the channels are added to those of the blocks before, at all points. An image without the
zeros around it is read through guards, which tiles inside of it do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, isqrt, prod
from typing import Any

from treadle.cost.filtering import FilterAxis
from treadle.cost.memory import (
    STEPS_TO_LEVEL2,
    filled_bytes,
    panel_level,
    spares_buffers,
    steps_to_memory,
)
from treadle.cost.registers import Tile, tile_cycles, tile_set_cycles
from treadle.cost.winograd import (
    Depth,
    Grouping,
    WinogradShape,
    cycles_of_tiles,
    fits_apart,
    fits_group,
    fits_weights,
    holds_a_tile,
    stays_near,
)
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.ops.schedules.stages import (
    axes_of,
    by_register,
    compute_of,
    cut_reduction,
    fetch_distance,
    inline_border,
    inline_movement,
    itemsize_of,
    known,
    lanes_of,
    live_stages,
    peel_border,
    size_of,
    skip_unused,
)
from treadle.ops.schedules.tiles import tiles_in_registers
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.loops import Tiles
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage

_Tiles = tuple[Sequence[IterVar], int] | tuple[Sequence[IterVar], int, int]
"""Tiles that `prefetch_panel` shares work out to."""
_CHANNELS, _DEEP = 2, 3
"""Which axes of a reduction are the blocks of input channels, after two of a stride, and the taps
of the depth."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the loops run: a group is `rows` rows of `columns` tiles of each of `frames`.

    Plain weights are transformed `apart`, before all groups, or for each. `cycles` are of one core.
    """

    rows: int
    columns: int
    registers: Tile
    by_panel: bool
    cycles: float
    apart: bool = False
    frames: int = 1


def plan_winograd(
    shape: WinogradShape, target: Target, *, width: int = 1, knobs: Knobs | None = None
) -> Plan:
    """Return the cheapest grouping and register tile; a vector takes `width` registers.

    Groups divide the image evenly: a rest would double the code. Knobs "group", "tile" and, of
    volumes, "frames".
    """
    asked = Knobs() if knobs is None else knobs

    def cycles(group: Grouping, frames: int) -> float:
        return plan_of_group(shape, target, group, Knobs(), width=width, frames=frames).cycles

    def least(group: Grouping) -> float:
        return min(cycles(group, frames) for frames in _frames(shape, target, group))

    group, frames = asked.pick("group", _groupings(shape, target), cost=least), 1
    if shape.depth.taps > 1:
        together = _frames(shape, target, group)
        frames = asked.pick("frames", together, cost=lambda frames: cycles(group, frames))
    return plan_of_group(shape, target, group, asked, width=width, frames=frames)


def _frames(shape: WinogradShape, target: Target, group: Grouping) -> list[int]:
    """Return of how many frames of a volume a group may have tiles; of images it is one."""
    if shape.depth.taps == 1:
        return [1]
    numbers = _divisors(shape.depth.frames)
    return [f for f in numbers if f == 1 or fits_group(shape, target, group, f)]


def _groupings(shape: WinogradShape, target: Target) -> list[Grouping]:
    """Return what finds room in the caches, or the smallest group if nothing does."""
    groups = _groups(shape)
    choices = [Grouping(*group, by_panel) for group in groups for by_panel in (False, True)]
    if fits_apart(shape, target):
        choices += [replace(group, apart=True) for group in choices]
    found = [group for group in choices if fits_group(shape, target, group)]
    return found or [Grouping(*groups[-1], True)]


def _groups(shape: WinogradShape) -> list[tuple[int, int]]:
    """Return rows and columns of tiles to take together, the smallest last.

    Several rows are all phases of some; columns of several phases stay together. Columns that are
    the positions of images are whole rows of those, or parts of one.
    """
    gap = shape.axes[0].gap
    several = [gap * rows for rows in _divisors(shape.down // gap)]
    groups = [(rows, shape.across) for rows in several if rows > 1] + [(1, shape.across)]
    wide, row = shape.axes[1].gap, shape.row
    parts = [wide * columns for columns in _divisors(shape.across // wide)]
    if row:
        parts = _divisors(row) + [row * rows for rows in _divisors(shape.across // row)[1:]]
    return groups + [(1, columns) for columns in reversed(parts[:-1])]


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def plan_of_group(
    shape: WinogradShape,
    target: Target,
    group: Grouping,
    knobs: Knobs,
    *,
    width: int,
    frames: int = 1,
) -> Plan:
    """Return how a grouping that divides the image runs; knob "tile"."""
    _, longest = group.runs
    choices = tiles_in_registers(longest, shape.vectors, target, width=width)
    if shape.groups > 1:  # channels of two groups read nothing in common
        choices = [c for c in choices if shape.vectors % c.vectors == 0]
    if shape.plain_weights and not group.apart:
        fitting = [c for c in choices if fits_weights(shape, target, c.vectors)]
        choices = fitting or [c for c in choices if c.vectors == 1]
    vectors = shape.outputs // shape.block
    cycles_of = cycles_of_tiles(shape, target, group, width, frames)

    def rank(registers: Tile) -> tuple[float, bool, float, int]:
        """Ties (memory may decide) go to tiles without a rest, to fewer steps, to larger ones."""
        rest = longest % registers.rows > 0
        steps = tile_set_cycles(longest, vectors, registers, width, target)
        return round(cycles_of(registers), 3), rest, steps, -registers.rows * registers.vectors

    best = knobs.pick("tile", choices, cost=rank)
    sizes = (group.rows, group.columns, best, group.by_panel)
    return Plan(*sizes, cycles_of(best), group.apart, frames)


def schedule_winograd(group: Group, target: Target, knobs: Knobs) -> None:
    """See the module: transform, multiply and transform back one group of tiles after the other."""
    inline_movement(group)
    s = group.schedule
    own = [s[t] for t in group.anchor]
    rows_in, v, products, rows_out = own[:4]
    inline_border(s, rows_in)
    result = s[group.outputs[0]]
    width = _width(result, target)
    shape = _shape_of(group)
    plan = plan_winograd(shape, target, width=width, knobs=knobs)
    peel_border(result)
    tail = [x for x in live_stages(s) if not x.is_output and x not in own]
    fits = holds_a_tile(group.attrs.axes, target)
    held = knobs.flag("rows_in_registers", default=fits)
    loops = _result_loops(result, plan, group.attrs, target, held=held, row=shape.row)
    at_group, at_panel, at_tile = loops
    _input_transform(v, rows_in, plan, target, group.attrs)
    v.compute_at(result, at_group)
    sums = _products(s, products, plan, _block_of_channels(products, shape, plan, target, knobs))
    if knobs.flag("unroll", default=False):  # up to 3 % faster, 1.3 times as long to compile
        sums.unroll(compute_of(sums).reduce_axis[-1])
    cut, axes = _axes_of_sums(sums, products)
    skip_odd_ends(sums, group.attrs.axes)
    if group.attrs.unused:
        skip_unused(sums, group.attrs, cut)
    panels = ceil(known(axes_of(products)[3]) / plan.registers.vectors)
    stays = shape.v_bytes(plan.rows * plan.columns, plan.frames) <= filled_bytes(target, 2)
    fetched = ceil(panels / target.cores) if stays else 1
    if group.attrs.plain_weights:
        transform_filters(s, sums, products, plan, target, knobs)
    is_fetched = plan.apart or not group.attrs.plain_weights
    _fetch_next(sums, axes, plan, width, fetched, target, knobs, weights_too=is_fetched)
    products.compute_at(result, at_panel)
    rows_out.compute_at(result, at_tile)
    in_columns_first(rows_out, held=held)
    for stage in tail:
        # What lies between the places of a tile is not its own.
        if max(axis.gap for axis in group.attrs.axes) > 1:
            stage.compute_inline()
            continue
        stage.compute_at(result, at_tile)
        _in_registers(stage)


def _shape_of(group: Group) -> WinogradShape:
    _, v, products, rows_out = group.anchor[:4]
    chunks, tiles, block = (int_value(d) or 1 for d in v.shape[3:])
    across = int_value(rows_out.shape[4]) or 1
    _, _, batch, filters, _, lanes = (int_value(d) or 1 for d in products.shape)
    outputs = filters * lanes
    channels = (chunks * block, outputs, lanes)
    attrs = group.attrs
    down = tiles // across
    how = (attrs.dilations, attrs.stride, attrs.unused, attrs.groups, attrs.plain_weights)
    sizes = (attrs.tile, down, across, *channels, batch)
    row = (int_value(group.anchor[-1].shape[-2]) or 1) if attrs.along_depth else 0
    return WinogradShape(*sizes, *how, kernel=attrs.kernel, row=row, depth=_depth_of(group))


def _depth_of(group: Group) -> Depth:
    """Return how the window moves along the depth of a volume; of an image not at all."""
    *_, result = group.anchor
    reduced = compute_of(group.schedule[group.anchor[2]]).reduce_axis
    if len(reduced) <= _DEEP + 1:
        return Depth()
    how = (group.attrs.deep_stride, group.attrs.deep_dilation)
    return Depth(int_value(result.shape[2]) or 1, known(reduced[_DEEP]), *how)


def _width(stage: Stage, target: Target) -> int:
    return max(1, known(axes_of(stage)[-1]) // lanes_of(stage, target))


def _result_loops(
    result: Stage,
    plan: Plan,
    attrs: Any,  # the record of the operator, which imports this module
    target: Target,
    *,
    held: bool,
    row: int,
) -> tuple[IterVar, IterVar, IterVar]:
    """Return the loops of the result at which V, the products and the last transform are made."""
    n, oc, *image, ow, ocb = axes_of(result)
    high, wide = attrs.axes
    panel, oc_inner = result.split(oc, factor=plan.registers.vectors)
    q, phase_across, c = _tile_loops(result, ow, wide)
    columns = plan.columns // wide.gap
    across, q = result.split(q, factor=min(columns, row or columns))
    groups, tiles, places = [across], [q, *phase_across], [c]
    if row:  # whole rows of an image, or a part of one
        rows, y = result.split(image.pop(), factor=max(1, columns // row))
        groups, tiles = [rows, across], [y, *tiles]
    if image:  # not a signal
        p, phase_down, r = _tile_loops(result, image.pop(), high)
        down, p = result.split(p, factor=max(1, plan.rows // high.gap))
        alone = plan.rows < high.gap  # a group is one row of tiles, of one phase
        outer, inner = (phase_down, []) if alone else ([], phase_down)
        groups, tiles, places = [down, *outer, *groups], [p, *inner, *tiles], [r, c]
        if held:
            result.unroll(r)
    if plan.frames > 1:
        deep, frame = result.split(image.pop(), factor=plan.frames)
        image, tiles = [deep], [frame, *tiles]
    groups = [n, *image, *groups]
    register, ocb = by_register(result, ocb, target)
    result.reorder(*groups, panel, oc_inner, *tiles, register, *places, ocb)
    result.unroll(c)
    result.vectorize(ocb)
    group = result.fuse(*groups, name="group")
    result.parallel(panel if plan.by_panel else group)
    return group, panel, register


def _tile_loops(
    result: Stage, axis: IterVar, along: FilterAxis
) -> tuple[IterVar, list[IterVar], IterVar]:
    """Return the loops over tiles, their phases where there are several, and the places in one."""
    phases = []
    if along.gap > 1:
        axis, phase = result.split(axis, factor=along.gap)
        phases = [phase]
    outer, inner = result.split(axis, factor=along.tile)
    return outer, phases, inner


def _input_transform(v: Stage, rows: Stage, plan: Plan, target: Target, attrs: Any) -> None:
    """Transform a row of tiles: the columns of pixels, each once; then the points, row by row.

    So an iteration writes six vectors, not a vector to each of 36 places far apart. Where only rows
    or only columns are filtered, a tile is transformed at once, in registers.
    """
    i, j, n, ic, t, icb = axes_of(v)
    high, wide = attrs.axes
    down, across = v.split(t, factor=plan.columns)
    register, icb = by_register(v, icb, target)
    tiles = v.split(across, factor=wide.gap) if wide.gap > 1 else (across,)
    at_once = min(high.points, wide.points) == 1
    points = (*tiles, i, j) if at_once else (i, *tiles, j)
    v.reorder(n, down, ic, register, *points, icb)
    v.unroll(j)
    v.vectorize(icb)
    if plan.by_panel:
        v.set_scope("workspace")
        v.parallel(v.fuse(n, down, ic, name="task"))  # a core made the rows it reads here
    if at_once:
        v.unroll(i)
        rows.compute_inline()
        return
    rows.compute_at(v, register)
    i, n, ic, p, w, icb = axes_of(rows)
    rows.reorder(n, ic, p, w, i, icb)
    rows.unroll(i)
    rows.vectorize(icb)


def _block_of_channels(
    products: Stage, shape: WinogradShape, plan: Plan, target: Target, knobs: Knobs
) -> int:
    """Return knob "reduction_block": blocks of input channels to sum at a time; 0: all of them.

    For weights that a run transforms by panel: the most for which level 2 keeps a panel's taps.
    """
    chunks = known(compute_of(products).reduce_axis[_CHANNELS])
    if not shape.plain_weights or plan.apart or shape.images > 1:
        return 0
    blocks, vectors = _divisors(chunks)[:-1], plan.registers.vectors
    fitting = [b for b in blocks if stays_near(shape, target, vectors, b / chunks)]
    usual = 0 if stays_near(shape, target, vectors) else max(fitting, default=0)
    return knobs.option("reduction_block", usual, (0, *blocks)) if blocks else 0


def _products(s: Schedule, products: Stage, plan: Plan, block: int) -> Stage:
    """Sums in registers per point, tiles and vectors; return their stage.

    With a `block` they are those of so many blocks of channels, added up in memory.
    """
    cut: tuple[IterVar, ...] = ()
    if block:
        sums = cut_reduction(products, block, _CHANNELS)
        cut = compute_of(products).reduce_axis
    else:
        sums = s[s.cache_write(compute_of(products).output(0), "local")]
    i, j, n, oc, t, ocb = axes_of(products)
    t_outer, t_inner = products.split(t, factor=plan.registers.rows)
    products.reorder(*cut, i, j, n, t_outer, oc, t_inner, ocb)
    products.unroll(oc)
    products.unroll(t_inner)
    products.vectorize(ocb)
    sums.compute_at(products, t_outer)
    op = compute_of(sums)
    *outside, oc, t, ocb = op.axis
    sums.reorder(*op.reduce_axis, *outside, t, oc, ocb)
    for axis in (*outside, t, oc):
        sums.unroll(axis)
    sums.vectorize(ocb)
    return sums


def _axes_of_sums(sums: Stage, products: Stage) -> tuple[list[IterVar], list[IterVar]]:
    """Return the axes of sums: that of the blocks of a cut reduction, if any, and the products'."""
    axes = list(compute_of(sums).axis)
    cut = len(axes) - len(axes_of(products))
    return axes[:cut], axes[cut:]


def transform_filters(
    s: Schedule, sums: Stage, products: Stage, plan: Plan, target: Target, knobs: Knobs
) -> None:
    """Transform plain weights for one row of points after the other, as the plan says where.

    What is transformed for one panel at a time is fetched evenly, while the panel before it is
    multiplied. Knob "fetch_next_taps".
    """
    u = s[compute_of(sums).input_tensors[1]]
    o, i, j, c, icb, ocb = axes_of(u)
    register, ocb = by_register(u, ocb, target)
    phases = [known(a) for a in compute_of(sums).reduce_axis[:2]]
    phase, c = u.split(c, nparts=prod(phases))
    u.unroll(phase)
    u.reorder(o, i, phase, c, icb, register, j, ocb)
    u.unroll(j)
    u.vectorize(ocb)
    if plan.apart:
        u.compute_root()
        u.parallel(u.fuse(o, i, name="task"))
        u.set_scope("workspace")
        return
    u.compute_at(products, axes_of(products)[0])
    if knobs.flag("fetch_next_taps", default=True):
        cut, (i, j, b, oc, *tiles, _) = _axes_of_sums(sums, products)
        taps, step = compute_of(u).input_tensors[0], plan.registers.vectors
        before: list[_Tiles] = [([*cut, i, j], 1), *_passes(b, tiles[-1], plan)]
        size = step * (size_of(taps.shape[1:]) or 0)
        level, loop = panel_level(target), _loop_of_lines(sums, size, before, target)
        sums.prefetch_panel(taps, loop, [oc], step=step, tiles=before, level=level)


def _passes(b: IterVar, t: IterVar, plan: Plan) -> list[_Tiles]:
    """Return the register tiles of a group that read the same weights."""
    of_frame: _Tiles = ([t], plan.registers.rows, plan.rows * plan.columns)
    return [([b], 1, plan.frames), of_frame] if plan.frames > 1 else [of_frame]


def _loop_of_lines(sums: Stage, size: int, tiles: Sequence[_Tiles], target: Target) -> IterVar:
    """Return the loop in whose iterations `tiles` share out `size` elements.

    Where a vector is shorter than a line the next step would ask for the same one: it is that over
    blocks of channels, if no iteration's share is more than a line then.
    """
    *outer, channels = compute_of(sums).reduce_axis
    shares = prod(map(known, outer)) * prod(Tiles(tuple(axes), *n).count for axes, *n in tiles)
    line, blocks = target.machine.line_bytes, outer[-1]
    is_even = known(blocks) > 1 and size * itemsize_of(sums) <= shares * line
    return blocks if target.vector_bytes < line and is_even else channels


def skip_odd_ends(sums: Stage, axes: Sequence[FilterAxis]) -> None:
    """Skip the products of odd images at infinity where they are zeros."""
    op = compute_of(sums)
    for axis, point, phase in zip(axes, op.axis[:2], op.reduce_axis[:2], strict=True):
        if axis.missing:
            sums.skip_past(phase, (point, phase), axis.products)


def _fetch_next(
    sums: Stage,
    axes: Sequence[IterVar],
    plan: Plan,
    width: int,
    panels: int,
    target: Target,
    knobs: Knobs,
    *,
    weights_too: bool,
) -> None:
    """Fetch what the sums read before they need it, without weights that were just written.

    Of weights one pass over the tiles of a group fetches those some steps ahead. Of several passes
    each fetches its share of the weights of the next point: so memory is read evenly all the time.
    Where all threads made V, those of the next point are fetched with every `panels`th panel of
    weights: from the other cores with the first of a thread, or always from a shared cache.
    Of V a step reads a line for each tile; where level 1 waits for fewer at once (`spares_buffers`)
    the steps before share them out, and what is in level 2 of the weights is fetched, too.
    """
    op = compute_of(sums)
    v, weights = op.input_tensors
    vectors, rows = plan.registers.vectors, plan.registers.rows
    i, j, b, oc, t, _ = axes
    ic, icb = op.reduce_axis[-2:]
    points = (oc, i, j)
    if plan.by_panel and knobs.flag("fetch_inputs", default=spares_buffers(target)):
        first = [([oc], vectors, vectors * panels)]
        sums.prefetch_panel(v, ic, points, step=vectors, tiles=first, once=True)
    are_lines = target.vector_bytes >= target.machine.line_bytes
    pays = are_lines and not spares_buffers(target)
    if steps := fetch_distance(knobs, "fetch_transformed", 1, pays=pays):
        sums.prefetch(v, ic, steps, spread=icb)
    if plan.frames == 1 and plan.rows * plan.columns <= rows:
        usual = ceil(steps_to_memory(tile_cycles(rows, vectors * width, target), target))
        if weights_too and (steps := fetch_distance(knobs, "fetch_weights", usual)):
            sums.prefetch(weights, icb, steps)
        return
    if steps := fetch_distance(knobs, "fetch_weights", STEPS_TO_LEVEL2, pays=pays):
        sums.prefetch(weights, icb, steps)
    if weights_too and knobs.flag("fetch_next_weights", default=True):
        tiles, level = _passes(b, t, plan), panel_level(target)
        size = vectors * (size_of(weights.shape[-3:]) or 0)
        loop = _loop_of_lines(sums, size, tiles, target)
        sums.prefetch_panel(weights, loop, points, step=vectors, tiles=tiles, level=level)


def in_columns_first(rows_out: Stage, *, held: bool) -> None:
    """Read a column of products once, for all rows; a loop over columns where rows go to memory."""
    n, oc, p, r, q, j, ocb = axes_of(rows_out)
    rows_out.reorder(n, oc, p, q, j, r, ocb)
    for axis in (n, oc, p, q, r, *([j] if held else [])):
        rows_out.unroll(axis)
    rows_out.vectorize(ocb)


def _in_registers(stage: Stage) -> None:
    *outer, last = axes_of(stage)
    for axis in outer:
        stage.unroll(axis)
    stage.vectorize(last)
