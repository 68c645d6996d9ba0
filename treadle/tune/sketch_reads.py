# SPDX-License-Identifier: Apache-2.0
"""What rules ask of reads: what is reused, which axis has neighbours, who takes up the sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle.dtype import is_float
from treadle.expr import nodes as ex
from treadle.expr.nodes import int_value
from treadle.expr.traversal import reads_memory, walk
from treadle.loop.bodies import inline_bodies, read_by
from treadle.ops.schedules.stages import border_box, compute_of, is_reduction
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.tune.sketch_nest import Nest, Read, nest_of, offsets_of

MUCH_WORK = 8
"""Operations on an element: what is as much is not done again by stages that read it more often."""


def has_reuse(nest: Nest) -> bool:
    """True when terms are read again for another result: they do not use some data axis."""
    axes = [a for a in range(nest.data) if nest.extents[a] > 1]
    return any(not r.uses(a) for r in _terms(nest) for a in axes)


def vector_axis(nest: Nest, places: Sequence[int] | None = None) -> int | None:
    """Return the data axis along which results are neighbours in memory."""
    order = range(nest.data) if places is None else places
    axes = [a for a in range(nest.data) if nest.extents[a] > 1]
    return max(axes, key=lambda a: order[a], default=None)


def is_along(nest: Nest, axis: int) -> bool:
    """True when neighbours along an axis are neighbours in memory in some of the terms."""
    return any(abs(r.step_in_memory(axis)) == 1 for r in _terms(nest))


def _terms(nest: Nest) -> list[Read]:
    """Return the reads that differ from term to term of a reduction."""
    axes = range(nest.data, len(nest.extents))
    return [r for r in nest.reads if any(map(r.uses, axes))]


def repeated_work(s: Schedule, stage: Stage) -> int:
    """Return the operations on an element of a stage that would be done again if it is inlined.

    0 where each is read once, and where readers that are no reductions do little more. A move to
    another order counts as one: terms would no longer be neighbours in memory. A choice among
    formulas counts as much: a loop of its own writes them out.
    """
    op = compute_of(stage)
    work = sum(isinstance(n, (ex.Binary, ex.Call, ex.Select)) and is_float(n.dtype)
               for b in op.body for n in walk(b))  # fmt: skip
    work = max(work, int(_changes_order(stage)), MUCH_WORK * int(_chooses(op)))
    size = prod(int_value(d) or 1 for d in op.shape)
    for reader in s.readers(stage):
        body = reader.op.body if isinstance(reader.op, ComputeOp) else ()
        loads = sum(isinstance(n, ex.Load) and isinstance(n.source, Tensor)
                    and s[n.source] is stage for b in body for n in walk(b))  # fmt: skip
        points = prod(int_value(a.extent) or 1 for a in reader.root_iter_vars)
        is_again = loads * points > size
        if is_again and (is_reduction(reader) or work >= MUCH_WORK):
            return work
    return 0


def _chooses(op: ComputeOp) -> bool:
    """True when the place of an element says by which of several formulas it is computed."""
    return any(isinstance(n, ex.Select) and not n.lazy and isinstance(n.cond, ex.Binary)
               and n.cond.op == "eq" and not reads_memory(n.cond)
               for b in op.body for n in walk(b))  # fmt: skip


def _changes_order(stage: Stage) -> bool:
    """True when neighbours along the last axis are read from places apart."""
    op = compute_of(stage)
    nest = nest_of(stage, op, op.body)
    last = max((a for a in range(nest.data) if nest.extents[a] > 1), default=None)
    steps = [] if last is None else [abs(r.step_in_memory(last)) for r in nest.reads]
    return any(steps) and 1 not in steps


def consumer(s: Schedule, sums: Stage) -> tuple[Stage, tuple[int, ...]] | None:
    """Return the one stage that reads sums element by element, and the axis for each of theirs."""
    bodies = inline_bodies(s)
    readers = [r for r in s.stages if id(r) in bodies
               and any(s[t] is sums for t in read_by(r, bodies))]  # fmt: skip
    if len(readers) != 1 or sums.is_output:
        return None
    result = readers[0]
    op = result.op
    if not isinstance(op, ComputeOp) or is_reduction(result):
        return None
    loads = [n for b in bodies[id(result)] for n in walk(b)
             if isinstance(n, ex.Load) and isinstance(n.source, Tensor)
             and s[n.source] is sums]  # fmt: skip
    found = [offsets_of(n, op.axis) for n in loads]
    if found[0] is None or any(f != found[0] for f in found):
        return None
    return _matched(result, sums, found[0])


def _matched(
    result: Stage, sums: Stage, indices: list[tuple[IterVar | None, int]]
) -> tuple[Stage, tuple[int, ...]] | None:
    """Return the result with the axes at which it reads sums, if there is one for each of its."""
    axes = compute_of(result).axis
    inside = border_box(result) if result.is_output else {}
    places = []
    for (axis, offset), own in zip(indices, compute_of(sums).axis, strict=True):
        extent = int_value(own.extent)
        if axis is None:
            if extent != 1:
                return None
            places.append(-1)
            continue
        begin, end = inside.get(axis, (0, axis.extent))
        if begin + offset != 0 or (int_value(end) or 0) - begin != extent:
            return None
        places.append(axes.index(axis))
    used = {p for p in places if p >= 0}
    is_whole = all(k in used or int_value(a.extent) == 1 for k, a in enumerate(axes))
    is_once = len(used) == sum(p >= 0 for p in places)
    return (result, tuple(places)) if is_whole and is_once else None
