# SPDX-License-Identifier: Apache-2.0
"""Schedules for GPUs of sums that are no tiles: of few elements, with what is computed of them."""

from __future__ import annotations

from collections.abc import Callable

from treadle.graph.operator import Group
from treadle.graph.types import same_dim
from treadle.limits import SUM_ELEMENTS, SUM_TERMS, SUM_WIDTH
from treadle.ops.schedules.gpu.facts import gpu_of
from treadle.ops.schedules.stages import (
    compute_of,
    inline_tail,
    is_reduction,
    known,
    live_stages,
    size_of,
    walks_along,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.stage import Stage
from treadle.te.tensor import thread_axis

Bind = Callable[[Stage], IterVar | None]
"""Binds the elements of a stage to threads; returns the loop over the threads of a block."""


def schedule_sums(group: Group, target: Target, knobs: Knobs, bind: Bind) -> bool:
    """Compute the one reduction of a group and its element-wise tail in one launch.

    False where there are more, or none, or where another stage follows. Few sums of many terms are
    divided among threads of a block, others have a thread each.
    """
    s = group.schedule
    sums = [x for x in live_stages(s) if is_reduction(x)]
    if len(sums) != 1 or not compute_of(sums[0]).axis:
        return False
    (total,) = sums
    result = tail_of(group, total, total)
    if total is not result:
        inline_tail(s, total)
    elif not total.is_output or any(x not in sums for x in live_stages(s)):
        return False
    if any(x not in (total, result) for x in live_stages(s)):
        return False
    few = _is_few(total, result, target) and knobs.flag("several_threads", default=True)
    if total is result:
        total = s[s.cache_write(total.op.outputs[0], "local")]
    if few:
        _by_several(group, total, result, target, knobs)
        return True
    thread = bind(result)
    assert thread is not None
    total.compute_at(result, thread)
    return True


def tail_of(group: Group, total: Stage, stored: Stage) -> Stage:
    """Return the result of a group where it is an element-wise tail of the sums, else the sums.

    It has the shape of `stored`, in which the sums are.
    """
    s = group.schedule
    if total.is_output or len(s.outputs) > 1:
        return total
    shape = compute_of(stored).shape
    after = [total]
    for stage in s.stages:
        if not any(stage in s.readers(x) for x in after):
            continue
        after.append(stage)
        op = stage.op
        if not isinstance(op, ComputeOp) or is_reduction(stage):
            return total
        if len(op.shape) != len(shape) or not all(map(same_dim, op.shape, shape)):
            return total
    return s[group.outputs[0]]


def _is_few(total: Stage, result: Stage, target: Target) -> bool:
    op = compute_of(total)
    elements = size_of(compute_of(result).shape)
    terms = size_of(tuple(a.extent for a in op.reduce_axis))
    if elements is None or terms is None or len(op.body) > 1:
        return False
    is_row = known(op.axis[-1]) >= SUM_WIDTH and walks_along(total, op.axis[-1])
    most = SUM_ELEMENTS * gpu_of(target).multiprocessors
    return is_row and terms >= SUM_TERMS and 0 < elements <= most


def _by_several(group: Group, total: Stage, result: Stage, target: Target, knobs: Knobs) -> None:
    """Let several threads sum the terms of an element in rotation, and one of them add their sums.

    before: for j: for k: y[j] += f(k, j)
    after:  for b in blocks: for t in threads.y: for u in threads.x: for k: p[t, u] += f(k * 16 + t)
                             for u in threads.x: y[b * 32 + u] = sum of p[..., u]
    """
    s, gpu = group.schedule, gpu_of(target)
    counts = [n for n in (16, 8, 4, 2) if n * SUM_WIDTH <= gpu.block_threads]
    count = knobs.option("threads_each", counts[0], counts[1:])
    op = compute_of(total)
    _, repeat = total.split(total.fuse(*op.reduce_axis, name="k"), factor=count)
    partial = s[s.rfactor(op.outputs[0], repeat, factor_axis=len(op.axis) - 1)]
    held = s[s.cache_write(partial.op.outputs[0], "local")]
    total.round_up(op.axis[-1])
    *others, last = compute_of(result).axis
    outer, element = result.split(last, factor=SUM_WIDTH)
    element, one = result.split(element, factor=1)
    first, _ = result.split(one, nparts=count)
    block = result.fuse(*others, outer, name="block")
    result.bind(block, thread_axis("blockIdx.x"))
    result.bind(element, thread_axis("threadIdx.x"))
    result.bind(first, thread_axis("threadIdx.y"))
    made = compute_of(partial)
    for stage in (partial, held):
        stage.round_up(compute_of(stage).axis[-1])
    partial.set_scope("shared")
    partial.compute_at(result, block)
    by_element, _ = partial.split(made.axis[-1], nparts=SUM_WIDTH)
    by_repeat, _ = partial.split(made.axis[-2], nparts=count)
    partial.reorder(by_repeat, by_element)
    partial.bind(by_element, thread_axis("threadIdx.x"))
    partial.bind(by_repeat, thread_axis("threadIdx.y"))
    held.compute_at(partial, by_element)
    total.compute_at(result, first)
