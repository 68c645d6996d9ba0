# SPDX-License-Identifier: Apache-2.0
"""Schedule of Winograd convolutions: groups of tiles are transformed, multiplied, put back.

The transformed inputs V of a group stay in the caches; the products M of one panel of output
channels never leave the core. Two shapes of loops:

few weights    parallel over groups of tiles: V of the group; per panel: products, outputs
many weights   per group of tiles: V, made by all threads; parallel over panels: products, outputs,
               so that the weights, more than a cache holds, are read once by one core
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from treadle.expr.nodes import Expr, int_value
from treadle.graph.operator import Group
from treadle.ops.schedules.stages import border_box, inline_moves, known, lanes_of, live_stages
from treadle.ops.schedules.tiles import Tile, best_tile
from treadle.target.base import Target
from treadle.te.schedule import Schedule, Stage
from treadle.te.tensor import ComputeOp, IterVar

LARGEST_LOCAL = 768 << 10
"""Bytes of V or M a thread may keep on its stack."""


@dataclass(frozen=True, slots=True)
class WinogradShape:
    """Sizes of one convolution: tiles down and across, channels, bytes."""

    tile: int
    down: int
    across: int
    inputs: int
    outputs: int
    block: int
    batch: int = 1

    @property
    def points(self) -> int:
        """How many products a tile has per pair of channels."""
        return (self.tile + 2) ** 2

    @property
    def weight_bytes(self) -> int:
        """The transformed weights."""
        return 4 * self.points * self.inputs * self.outputs

    def v_bytes(self, tiles: int) -> int:
        """The transformed inputs of some tiles."""
        return 4 * self.points * self.inputs * tiles


@dataclass(frozen=True, slots=True)
class Plan:
    """How the loops run: a group is `rows` rows of `columns` tiles."""

    rows: int
    columns: int
    registers: Tile
    by_panel: bool


def plan_winograd(shape: WinogradShape, target: Target, *, width: int = 1) -> Plan:
    """Return the grouping of tiles and the register tile; a vector takes `width` registers."""
    by_panel = _reads_weights_once(shape, target)
    budget = target.l2_bytes // 2 if by_panel else min(target.l2_bytes // 4, LARGEST_LOCAL)
    most = max(1, budget // shape.v_bytes(1))
    columns = min(shape.across, most)
    rows = max(1, min(shape.down, most // columns))
    if not by_panel:
        jobs = 2 * target.cores
        rows = max(1, min(rows, shape.down * shape.batch // jobs))
    rows = ceil(shape.down / ceil(shape.down / rows))
    columns = ceil(shape.across / ceil(shape.across / columns))
    vectors = shape.outputs // shape.block
    registers = best_tile(rows * columns, vectors, target, width=width)
    return Plan(rows, columns, registers, by_panel)


def _reads_weights_once(shape: WinogradShape, target: Target) -> bool:
    return shape.weight_bytes > target.l2_bytes // 2


def schedule_winograd(group: Group, target: Target) -> None:
    """See the module: transform, multiply and transform back one group of tiles after the other."""
    inline_moves(group)
    s = group.schedule
    rows_in, v, products, rows_out = (s[t] for t in group.anchor[:4])
    result = s[group.outputs[0]]
    plan = plan_winograd(_shape_of(group), target, width=_width(result, target))
    for axis, (begin, end) in border_box(result).items():
        if (begin, end) != (0, known(axis)):
            result.peel(axis, begin, end)
    tail = [x for x in live_stages(s) if not x.is_output and x is not products]
    at_group, at_panel, at_tile = _result_loops(result, plan, group.attrs.tile)
    _input_transform(v, rows_in, plan)
    v.compute_at(result, at_group)
    _products(s, products, plan).compute_at(result, at_panel)
    for stage in (rows_out, *tail):
        stage.compute_at(result, at_tile)
        _in_registers(stage)


def _size(extent: Expr) -> int:
    """Return an extent, 1 where it is symbolic."""
    return int_value(extent) or 1


def _shape_of(group: Group) -> WinogradShape:
    _, v, products, _ = group.anchor[:4]
    rows_out = group.anchor[3].op
    assert isinstance(rows_out, ComputeOp)
    across = known(rows_out.axis[3])
    points, _, batch, chunks, tiles, block = map(_size, v.shape)
    out_chunks, out_block = _size(products.shape[3]), _size(products.shape[5])
    return WinogradShape(
        points - 2,
        tiles // across,
        across,
        chunks * block,
        out_chunks * out_block,
        out_block,
        batch,
    )


def _width(stage: Stage, target: Target) -> int:
    return max(1, known(_axes(stage)[-1]) // lanes_of(stage, target))


def _result_loops(result: Stage, plan: Plan, tile: int) -> tuple[IterVar, IterVar, IterVar]:
    """Return the loops of the result at which V, the products and the last transform are made."""
    n, oc, oh, ow, ocb = _axes(result)
    panel, oc_inner = result.split(oc, factor=plan.registers.vectors)
    p, r = result.split(oh, factor=tile)
    q, c = result.split(ow, factor=tile)
    down, p = result.split(p, factor=plan.rows)
    across, q = result.split(q, factor=plan.columns)
    result.reorder(n, down, across, panel, oc_inner, p, q, r, c, ocb)
    result.unroll(r)
    result.unroll(c)
    result.vectorize(ocb)
    group = result.fuse(n, down, across)
    result.parallel(panel if plan.by_panel else group)
    return group, panel, q


def _input_transform(v: Stage, rows: Stage, plan: Plan) -> None:
    i, j, n, ic, t, icb = _axes(v)
    v.reorder(n, ic, t, i, j, icb)
    v.unroll(i)
    v.unroll(j)
    v.vectorize(icb)
    if plan.by_panel:
        v.set_scope("workspace")
        v.parallel(v.fuse(n, ic))
    rows.compute_at(v, t)
    _in_registers(rows)


def _products(s: Schedule, products: Stage, plan: Plan) -> Stage:
    """Sums in registers per point, tiles and vectors; return the stage that holds the products."""
    sums = s[s.cache_write(products.op.outputs[0], "local")]
    i, j, n, oc, t, ocb = _axes(products)
    t_outer, t_inner = products.split(t, factor=plan.registers.rows)
    products.reorder(i, j, n, t_outer, oc, t_inner, ocb)
    products.unroll(oc)
    products.unroll(t_inner)
    products.vectorize(ocb)
    sums.compute_at(products, t_outer)
    op = sums.op
    assert isinstance(op, ComputeOp)
    i, j, n, oc, t, ocb = op.axis
    sums.reorder(*op.reduce_axis, i, j, n, t, oc, ocb)
    for axis in (i, j, n, t, oc):
        sums.unroll(axis)
    sums.vectorize(ocb)
    return products


def _in_registers(stage: Stage) -> None:
    *outer, last = _axes(stage)
    for axis in outer:
        stage.unroll(axis)
    stage.vectorize(last)


def _axes(stage: Stage) -> tuple[IterVar, ...]:
    op = stage.op
    assert isinstance(op, ComputeOp)
    return op.axis
