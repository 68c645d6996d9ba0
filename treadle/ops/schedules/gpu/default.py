# SPDX-License-Identifier: Apache-2.0
"""The schedule for GPUs of element-wise operators and moves, and of anything unknown."""

from __future__ import annotations

from treadle.dtype import itemsize
from treadle.graph.operator import Group
from treadle.limits import DEVICE_LANES, DEVICE_THREADS, DEVICE_VECTORS
from treadle.ops.schedules.gpu.facts import gpu_of
from treadle.ops.schedules.gpu.row_blocks import schedule_blocks_of_rows
from treadle.ops.schedules.gpu.sums import schedule_sums
from treadle.ops.schedules.stages import (
    compute_of,
    is_costly,
    is_guarded,
    is_inlined,
    is_reduction,
    is_step,
    joint_axes,
    live_stages,
    size_of,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.tensor import thread_axis


def schedule_gpu(group: Group, target: Target, knobs: Knobs) -> None:
    """Inline what can be; rows with reductions are blocks, else an element of a stage a thread."""
    inline_moves(group)
    if schedule_blocks_of_rows(group, target, knobs):
        return

    def bind(stage: Stage) -> IterVar | None:
        return bind_elements(s, stage, target, knobs.within(stage.name), is_alone=True)

    s = group.schedule
    if schedule_sums(group, target, knobs, bind):
        return
    for stage in live_stages(group.schedule):
        schedule_elements(group.schedule, stage, target, knobs)


def inline_moves(group: Group) -> None:
    """Inline what can be evaluated where it is read at no extra cost, or at that of a test.

    A thread reads what it sums from a tensor behind a padding: to write that first takes longer.
    """
    s = group.schedule
    for stage in s.stages:
        if is_inlined(s, stage) or _is_padding(s, stage):
            stage.compute_inline()


def _is_padding(s: Schedule, stage: Stage) -> bool:
    is_inner = isinstance(stage.op, ComputeOp) and not stage.is_output and not is_step(stage)
    if not is_inner or not is_guarded(stage) or is_costly(stage):
        return False
    return all(isinstance(r.op, ComputeOp) for r in s.readers(stage))


def schedule_elements(s: Schedule, stage: Stage, target: Target, knobs: Knobs) -> None:
    """Give each element of a stage to a thread, which sums alone; knobs are within its name.

    before: for i: for j: C[i, j] = f   ->   after: for b in blocks: for t in threads: C[...] = f
    """
    local = None
    if is_reduction(stage) and compute_of(stage).axis:
        local = s[s.cache_write(stage.op.outputs[0], "local")]
    thread = bind_elements(s, stage, target, knobs.within(stage.name))
    if local is not None and thread is not None:
        local.compute_at(stage, thread)


def bind_elements(
    s: Schedule, stage: Stage, target: Target, knobs: Knobs, *, is_alone: bool = False
) -> IterVar | None:
    """Bind all axes of a stage, fused, to blocks of threads; return the loop over the threads.

    None for a stage without axes, which one thread computes. Where what is read and written lies in
    order, a thread takes as many elements as it can move at once; one if `is_alone`.
    """
    op = compute_of(stage)
    if not op.axis:
        return None
    gpu = gpu_of(target)
    usual = min(DEVICE_THREADS, gpu.block_threads)
    total = size_of(op.shape)
    lanes = 1 if is_alone else _lanes(s, stage)
    is_many = total is not None and total >= lanes * usual * gpu.multiprocessors
    is_wide = lanes > 1 and knobs.flag("vectors", default=is_many)
    fused = stage.fuse(*op.axis, name="element")
    if is_wide and total is not None:
        fused, lane = stage.split(fused, factor=lanes)
        stage.vectorize(lane)
        total //= lanes
    sizes = [n for n in (64, 128, 256, 512, 1024) if n <= gpu.block_threads and n != usual]
    if total is not None and total <= usual:
        usual, sizes = max(1, total), []
    threads = knobs.option("threads", usual, sizes)
    block, thread = stage.split(fused, factor=threads)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
    return thread


def _lanes(s: Schedule, stage: Stage) -> int:
    """Return how many elements of a stage a thread can move at once; 1 where that is in doubt."""
    op = compute_of(stage)
    width = max(itemsize(t.dtype) for t in (*op.outputs, *stage.inputs()))
    lanes = min(DEVICE_LANES, max(DEVICE_VECTORS) // width)
    run = size_of(tuple(a.extent for a in joint_axes(stage, s)))
    is_plain = not is_reduction(stage) and not is_guarded(stage) and len(op.body) == 1
    fits = run is not None and run > 0 and run % lanes == 0
    return lanes if is_plain and fits and itemsize(op.outputs[0].dtype) * lanes >= 8 else 1
