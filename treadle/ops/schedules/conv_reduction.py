# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose reduction is cut into blocks, as that of a matrix product is (kc).

A tile of positions reads all weights of its channels, a panel. Where level 1 does not hold a panel,
every tile waits for level 2. So the sums of many tiles are kept in memory, and a block of input
channels is added to all of them: its part of the panel stays in level 1, its part of the data in
level 2 while several panels meet it (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.cost.forks import PANELS_PER_CORE
from treadle.cost.memory import filled_bytes, kept_bytes, local_bytes, waits_for_panel
from treadle.cost.registers import WindowTile
from treadle.expr.nodes import int_value
from treadle.limits import PANEL_GROUPS, PLACES_OF_BLOCK
from treadle.ops.schedules.conv_bands import band_sizes
from treadle.ops.schedules.stages import (
    compute_of,
    cut_reduction,
    is_long,
    itemsize_of,
    known,
    lanes_of,
    unroll_accumulators,
    unroll_short_steps,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar, Tensor
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True)
class ReductionBlocks:
    """How a convolution is cut: `channels` are blocks of input channels added in registers.

    `rows` of tiles are finished for `panels` of output channels, each as many as a tile has, before
    the next.
    """

    channels: int
    rows: int
    panels: int


@dataclass(frozen=True, slots=True)
class _Sizes:
    """A convolution's extents: blocks of input channels, taps of the window, planes, the image.

    `row` is the bytes of a row of one block of input channels, `step` the rows between windows.
    """

    channels: int
    inner: int
    taps: int
    high_taps: int
    planes: int
    rows: int
    columns: int
    outputs: int
    block: int
    row: int
    step: int
    deep_taps: int
    itemsize: int

    def data(self, band: int, tile: WindowTile) -> int:
        """Return the bytes of a block of channels that a band of tile rows reads."""
        high = (band * tile.high - 1) * self.step + self.high_taps
        return self.deep_taps * high * self.row

    def fits(self, channels: int, band: int, panels: int, tile: WindowTile, target: Target) -> bool:
        """True where all cores have work, level 2 holds a band's data and sums, the stack these."""
        vectors = panels * tile.vectors * self.block * self.itemsize
        sums = vectors * band * tile.high * self.columns
        data = channels * self.data(band, tile)
        bands = -(-self.rows // (band * tile.high))
        tasks = self.planes * bands * -(-self.outputs // (panels * tile.vectors))
        is_shared = tasks >= PANELS_PER_CORE * target.cores
        return is_shared and sums <= local_bytes(target) and data + sums <= kept_bytes(target, 2)


def may_cut(places: int, inputs: int, taps: int, groups: int, target: Target) -> bool:
    """True where the reduction of a convolution of so many results in a plane can be cut.

    Windows of one place read each value once, in an order that machines foresee: theirs is not
    unless a line of weights for each of the `inputs` takes a quarter of what level 2 keeps.
    """
    line = target.machine.line_bytes
    is_long = taps > 1 or 4 * inputs * line >= kept_bytes(target, 2)
    return groups == 1 and is_long and places >= PLACES_OF_BLOCK


def _sizes_of(total: Stage, data: Tensor) -> _Sizes | None:
    op = compute_of(total)
    n, oc, *deep, ocb = op.axis
    ic, *window, icb = op.reduce_axis
    extents = [*op.axis, *op.reduce_axis]
    read = [int_value(d) for d in data.shape[2:-1]]
    if any(int_value(a.extent) is None for a in extents) or None in read:
        return None
    lead = max(0, len(deep) - 2)
    rows, high = known(deep[lead]), read[lead] or 0
    return _Sizes(
        channels=known(ic),
        inner=known(icb),
        taps=prod(map(known, window)),
        high_taps=known(window[lead]),
        planes=known(n) * prod(map(known, deep[:lead])),
        rows=rows,
        columns=prod(map(known, deep[lead + 1 :])),
        outputs=known(oc),
        block=known(ocb),
        row=prod(d or 0 for d in read[lead + 1 :]) * known(icb) * itemsize_of(total),
        step=max(1, high // max(1, rows)),
        deep_taps=prod(map(known, window[:lead])),
        itemsize=itemsize_of(total),
    )


def pick_blocks(
    total: Stage, data: Tensor, tile: WindowTile, registers: int, target: Target, knobs: Knobs
) -> ReductionBlocks | None:
    """Return knobs "reduction_block", "band" and "panels"; None where the reduction is not cut.

    One that `may_cut` allows can be where a panel of the weights passes level 1, and is where the
    tiles would wait for it. A block of weights fits level 1, if that of one block of channels does;
    a band's data and sums fit level 2, and there is work for all cores.
    """
    found = _sizes_of(total, data)
    if found is None:
        return None
    block_steps = found.taps * found.inner
    block_bytes = block_steps * tile.vectors * found.block * found.itemsize
    positions, held = tile.high * tile.wide, tile.vectors * registers
    if found.channels * block_bytes <= filled_bytes(target, 1):
        return None
    cuts = [c for c in range(1, found.channels) if found.channels % c == 0]
    fitting = [c for c in cuts if c * block_bytes <= filled_bytes(target, 1)]
    steps = found.channels * block_steps
    waits = waits_for_panel(steps, positions, held, target, in_runs=found.taps == 1)
    default = max(fitting, default=min(cuts, default=0)) if waits else 0
    if not _most_rows(found, default, tile, target):
        default = 0
    channels = knobs.option("reduction_block", default, (0, *cuts))
    return _bands(found, channels, tile, target, knobs) if channels else None


def _most_rows(found: _Sizes, channels: int, tile: WindowTile, target: Target) -> int:
    """Return the most tile rows of a band that fits, 0 where none does."""
    bands = reversed(band_sizes(-(-found.rows // tile.high)))
    return next((b for b in bands if found.fits(channels, b, 1, tile, target)), 0)


def _bands(
    found: _Sizes, channels: int, tile: WindowTile, target: Target, knobs: Knobs
) -> ReductionBlocks:
    """Return the most rows that fit, and the most panels.

    Where level 2 holds the data of all channels, the next panel finds it there in any case; that of
    windows of one place is fetched ahead by the machine.
    """
    most = _most_rows(found, channels, tile, target) or 1
    band = knobs.option("band", most, reversed(band_sizes(-(-found.rows // tile.high))))
    stays = found.channels * found.data(band, tile) <= kept_bytes(target, 2)
    many = [p for p in PANEL_GROUPS if found.fits(channels, band, p, tile, target)]
    panels = 1 if stays or found.taps == 1 else max(many, default=1)
    return ReductionBlocks(channels, band, knobs.option("panels", panels, PANEL_GROUPS))


def run_blocks(
    total: Stage,
    result: Stage,
    axes: Sequence[IterVar],
    tile: WindowTile,
    registers: int,
    blocks: ReductionBlocks,
    target: Target,
    knobs: Knobs,
) -> Stage:
    """Compute the sums of a band in memory, a block of the reduction after the other.

    `axes` are those of the result; a vector takes `registers`. Return the stage of the sums of a
    block, which are in registers.
    """
    n, oc, *deep, oh, ow, ocb = axes
    group, inside = result.split(oc, factor=blocks.panels * tile.vectors)
    band, row = result.split(oh, factor=blocks.rows * tile.high)
    result.reorder(n, band, *deep, group, inside, row, ow, ocb)
    result.vectorize(ocb)
    task = result.fuse(n, band, *deep, group, name="task")
    if knobs.flag("parallel", default=is_long(total, lanes_of(result, target), target)):
        result.parallel(task)
    total.compute_at(result, task)
    part = cut_reduction(total, blocks.channels)
    _add_blocks(total, part, tile)
    cut, first, channels, *image, lane = compute_of(part).axis
    unroll_accumulators(part, (cut, first, *image, channels, lane))
    if known(lane) * itemsize_of(part) < target.machine.line_bytes:
        unroll_short_steps(part, tile.vectors * registers, knobs)
    return part


def _add_blocks(total: Stage, part: Stage, tile: WindowTile) -> None:
    """Add the sums of a block, tile by tile of all panels, before the next block."""
    op = compute_of(total)
    (block,) = op.reduce_axis
    n, channels, *image, lane = op.axis
    panel, vector = total.split(channels, factor=tile.vectors)
    factors = (tile.high, tile.wide)[: len(image)]
    lead = len(image) - len(factors)
    parts = [total.split(a, factor=f) for a, f in zip(image[lead:], factors, strict=True)]
    outer, inner = [o for o, _ in parts], [i for _, i in parts]
    total.reorder(n, block, panel, *image[:lead], *outer, vector, *inner, lane)
    for axis in (vector, *inner):
        total.unroll(axis)
    total.vectorize(lane)
    part.compute_at(total, outer[-1])
