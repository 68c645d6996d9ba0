# SPDX-License-Identifier: Apache-2.0
"""What convolutions in the blocked layout fetch before they read it."""

from __future__ import annotations

from math import ceil, prod

from treadle.cost.memory import (
    BLOCKS_AHEAD,
    fetches_by_step,
    is_met,
    is_near_again,
    kept_bytes,
    outlast_products,
    panel_level,
    spares_buffers,
    steps_to_cores,
    steps_to_memory,
)
from treadle.cost.registers import WindowTile, tile_cycles
from treadle.dtype import itemsize
from treadle.expr import nodes as ex
from treadle.expr.nodes import int_value
from treadle.expr.traversal import walk
from treadle.ops.schedules.stages import (
    compute_of,
    fetch_distance,
    itemsize_of,
    known,
    size_of,
    unroll_short_steps,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.stage import Stage


def fetch_operands(
    total: Stage, result: Stage, step: IterVar, target: Target, knobs: Knobs
) -> None:
    """Fetch what the epilogue of a tile reads while its accumulators are computed.

    That is worth it where level 2 of the caches does not hold so much as the result.
    """
    op = total.op
    assert isinstance(op, ComputeOp)
    elements = size_of(op.shape)
    if elements is None:
        return
    others = [t for t in result.inputs() if t not in op.input_tensors]
    operands = [t for t in others if size_of(t.shape) == elements and _is_in_memory(result, t)]
    evicted = elements * itemsize_of(total) > kept_bytes(target, 2)
    if operands and knobs.flag("fetch_operands", default=evicted):
        for source in operands:
            result.prefetch(source, step, 0)


def fetch_ahead(
    total: Stage, tile: WindowTile, registers: int, target: Target, knobs: Knobs
) -> None:
    """Fetch what the sums read before they need it.

    Past the end of a tile's panels of weights stand those of the next tile. Where so few positions
    are computed that weights alone decide, they are a stream that the machine foresees by itself;
    where they stay in the first cache for many tiles, only the first of them waits.
    Of the data a tile takes short rows, far apart, which no prefetcher of the machine foresees;
    windows larger than 1x1 read each of them several times, which hides the wait where level 1
    waits for all of them at once (`spares_buffers`). Where a tile has few steps, most fetches would
    be of what stands past the last of its channels.
    Of vectors shorter than a line see `_fetch_short_steps`.
    """
    op = total.op
    assert isinstance(op, ComputeOp)
    step = tile_cycles(tile.high * tile.wide, tile.vectors * registers, target)
    weights = _weights_of(total)
    icb = op.reduce_axis[-1]
    positions = prod(known(a) for a in (*op.axis[:1], *op.axis[2:-1]))
    size = (size_of(weights.shape) or 0) * itemsize(weights.dtype)
    vector_bytes = known(op.axis[-1]) * itemsize_of(total)
    tiles = -(-positions // (tile.high * tile.wide))
    pays = fetches_by_step(vector_bytes, tiles, target)
    pays &= tiles == 1 or spares_buffers(target)
    pays &= not _is_stream(size, positions, tile, target)
    if vector_bytes < target.machine.line_bytes:
        vectors = tile.vectors * registers
        _fetch_short_steps(total, weights, vectors, step, target, knobs, pays=pays)
    elif _is_in_memory(total, weights):
        usual = steps_to_memory(step, target)
        panel = tile.vectors * size // max(1, known(op.axis[1]))
        passes = positions // (tile.high * tile.wide)
        pays &= not is_near_again(panel, size, passes, target)
        _fetch(total, weights, icb, "fetch_weights", usual, knobs, pays=pays)
    _fetch_data(total, weights, step, target, knobs)


def _fetch_short_steps(
    total: Stage,
    weights: Tensor,
    vectors: int,
    step: float,
    target: Target,
    knobs: Knobs,
    *,
    pays: bool,
) -> None:
    """Write the channels of a block out, and fetch weights once for all of them, if that `pays`.

    A line holds several steps' weights and several positions' data: fetched by each step it would
    be fetched again, and the few multiply-adds of a step do not hide what that takes besides.
    """
    *_, icb = compute_of(total).reduce_axis
    unroll_short_steps(total, vectors, knobs)
    if not _is_in_memory(total, weights):
        return
    outside = _loop_of_lines(total, target)
    steps = 1 if outside is icb else known(icb)
    ahead = steps_to_memory(step * steps, target)
    _fetch(total, weights, outside, "fetch_weights", ahead, knobs, pays=pays)


def _fetch_data(total: Stage, weights: Tensor, step: float, target: Target, knobs: Knobs) -> None:
    """Fetch the data of the next channels ahead: see `fetch_ahead` for which windows.

    Positions shorter than a line are fetched by blocks of channels, where level 2 keeps not all.
    """
    op = compute_of(total)
    ic, *taps, icb = op.reduce_axis
    data = next(t for t in op.input_tensors if t is not weights)
    looks_up = len(op.input_tensors) > 2  # the channels of a group
    if looks_up or not _is_in_memory(total, data):
        return
    is_short = known(op.axis[-1]) * itemsize_of(total) < target.machine.line_bytes
    is_point = prod(known(a) for a in taps[-2:]) == 1
    if not is_point and (is_short or spares_buffers(target)):
        return
    spread: IterVar | None = None
    if is_short:
        ahead = BLOCKS_AHEAD
        is_far = (size_of(data.shape) or 0) * itemsize(data.dtype) > kept_bytes(target, 2)
    else:
        iteration = step * max(1, known(icb)) * prod(known(a) for a in taps)
        ahead, is_far, spread = ceil(steps_to_cores(iteration, target)), True, icb
    pays = is_far and is_met(known(ic), ahead)
    _fetch(total, data, ic, "fetch_data", ahead, knobs, pays=pays, spread=spread)


def share_next_panels(
    total: Stage, tile: WindowTile, rows: int, target: Target, knobs: Knobs, panels: int = 0
) -> None:
    """Fetch the panels after these evenly while the tiles of these are computed.

    The first tile to read a panel would else wait for memory, which gives less than a tile
    multiplies by, and in the other tiles memory would be idle. Weights that stay in level 2 come
    from there in most tiles. `rows` of tiles (0: of any image) read a panel before the next one.
    Of a reduction in blocks, each of which so many `panels` meet, a tile reads one: after it the
    next one of the panel is read or, where there are several panels, that of the next.
    """
    op, weights = compute_of(total), _weights_of(total)
    size = (size_of(weights.shape) or 0) * itemsize(weights.dtype)
    cut = op.axis[:1] if panels else ()
    _, oc, *places, _ = op.axis[len(cut) :]
    down, *across = places[-2:]
    is_one = 0 < known(down) <= tile.high and all(0 < known(a) <= tile.wide for a in across)
    if is_one or not _is_in_memory(total, weights):
        return
    if knobs.flag("fetch_panel", default=size > kept_bytes(target, 2)):
        of_band = ([down], tile.high, rows * tile.high) if rows else ([down], tile.high)
        tiles = [of_band, *(([a], tile.wide) for a in across)]
        loop = _loop_of_lines(total, target)
        level = panel_level(target)
        ahead = [oc, *cut] if panels == 1 else [oc]
        total.prefetch_panel(weights, loop, ahead, step=tile.vectors, tiles=tiles, level=level)


def _loop_of_lines(total: Stage, target: Target) -> IterVar:
    """Return the innermost loop of the sums of which an iteration reads whole lines of weights."""
    op = compute_of(total)
    *outer, icb = op.reduce_axis
    if known(op.axis[-1]) * itemsize_of(total) >= target.machine.line_bytes:
        return icb
    return next((a for a in reversed(outer) if int_value(a.extent) != 1), icb)


def _is_stream(size: int, positions: int, tile: WindowTile, target: Target) -> bool:
    """Return whether weights are read once, and take longer to read than to multiply."""
    return positions <= tile.high * tile.wide and outlast_products(size, positions, target)


def _fetch(
    total: Stage,
    tensor: Tensor,
    axis: IterVar,
    name: str,
    usual: float,
    knobs: Knobs,
    *,
    pays: bool = True,
    spread: IterVar | None = None,
) -> None:
    """Fetch a tensor some iterations of an axis before its use: a knob, by default `usual`."""
    if steps := fetch_distance(knobs, name, ceil(usual), pays=pays):
        total.prefetch(tensor, axis, steps, spread=spread)


def _weights_of(total: Stage) -> Tensor:
    op = compute_of(total)
    loads = (n for n in walk(op.body[0]) if isinstance(n, ex.Load))
    weights = next(x.source for x in loads if x.indices[-1] is op.axis[-1])
    assert isinstance(weights, Tensor)
    return weights


def _is_in_memory(reader: Stage, tensor: Tensor) -> bool:
    return reader.schedule[tensor].attach.kind == "root"
