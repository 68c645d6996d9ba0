# SPDX-License-Identifier: Apache-2.0
"""The schedule for GPUs of element-wise operators and moves, and of anything unknown."""

from __future__ import annotations

from treadle.graph.operator import Group
from treadle.ops.schedules.gpu.facts import gpu_of
from treadle.ops.schedules.gpu.rows import schedule_blocks_of_rows
from treadle.ops.schedules.stages import (
    compute_of,
    inline_movement,
    is_reduction,
    live_stages,
    size_of,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.tensor import thread_axis

_USUAL_THREADS = 256


def schedule_gpu(group: Group, target: Target, knobs: Knobs) -> None:
    """Inline what can be; rows with reductions are blocks, else an element of a stage a thread."""
    inline_movement(group)
    if schedule_blocks_of_rows(group, target, knobs):
        return
    for stage in live_stages(group.schedule):
        schedule_elements(group.schedule, stage, target, knobs)


def schedule_elements(s: Schedule, stage: Stage, target: Target, knobs: Knobs) -> None:
    """Give each element of a stage to a thread, which sums alone; knobs are within its name.

    before: for i: for j: C[i, j] = f   ->   after: for b in blocks: for t in threads: C[...] = f
    """
    local = None
    if is_reduction(stage) and compute_of(stage).axis:
        local = s[s.cache_write(stage.op.outputs[0], "local")]
    thread = bind_elements(stage, target, knobs.within(stage.name))
    if local is not None and thread is not None:
        local.compute_at(stage, thread)


def bind_elements(stage: Stage, target: Target, knobs: Knobs) -> IterVar | None:
    """Bind all axes of a stage, fused, to blocks of threads; return the loop over the threads.

    None for a stage without axes, which one thread computes.
    """
    op = compute_of(stage)
    if not op.axis:
        return None
    gpu = gpu_of(target)
    fused = stage.fuse(*op.axis, name="element")
    usual = min(_USUAL_THREADS, gpu.block_threads)
    sizes = [n for n in (64, 128, 256, 512, 1024) if n <= gpu.block_threads and n != usual]
    total = size_of(op.shape)
    if total is not None and total <= usual:
        usual, sizes = max(1, total), []
    threads = knobs.option("threads", usual, sizes)
    block, thread = stage.split(fused, factor=threads)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
    return thread
