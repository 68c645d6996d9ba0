# SPDX-License-Identifier: Apache-2.0
"""Schedules for GPUs of reductions along rows: a block of threads for each row.

The threads combine strided parts of a row, then a few of them the parts, then each all that is
left: two trees of small depth with shared memory between them. All else of a row, as in a softmax
or a normalisation, is computed in the same launch.
"""

from __future__ import annotations

from treadle.dtype import itemsize
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.limits import (
    BLOCK_CHAIN_TERMS,
    BLOCK_ROW_TERMS,
    DEVICE_THREADS,
    LAST_TERMS,
    THREAD_TERMS,
)
from treadle.ops.schedules.gpu.facts import gpu_of
from treadle.ops.schedules.rows import is_along_rows, shared_rows
from treadle.ops.schedules.stages import (
    compute_of,
    is_reduction,
    is_step,
    itemsize_of,
    live_stages,
    size_of,
    walks_along,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.tensor import thread_axis


def schedule_blocks_of_rows(group: Group, target: Target, knobs: Knobs) -> bool:
    """Give each row to a block of threads; False where there are no rows, or too short ones.

    before: for i: max[i]; for i, j: exp[i, j]; for i: sum[i]; for i, j: y[i, j]
    after:  for i in blocks: for t in threads: max; exp[i, t...]; sum; y[i, t...]
    """
    s, gpu = group.schedule, gpu_of(target)
    for stage in live_stages(s):
        if is_step(stage) and not is_reduction(stage) and not stage.is_output:
            stage.compute_inline()  # sums of two: whoever reads one adds them
    live = live_stages(s)
    results = [x for x in live if x.is_output]
    if len(results) != 1 or not any(map(is_reduction, live)):
        return False
    (result,) = results
    count = shared_rows(s, live, result)
    if count == 0 or not _fits(s, live, result, count, gpu.block_bytes):
        return False
    widest = max(_width(x, count) for x in live)
    wanted = max(gpu.warp, 1 << (widest - 1).bit_length())
    usual = min(DEVICE_THREADS, gpu.block_threads, wanted)
    sizes = [n for n in (32, 64, 128, 256, 512) if n <= gpu.block_threads and n != usual]
    threads = knobs.option("row_threads", usual, sizes)
    if is_reduction(result):
        last = s[s.cache_write(result.op.outputs[0], "local")]
        live = [last if x is result else x for x in live] + [result]
    block = _result(result, count, threads)
    for stage in live:
        if stage is not result:
            _inside(s, stage, result, block, count, threads)
    return True


def _fits(s: Schedule, live: list[Stage], result: Stage, count: int, room: int) -> bool:
    """True where all of a row is known, is worth a block and fits into its shared memory."""
    if not is_along_rows(s, live, count):
        return False
    held = 0
    for stage in live:
        op = compute_of(stage)
        size, terms = size_of(op.shape[count:]), size_of(tuple(a.extent for a in op.reduce_axis))
        if size is None or terms is None or len(op.body) > 1 or size * terms == 0:
            return False
        is_shared = stage is not result and (size > 1 or is_reduction(stage))
        held += max(size, DEVICE_THREADS * 2) * itemsize_of(stage) * is_shared
    if held > room or itemsize(result.op.outputs[0].dtype) == 0:
        return False
    if len(live) > 1:  # in one launch instead of several
        return max(_row_size(x, count) for x in live) >= BLOCK_CHAIN_TERMS
    return _row_size(result, count) >= BLOCK_ROW_TERMS and _is_in_order(result)


def _is_in_order(stage: Stage) -> bool:
    """True where the terms that a stage combines are neighbours in memory."""
    return walks_along(stage, compute_of(stage).reduce_axis[-1])


def _width(stage: Stage, count: int) -> int:
    """Return how many threads of a block have something to do in a stage."""
    op = compute_of(stage)
    size = size_of(op.shape[count:]) or 1
    terms = size_of(tuple(a.extent for a in op.reduce_axis)) or 1
    return size if size > 1 else max(1, terms // THREAD_TERMS)


def _row_size(stage: Stage, count: int) -> int:
    """Return how many elements or terms of a row a stage goes through."""
    op = compute_of(stage)
    return size_of((*op.shape[count:], *(a.extent for a in op.reduce_axis))) or 1


def _result(result: Stage, count: int, threads: int) -> IterVar:
    """Bind the rows of the result to blocks and the rest to threads; return the loop of blocks."""
    axes = list(compute_of(result).axis)
    rows, rest = axes[:count], axes[count:]
    fused = result.fuse(*rows, name="row")
    if not rest:  # one thread stores the value of the row
        fused, one = result.split(fused, factor=1)
        rest = [one]
    result.bind(fused, thread_axis("blockIdx.x"))
    _over_threads(result, rest, threads)
    return fused


def _over_threads(stage: Stage, axes: list[IterVar], threads: int) -> IterVar:
    """Give the elements of some axes to the threads of a block, neighbours to neighbours.

    Return the loop in which one element is computed.
    """
    wide = stage.fuse(*axes, name="element")
    size = int_value(stage.extents()[wide]) or 1
    if size >= threads:
        repeat, thread = stage.split(wide, factor=threads)
        stage.reorder(thread, repeat)
    else:
        thread, repeat = stage.split(wide, nparts=threads)
    stage.bind(thread, thread_axis("threadIdx.x"))
    return repeat


def _inside(
    s: Schedule, stage: Stage, result: Stage, block: IterVar, count: int, threads: int
) -> None:
    """Compute a stage of a row inside the block of the row."""
    op = compute_of(stage)
    is_one = size_of(op.shape[count:]) == 1
    terms = size_of(tuple(a.extent for a in op.reduce_axis)) or 1
    if is_one and is_reduction(stage) and terms > 2 * LAST_TERMS:
        _tree(s, stage, result, block, threads)
        return
    stage.compute_at(result, block)
    if not is_one:
        held = s[s.cache_write(op.outputs[0], "local")] if is_reduction(stage) else None
        op = compute_of(stage)
        stage.set_scope("shared")
        inner = _over_threads(stage, list(op.axis[count:]), threads)
        if held is not None:
            held.compute_at(stage, inner)
        stage.reorder(*op.axis[:count], *(a for a in stage.leaf_iter_vars if a not in op.axis))


def _tree(s: Schedule, stage: Stage, result: Stage, block: IterVar, threads: int) -> None:
    """Combine the terms of a row by all threads, their results by some, the rest by each.

    before: y = sum over k of x[k]
    after:  p[t] = sum over k of x[k * 256 + t];  q[u] = sum over k of p[k * 16 + u];  y = sum of q
    """
    op = compute_of(stage)
    terms = stage.fuse(*op.reduce_axis, name="k")
    for width in (threads, LAST_TERMS):
        op = compute_of(stage)
        terms = op.reduce_axis[0] if terms not in stage.leaf_iter_vars else terms
        extent = int_value(stage.extents()[terms]) or 1
        if extent <= width:
            continue
        _, part = stage.split(terms, factor=width)
        partial = s[s.rfactor(op.outputs[0], part, factor_axis=len(op.axis))]
        partial.compute_at(result, block)
        partial.set_scope("shared")
        made = compute_of(partial)
        thread, rest = partial.split(made.axis[-1], nparts=threads)
        partial.reorder(*made.axis[:-1], thread, rest, *made.reduce_axis)
        partial.bind(thread, thread_axis("threadIdx.x"))
    stage.compute_at(result, block)
