# SPDX-License-Identifier: Apache-2.0
"""Schedule of Winograd convolutions of images whose sizes only the run knows.

As `winograd` where weights are few: threads take groups of tiles, and of each group V, the products
of a panel and the outputs. A group is always as many rows and columns of tiles, what lies over the
edge of the image included: that is computed and not stored, so that registers hold whole tiles of
sums for any size. How large a group is follows from what it takes on typical images.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from treadle.cost.unknown import IMAGE_EXTENT, IMAGE_WIDTHS
from treadle.cost.winograd import (
    Grouping,
    WinogradShape,
    fits_apart,
    fits_group,
    holds_a_tile,
)
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.limits import GROUP_COLUMNS, GROUP_ROWS
from treadle.ops.schedules.stages import (
    axes_of,
    by_register,
    compute_of,
    inline_movement,
    known,
    lanes_of,
    live_stages,
    peel_border,
    skip_unused,
)
from treadle.ops.schedules.winograd import (
    Plan,
    in_columns_first,
    plan_of_group,
    skip_odd_ends,
    transform_filters,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def plan_winograd_dynamic(
    shape: WinogradShape, target: Target, *, width: int = 1, knobs: Knobs | None = None
) -> Plan:
    """Return the grouping that takes the fewest cycles per output of typical images.

    `shape` has sizes of one image, which do not count; the plan's cycles are those of it.
    """
    asked = Knobs() if knobs is None else knobs
    groups = [
        Grouping(r, c, by_panel=False, joint=False) for r in GROUP_ROWS for c in GROUP_COLUMNS
    ]
    fitting = [g for g in groups if fits_group(shape, target, g)] or groups[:1]
    if fits_apart(shape, target):
        fitting += [replace(group, apart=True) for group in fitting]

    def cycles(group: Grouping) -> float:
        return sum(
            plan_of_group(_filled(shape, group, size), target, group, Knobs(), width=width).cycles
            / size**2
            for size in IMAGE_WIDTHS
        )

    group = asked.pick("group", fitting, cost=cycles)
    filled = replace(
        shape,
        down=shape.down + -shape.down % group.rows,
        across=shape.across + -shape.across % group.columns,
    )
    return plan_of_group(filled, target, group, asked, width=width)


def _filled(shape: WinogradShape, group: Grouping, size: int) -> WinogradShape:
    """Return the shape of images of a size, filled up to whole groups."""
    tiles = ceil(size / shape.tile)
    return replace(shape, down=tiles + -tiles % group.rows, across=tiles + -tiles % group.columns)


def schedule_winograd_dynamic(group: Group, target: Target, knobs: Knobs) -> None:
    """See the module: transform, multiply and transform back one group of tiles after the other."""
    inline_movement(group)
    s = group.schedule
    rows_in, v, products, rows_out = (s[t] for t in group.anchor[:4])
    result = s[group.outputs[0]]
    tile = group.attrs.tile
    width = max(1, known(axes_of(result)[-1]) // lanes_of(result, target))
    plan = plan_winograd_dynamic(_shape_of(group), target, width=width, knobs=knobs)
    peel_border(result)
    for stage in live_stages(s):
        if not stage.is_output and stage is not products:
            stage.compute_inline()
    held = knobs.flag("rows_in_registers", default=holds_a_tile(group.attrs.axes, target))
    at_group, at_panel, at_tile = _result_loops(result, plan, tile, target, held=held)
    _input_transform(v, rows_in, target)
    v.compute_at(result, at_group)
    sums = _products(s, products, plan)
    skip_odd_ends(sums, group.attrs.axes)
    if group.attrs.unused:
        skip_unused(sums, group.attrs)
    if group.attrs.plain_weights:
        transform_filters(s, sums, products, plan, target, knobs)
    products.compute_at(result, at_panel)
    rows_out.compute_at(result, at_tile)
    rows_out.round_up(axes_of(rows_out)[3])
    in_columns_first(rows_out, held=held)


def _shape_of(group: Group) -> WinogradShape:
    _, v, products, _ = group.anchor[:4]
    chunks, block, filters, lanes = (
        int_value(d) or 1 for d in (v.shape[3], v.shape[6], products.shape[3], products.shape[6])
    )
    attrs = group.attrs
    tiles = ceil(IMAGE_EXTENT / attrs.tile)
    down, across = (int_value(d) or tiles for d in v.shape[4:6])
    return WinogradShape(
        attrs.tile,
        down,
        across,
        chunks * block,
        filters * lanes,
        lanes,
        int_value(v.shape[2]) or 1,
        stride=attrs.stride,
        unused=attrs.unused,
        plain_weights=attrs.plain_weights,
    )


def _result_loops(
    result: Stage, plan: Plan, tile: int, target: Target, *, held: bool
) -> tuple[IterVar, IterVar, IterVar]:
    """Return the loops of the result at which V, the products and the last transform are made."""
    n, oc, oh, ow, ocb = axes_of(result)
    panel, oc_inner = result.split(oc, factor=plan.registers.vectors)
    down, y = result.split(oh, factor=plan.rows * tile, tail="shorten")
    across, z = result.split(ow, factor=plan.columns * tile, tail="shorten")
    p, r = result.split(y, factor=tile)
    q, c = result.split(z, factor=tile)
    register, ocb = by_register(result, ocb, target)
    result.reorder(n, down, across, panel, oc_inner, p, q, register, r, c, ocb)
    if held:
        result.unroll(r)
    result.unroll(c)
    result.vectorize(ocb)
    group = result.fuse(n, down, across, name="group")
    result.parallel(group)
    return group, panel, register


def _input_transform(v: Stage, rows: Stage, target: Target) -> None:
    """Transform a row of tiles: the columns of pixels, each once; then the points, row by row."""
    i, j, n, ic, p, q, icb = axes_of(v)
    v.round_up(p)
    v.round_up(q)
    register, icb = by_register(v, icb, target)
    v.reorder(n, p, ic, register, i, q, j, icb)
    v.unroll(j)
    v.vectorize(icb)
    rows.compute_at(v, register)
    i, n, ic, p, w, icb = axes_of(rows)
    rows.round_up(p)
    rows.round_up(w)
    rows.reorder(n, ic, p, w, i, icb)
    rows.unroll(i)
    rows.vectorize(icb)


def _products(s: Schedule, products: Stage, plan: Plan) -> Stage:
    """Sums in registers per point, tiles of a row and vectors; return their stage."""
    sums = s[s.cache_write(products.op.outputs[0], "local")]
    i, j, n, oc, p, q, ocb = axes_of(products)
    products.round_up(p)
    products.round_up(q)
    outer, inner = products.split(q, factor=plan.registers.rows)
    products.reorder(i, j, n, p, outer, oc, inner, ocb)
    products.unroll(oc)
    products.unroll(inner)
    products.vectorize(ocb)
    sums.compute_at(products, outer)
    op = compute_of(sums)
    i, j, n, oc, p, q, ocb = op.axis
    sums.round_up(p)
    sums.round_up(q)
    sums.reorder(*op.reduce_axis, i, j, n, p, q, oc, ocb)
    for axis in (i, j, n, p, q, oc):
        sums.unroll(axis)
    sums.vectorize(ocb)
    return sums
