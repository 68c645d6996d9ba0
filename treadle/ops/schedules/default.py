# SPDX-License-Identifier: Apache-2.0
"""The schedule of element-wise operators, moves and plain reductions, and of anything unknown."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle.cost.forks import STRIPS_PER_CORE, VECTOR_ROWS_PER_CORE, least_elements
from treadle.cost.memory import stream_vectors
from treadle.dtype import itemsize
from treadle.expr.nodes import int_value
from treadle.graph.operator import Group
from treadle.ops.schedules.rows import schedule_rows
from treadle.ops.schedules.stages import (
    Transposition,
    is_reduction,
    is_shared,
    joint_axes,
    known,
    lanes_of,
    live_stages,
    size_of,
    transposed_axis,
    vector_lengths,
    walks_along,
)
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage

_IMAGE_AXES = 3
"""Height, width and lanes of an image in blocks of channels."""


def schedule_default(group: Group, target: Target, knobs: Knobs) -> None:
    """Inline what can be, vectorise along memory, spread the rest over the threads."""
    if schedule_rows(group, target, knobs):
        return
    for stage in live_stages(group.schedule):
        schedule_stage(group.schedule, stage, target, knobs)


def schedule_stage(s: Schedule, stage: Stage, target: Target, knobs: Knobs) -> None:
    """Schedule one stage that is computed at root; its knobs are within its name."""
    if is_reduction(stage):
        _reduction(s, stage, target, knobs.within(stage.name))
    else:
        injective(s, stage, target, knobs)


def schedule_operands(s: Schedule, without: Sequence[Stage], target: Target, knobs: Knobs) -> None:
    """Schedule what an anchor reads: every stage at root but the results and those of `without`."""
    for stage in live_stages(s):
        if stage not in without and not stage.is_output:
            injective(s, stage, target, knobs)


def injective(s: Schedule, stage: Stage, target: Target, knobs: Knobs) -> None:
    """One vectorised loop where reads are in order, else rows in parallel and the last axis wide.

    before: for i: for j: C[i, j] = f   ->   after: parallel for i.j.outer: C[ramp] = f

    The knobs are within the name of the stage.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    axes = list(op.axis)
    if not axes:
        return
    knobs = knobs.within(stage.name)
    lanes = lanes_of(stage, target)
    transposition = transposed_axis(stage, s, lanes, joint=True)
    if transposition is not None and knobs.flag("transpose", default=True):
        _transposed(stage, transposition, target, knobs)
        return
    joint = len(joint_axes(stage, s))
    if _shares_rows(op, lanes, target) and knobs.flag("by_core", default=True):
        axes = _by_rows_of_cores(stage, target)
        joint = min(joint, _IMAGE_AXES)
    if joint > 1:
        axes = [*axes[: len(axes) - joint], stage.fuse(*axes[len(axes) - joint :])]
    wide = _wide_axis(stage, axes)
    rows = [a for a in axes if a is not wide]
    total = size_of(op.shape)
    many = is_shared(total, target)
    outer, inner = _strip(stage, wide, lanes, knobs)
    if not rows:
        if outer is not None and knobs.flag("parallel", default=many):
            stage.parallel(outer)
        return
    stage.reorder(*rows, *([outer] if outer is not None else []), inner)
    if len(rows) > 1:
        is_enough = _leaves_tasks(stage, rows[:-1], target)
        rows = rows[:-1] if knobs.flag("inner_row", default=is_enough) else rows
    fused = stage.fuse(*rows, name="task")
    if knobs.flag("parallel", default=many):
        stage.parallel(fused)


def _shares_rows(op: ComputeOp, lanes: int, target: Target) -> bool:
    """True for images in blocks of channels of which convolutions give a core some rows.

    They do so where an image has more positions than channels: what is read is with the core then.
    """
    sizes = [known(a) for a in op.axis]
    if len(sizes) != 2 + _IMAGE_AXES or sizes[-1] % lanes or target.cores == 1:
        return False
    _, chunks, height, width, block = sizes
    is_large = is_shared(chunks * height * width * block, target)
    return is_large and height % target.cores == 0 and height * width >= chunks * block


def _by_rows_of_cores(stage: Stage, target: Target) -> list[IterVar]:
    """Split the rows of images among the cores; return the loops in their new order."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    n, chunk, row, column, lane = op.axis
    core, row = stage.split(row, factor=known(row) // target.cores)
    return [n, core, chunk, row, column, lane]


def _leaves_tasks(stage: Stage, axes: list[IterVar], target: Target) -> bool:
    """True when these axes alone make enough tasks for the threads.

    A loop inside them finds what depends on them once, fused with them it would divide each time.
    A symbolic extent counts as many, but for the first one, which may be a batch of one.
    """
    extents = stage.extents()
    sizes = [int_value(extents[a]) for a in axes]
    count = prod(s for s in sizes if s is not None)
    is_many = None in sizes[1:] or count >= VECTOR_ROWS_PER_CORE * target.cores
    return bool(axes) and is_many


def _transposed(stage: Stage, transposition: Transposition, target: Target, knobs: Knobs) -> None:
    """Tiles that are square, so that lowering reads and writes them by whole vectors.

    Rows and columns of an image that lie behind one another, where they come from and where they
    go to, are one axis: squares end where the image does, not where each row of it does.

    before: for i: for j: C[i, j] = A[j, i]
    after:  parallel for i.outer: for j.outer: for i.inner (unrolled): C[i, ramp] = A[j.., i]
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    size = knobs.option("square", transposition.size, (n for n in (4, 8) if n < transposition.size))
    along, across = transposition.along, transposition.across
    outer, inner = stage.split(_as_one(stage, along), factor=size)
    last_outer, last_inner = stage.split(_as_one(stage, across), factor=size)
    tasks = [*(a for a in op.axis if a not in (*along, *across)), outer]
    if len(across) > 1:
        band, last_outer = stage.split(last_outer, factor=_band(stage, tasks, last_outer, target))
        tasks.append(band)
    stage.reorder(*tasks, last_outer, inner, last_inner)
    stage.unroll(inner)
    stage.vectorize(last_inner)
    task = stage.fuse(*tasks, name="task")
    if knobs.flag("parallel", default=is_shared(size_of(op.shape), target)):
        stage.parallel(task)


def _band(stage: Stage, tasks: Sequence[IterVar], last: IterVar, target: Target) -> int:
    """Return the iterations of `last` for a task where `tasks` are too few for the cores.

    They divide the loop: of unequal tasks a thread would find its own by a test.
    """
    extents = stage.extents()
    whole = int_value(extents[last]) or 1
    count = size_of(tuple(extents[a] for a in tasks))
    wanted = STRIPS_PER_CORE * target.cores
    bands = (b for b in range(1, whole + 1) if whole % b == 0)
    return next((whole // b for b in bands if count is None or count * b >= wanted), whole)


def _as_one(stage: Stage, axes: Sequence[IterVar]) -> IterVar:
    return stage.fuse(*axes) if len(axes) > 1 else axes[0]


def _wide_axis(stage: Stage, axes: list[IterVar]) -> IterVar:
    """The axis to run as vectors: the last that is longer than 1."""
    extents = stage.extents()
    return next((a for a in reversed(axes) if int_value(extents[a]) != 1), axes[-1])


def _strip(stage: Stage, axis: IterVar, lanes: int, knobs: Knobs) -> tuple[IterVar | None, IterVar]:
    extent = int_value(stage.extents()[axis])
    if extent is not None and extent <= 2 * lanes:
        stage.vectorize(axis)
        return None, axis
    lanes = knobs.option("lanes", lanes, vector_lengths(lanes))
    outer, inner = stage.split(axis, factor=lanes)
    stage.vectorize(inner)
    return outer, inner


def _reduction(s: Schedule, stage: Stage, target: Target, knobs: Knobs) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(stage, target)
    if op.axis and walks_along(stage, op.axis[-1]) and known(op.axis[-1]) != 1:
        _columns(s, stage, target, lanes, knobs)
    elif len(op.body) == 1 and op.reduce_axis and walks_along(stage, op.reduce_axis[-1]):
        _rows(s, stage, target, knobs)
    else:
        _plain(stage, target, knobs)


def _columns(s: Schedule, stage: Stage, target: Target, lanes: int, knobs: Knobs) -> None:
    """Vectors along the last data axis, sums in a register; the reduction loops inside."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if len(op.body) > 1:
        _plain(stage, target, knobs)
        return
    total = s.cache_write(op.output(0), "local")
    result = s[op]
    axes = list(result.op.axis)  # type: ignore[union-attr]  # cache_write leaves a compute
    usual = _strip_vectors(op, lanes, target)
    vectors = knobs.option(
        "strip", usual, [1 << k for k in range(stream_vectors(target).bit_length())]
    )
    outer, strip = result.split(axes[-1], factor=vectors * lanes)
    vector, lane = result.split(strip, factor=lanes)
    rows = [*axes[:-1], outer]
    result.reorder(*rows, vector, lane)
    place = result.fuse(*rows, name="task")
    if knobs.flag("parallel", default=is_shared(_work(op), target)):
        result.parallel(place)
    in_registers = vectors <= target.vector_registers // 2
    if in_registers:
        result.unroll(vector)
    result.vectorize(lane)
    local = s[total]
    local.compute_at(result, place)
    _vectors_inside(local, lanes, in_registers=in_registers)


def _strip_vectors(op: ComputeOp, lanes: int, target: Target) -> int:
    """Return how many vectors of columns are summed at once: many, if tasks are left for all."""
    columns = -(-known(op.axis[-1]) // lanes)
    rows = size_of(tuple(a.extent for a in op.axis[:-1])) or 1
    vectors = max(1, target.vector_registers // 2)
    if _exceeds_cache(op, target):
        vectors = stream_vectors(target)
    while vectors > 1 and rows * (columns // vectors) < STRIPS_PER_CORE * target.cores:
        vectors //= 2
    return vectors


def _exceeds_cache(op: ComputeOp, target: Target) -> bool:
    """True where what is summed is more than one core's cache holds."""
    terms = size_of(tuple(a.extent for a in op.reduce_axis)) or least_elements(target)
    elements = (size_of(op.shape) or 1) * terms
    return elements * itemsize(op.outputs[0].dtype) >= target.l2_bytes


def _work(op: ComputeOp) -> int | None:
    """Return how many terms all reductions have, None where that is not known."""
    return size_of(tuple(a.extent for a in (*op.axis, *op.reduce_axis)))


def _vectors_inside(local: Stage, lanes: int, *, in_registers: bool) -> None:
    op = local.op
    assert isinstance(op, ComputeOp)
    *rows, last = op.axis
    vector, lane = local.split(last, factor=lanes)
    local.reorder(*op.reduce_axis, *rows, vector, lane)
    if in_registers:
        local.unroll(vector)
    local.vectorize(lane)


def _rows(s: Schedule, stage: Stage, target: Target, knobs: Knobs) -> None:
    """Partial results in the lanes of a vector along the last reduction axis, then their sum."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(stage, target)
    last = op.reduce_axis[-1]
    if known(last) < 2 * lanes and int_value(last.extent) is not None:
        _plain(stage, target, knobs)
        return
    _, inner = stage.split(last, factor=lanes)
    partial = s.rfactor(op.output(0), inner, factor_axis=len(op.axis))
    result = s[op]
    axes = list(result.op.axis)  # type: ignore[union-attr]  # rfactor leaves a compute
    part = s[partial]
    lane = part.op.axis[-1]  # type: ignore[union-attr]
    if axes:
        place = result.fuse(*axes, name="task")
        if knobs.flag("parallel", default=is_shared(_work(op), target)):
            result.parallel(place)
        part.compute_at(result, place)
    part.reorder(*part.op.axis[:-1], *part.op.reduce_axis, lane)  # type: ignore[union-attr]
    part.vectorize(lane)


def _plain(stage: Stage, target: Target, knobs: Knobs) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.axis and knobs.flag("parallel", default=is_shared(_work(op), target)):
        stage.parallel(stage.fuse(*op.axis, name="task"))
