# SPDX-License-Identifier: Apache-2.0
"""Schedules of products and convolutions for GPUs: tiles in shared memory and in registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.cost.gpu import PARTS, WARP, ProductTile, parted_cycles, product_tiles
from treadle.dtype import bits
from treadle.graph.operator import Group
from treadle.limits import (
    DEVICE_AHEAD,
    DEVICE_AHEAD_THREADS,
    DEVICE_LANES,
    DEVICE_STEPS,
    GRID_BLOCKS,
    LEAST_DEVICE_STEPS,
)
from treadle.lower.fetch_ahead import FETCH_AHEAD
from treadle.lower.read_fragments import FRAGMENTS
from treadle.lower.reverse_odd_rows import REVERSE_ODD_ROWS
from treadle.lower.spread_columns import SPREAD_COLUMNS
from treadle.ops.schedules.gpu.default import bind_elements, schedule_elements, schedule_gpu
from treadle.ops.schedules.gpu.facts import gpu_of
from treadle.ops.schedules.gpu.sums import tail_of
from treadle.ops.schedules.stages import (
    compute_of,
    inline_tail,
    is_inlined,
    itemsize_of,
    known,
    live_stages,
)
from treadle.target.base import Target
from treadle.target.gpu_machine import Gpu
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.tensor import thread_axis


def schedule_staged(group: Group, target: Target, knobs: Knobs) -> None:
    """Let each block compute a tile of the result, and each of its threads a part in registers.

    Both factors come step by step into shared memory, fetched by all threads of the block; the
    element-wise tail is applied to the sums before they are stored.

    before: for m: for n: for k: C[m, n] += A[m, k] * B[k, n]
    after:  for tile in blocks: for part in threads: for k.outer:
                fetch A.left[k, m]; fetch B.right[k, n]
                for k.inner: for m, n of the part (unrolled): sums[m, n] += left[k, m] * right[k, n]
            for m, n of the part: C[m, n] = sums[m, n]
    """
    s = group.schedule
    left, right, total = (s[t] for t in group.anchor[:3])
    tiles = _tiles(group, target)
    if not tiles:
        schedule_gpu(group, target, knobs)
        return
    for stage in s.stages:
        if stage not in (left, right) and is_inlined(s, stage):
            stage.compute_inline()
    tile, count = _pick(tiles, total, target, knobs)
    result = _result(group, total)
    if count > 1:
        parts = _in_parts(s, left, right, total, count)
        _stored(group, total, result, parts, target, knobs)
    elif result is total:
        sums = s[s.cache_write(total.op.outputs[0], "local")]
        parts = _Parts(left, right, sums, result, in_images=False)
        _stored(group, total, result, parts, target, knobs)
    else:
        inline_tail(s, total)
        parts = _Parts(left, right, total, result, in_images=_has_pixels(group))
    for stage in live_stages(s):
        if stage not in (left, right, parts.sums, parts.result, total, result):
            schedule_elements(s, stage, target, knobs)
    _tile(parts, tile, gpu_of(target), knobs)


def _stored(
    group: Group, total: Stage, result: Stage, parts: _Parts, target: Target, knobs: Knobs
) -> None:
    """Schedule what is computed of sums that are stored: their tail, or the sum of their parts."""
    s = group.schedule
    if parts.result is total:
        return  # it has no tail, or one that is launched by itself
    if result is total:
        schedule_elements(s, total, target, knobs)
        return
    inline_tail(s, total)
    thread = bind_elements(s, result, target, knobs.within(result.name), is_alone=True)
    assert thread is not None
    total.compute_at(result, thread)


def _in_parts(s: Schedule, left: Stage, right: Stage, total: Stage, count: int) -> _Parts:
    """Divide the steps into parts that blocks of their own sum, and store.

    before: C[m, n] = sum over k   ->   after: P[p, m, n] = sum over k of part p; C = sum over P
    """
    (k,) = compute_of(total).reduce_axis
    part, _ = total.split(k, factor=known(k) // count)
    partial = s[s.rfactor(total.op.outputs[0], part, factor_axis=0)]
    sums = s[s.cache_write(partial.op.outputs[0], "local")]
    return _Parts(left, right, sums, partial, in_images=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """The stages of a product: both factors, the sums in registers, what is stored.

    `in_images`: what is stored are images [n, oc, pixels], the sums are [g, oc, n * pixels].
    """

    left: Stage
    right: Stage
    sums: Stage
    result: Stage
    in_images: bool


def _has_pixels(group: Group) -> bool:
    """True for a convolution: its sums are stored as images."""
    return hasattr(group.attrs, "groups")


def _result(group: Group, total: Stage) -> Stage:
    """Return what is stored: a tail of the sums, or the sums."""
    s = group.schedule
    return tail_of(group, total, s[group.anchor[3]] if _has_pixels(group) else total)


def _places(sums: Stage, tile: ProductTile, steps: int, block_bytes: int) -> int:
    """Return in how many places of shared memory steps are stored by turns: 2 where they fit."""
    size = (tile.rows + tile.columns) * steps * itemsize_of(sums)
    return 2 if 2 * size <= block_bytes else 1


def _tile(parts: _Parts, tile: ProductTile, gpu: Gpu, knobs: Knobs) -> None:
    result, sums = parts.result, parts.sums
    matrices, m, n = _matrix(parts)
    m_outer, m_parts, m_inner = _divide(result, m, tile.rows, tile.thread_rows, WARP[0])
    n_outer, n_parts, n_inner = _divide(result, n, tile.columns, tile.thread_columns, WARP[1])
    n_inner, lane = result.split(n_inner, factor=DEVICE_LANES)
    threads = (m_parts[0], n_parts[0], m_parts[1], n_parts[1])
    result.reorder(*matrices, m_outer, n_outer, *threads, m_inner, n_inner, lane)
    thread = result.fuse(*threads, name="thread")
    result.bind(n_outer, thread_axis("blockIdx.x"))
    result.bind(m_outer, thread_axis("blockIdx.y"))
    if matrices:
        result.bind(result.fuse(*matrices, name="matrix"), thread_axis("blockIdx.z"))
    result.bind(thread, thread_axis("threadIdx.x"))
    result.unroll(m_inner)
    result.unroll(n_inner)
    result.vectorize(lane)
    sums.compute_at(result, thread)
    op = compute_of(sums)
    for axis in op.axis[-2:]:
        sums.round_up(axis)
    (k,) = op.reduce_axis
    ahead = tile.ahead(gpu) if itemsize_of(sums) == 4 else 0
    steps = _steps(ahead or DEVICE_STEPS, known(k))
    steps = knobs.option("steps", steps, [n for n in (8, 16) if known(k) % n == 0])
    k_outer, k_inner = sums.split(k, factor=steps)
    sums.reorder(k_outer, k_inner, *op.axis)
    if knobs.flag("fetch_ahead", default=steps == ahead or _can_wait(tile, steps)):
        places = knobs.option("places", _places(sums, tile, steps, gpu.block_bytes), (1,))
        sums.pragma(k_outer, FETCH_AHEAD, places)
        if places == 2 and knobs.flag("fragments", default=steps == ahead):
            sums.pragma(k_outer, FRAGMENTS, True)
            sums.pragma(op.axis[-2], REVERSE_ODD_ROWS, True)
    for axis in (k_inner, *op.axis[-2:]):
        sums.unroll(axis)
    sides = ((parts.left, tile.rows, True), (parts.right, tile.columns, False))
    for stage, length, by_steps in sides:
        stage.round_up(compute_of(stage).axis[-1])
        stage.set_scope("shared")
        stage.compute_at(sums, k_outer)
        lane = _fetch(stage, length * steps // DEVICE_LANES, tile.threads, by_steps=by_steps)
        if stage is parts.right and tile.thread_columns > DEVICE_LANES:
            stage.pragma(lane, SPREAD_COLUMNS, tile.thread_columns)


def _can_wait(tile: ProductTile, steps: int) -> bool:
    """True where registers are left for the next step, and there are warps that need it early."""
    held = (tile.rows + tile.columns) * steps // tile.threads
    return held <= DEVICE_AHEAD and tile.threads >= DEVICE_AHEAD_THREADS


def _steps(wanted: int, k: int) -> int:
    return wanted if k % wanted == 0 else LEAST_DEVICE_STEPS


def _matrix(parts: _Parts) -> tuple[list[IterVar], IterVar, IterVar]:
    """Return the axes of the result that count matrices, and those of rows and columns of one."""
    result = parts.result
    axes = list(compute_of(result).axis)
    if not parts.in_images:
        return axes[:-2], axes[-2], axes[-1]
    images, filters, pixels = axes
    rows = known(compute_of(parts.sums).axis[-2])
    groups = []
    if known(filters) != rows:
        outer, filters = result.split(filters, factor=rows)
        groups.append(outer)
    result.reorder(*groups, filters, images, pixels)
    return groups, filters, result.fuse(images, pixels, name="pixel")


def _divide(
    stage: Stage, axis: IterVar, size: int, part: int, lanes: int
) -> tuple[IterVar, tuple[IterVar, IterVar], IterVar]:
    """Split an axis into tiles, warps and threads of each, and the elements of a thread."""
    outer, inside = stage.split(axis, factor=size)
    warp, inside = stage.split(inside, factor=lanes * part)
    thread, inner = stage.split(inside, factor=part)
    return outer, (warp, thread), inner


def _tiles(group: Group, target: Target) -> list[ProductTile]:
    """Return the tiles that are no larger than the result and that a block of threads can hold.

    Where there are several matrices of filters, tiles end with them.
    """
    gpu, op = gpu_of(target), compute_of(group.schedule[group.anchor[2]])
    rows, columns = (known(a) for a in op.axis[-2:])
    size = bits(op.outputs[0].dtype) // 8
    is_grouped = _has_pixels(group) and known(op.axis[0]) != 1

    def fits(tile: ProductTile) -> bool:
        is_inside = tile.rows <= (rows or tile.rows) and tile.columns <= (columns or tile.columns)
        held = (tile.rows + tile.columns) * tile.steps(gpu) * size
        is_even = not is_grouped or rows % tile.rows == 0
        has_room = tile.threads <= gpu.block_threads and held <= gpu.block_bytes
        is_listed = max(prod(map(known, op.axis[:-2])), rows // tile.rows) <= GRID_BLOCKS
        return is_inside and is_even and has_room and is_listed

    return [t for t in product_tiles(gpu, size) if fits(t)]


def _pick(
    tiles: list[ProductTile], total: Stage, target: Target, knobs: Knobs
) -> tuple[ProductTile, int]:
    """Return the tile, and into how many parts the steps are divided."""
    gpu, op = gpu_of(target), compute_of(total)
    *batch, rows, columns = (known(a) for a in op.axis)
    steps = known(op.reduce_axis[0])
    counts = [n for n in PARTS if steps % (8 * n) == 0]

    def cycles(tile: ProductTile, count: int) -> float:
        return parted_cycles(prod(batch), rows, columns, steps, count, tile, gpu)

    tile = knobs.pick("tile", tiles, cost=lambda t: min(cycles(t, n) for n in counts))
    return tile, knobs.pick("parts", counts, cost=lambda n: cycles(tile, n))


def _fetch(stage: Stage, vectors: int, threads: int, *, by_steps: bool) -> IterVar:
    """Let the threads of a block bring a factor's tile in, neighbours reading neighbours.

    Return the loop over the elements of a vector.

    `by_steps`: elements are neighbours in memory along the steps, else along the other axis. There
    are so many `vectors` to bring.
    """
    *batch, k, other = compute_of(stage).axis
    outer, inner = (other, k) if by_steps else (k, other)
    vector, lane = stage.split(inner, factor=DEVICE_LANES)
    stage.reorder(*batch, outer, vector, lane)
    fused = stage.fuse(outer, vector, name="element")
    if vectors >= threads:
        repeat, thread = stage.split(fused, factor=threads)
    else:  # some of them have nothing to bring
        thread, repeat = stage.split(fused, nparts=threads)
    stage.bind(thread, thread_axis("threadIdx.x"))
    stage.unroll(repeat)
    stage.vectorize(lane)
    return lane
