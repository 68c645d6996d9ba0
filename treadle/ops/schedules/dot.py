# SPDX-License-Identifier: Apache-2.0
"""Schedules of sums of products of small integers: those of wider ones, with intrinsics inside."""

from __future__ import annotations

from dataclasses import replace

from treadle.expr.nodes import Cast
from treadle.graph.operator import Group
from treadle.ops.schedules.matmul import schedule_panels
from treadle.ops.schedules.plain_conv import schedule_plain_conv
from treadle.ops.schedules.stages import compute_of
from treadle.target.base import Target
from treadle.target.intrinsics.dots import dot_for
from treadle.te.intrinsics import Intrinsic
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, Reduce
from treadle.te.stage import Stage


def schedule_dense_dot(group: Group, target: Target, knobs: Knobs) -> None:
    """As `schedule_panels`; the steps of a word are one instruction where there is one."""
    found = _dot_of(group, target)
    schedule_panels(group, tiles_target(found, target), knobs)
    _tensorize_steps(group, found)


def schedule_conv_dot(group: Group, target: Target, knobs: Knobs) -> None:
    """As `schedule_plain_conv`; the steps of a word are one instruction where there is one."""
    found = _dot_of(group, target)
    schedule_plain_conv(group, tiles_target(found, target), knobs)
    _tensorize_steps(group, found)


def tiles_target(found: Intrinsic | None, target: Target) -> Target:
    """Return the target as tiles of sums by an instruction see it.

    One that does not add to its accumulator needs a register for its products; with none left an
    accumulator is stored and loaded in every step.
    """
    if found is None or found.accumulates:
        return target
    return replace(target, vector_registers=target.vector_registers - 1)


def _dot_of(group: Group, target: Target) -> Intrinsic | None:
    """Return the instruction for the steps of a word; None: there is none."""
    return dot_for(*_factor_types(_accumulators_of(group)), target)


def _tensorize_steps(group: Group, found: Intrinsic | None) -> None:
    """Move the loop over the steps of a word inside the lanes and let an intrinsic do it."""
    if found is None:
        return
    sums = _accumulators_of(group)
    step = compute_of(sums).reduce_axis[-1]
    sums.reorder(*(a for a in sums.leaf_iter_vars if a is not step), step)
    sums.tensorize(step, found)


def _factor_types(sums: Stage) -> tuple[str, str]:
    """Return the types of the factors, before they are widened to the type of their product."""
    body = compute_of(sums).body[0]
    assert isinstance(body, Reduce)
    a, b = (c.value if isinstance(c, Cast) else c for c in body.sources[0].children)
    return a.dtype, b.dtype


def _accumulators_of(group: Group) -> Stage:
    """Return the stage that is summed."""
    stages = group.schedule.stages
    return next(s for s in stages if isinstance(s.op, ComputeOp) and s.op.reduce_axis)
