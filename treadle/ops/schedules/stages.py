# SPDX-License-Identifier: Apache-2.0
"""What schedule functions ask of stages: reads, sizes, who may be inlined, plain loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from treadle.cost.forks import is_worth_forking, least_elements, least_unknown_elements
from treadle.cost.registers import fma_cycles
from treadle.dtype import bits
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.bounds import prove
from treadle.expr.conditions import conjuncts
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, ExprLike, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import free_vars, has_lazy_select, loads, uses, walk
from treadle.graph.operator import Group
from treadle.loop.bodies import inline_bodies
from treadle.lower.transpose_tiles import SIDES
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import KEPT, ComputeOp, ExternOp, IterVar, Reduce, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def is_much(extents: Iterable[ExprLike]) -> bool:
    """True for elements worth other threads on an unknown machine, or an unknown number of them."""
    known = [int_value(d) for d in extents]
    return None in known or prod(d for d in known if d is not None) >= least_unknown_elements()


def is_shared(elements: int | None, target: Target) -> bool:
    """True for as many elements as other threads are worth waking for; None: an unknown number."""
    return elements is None or elements >= least_elements(target)


_COSTLY = frozenset(
    {"exp", "exp_weight", "log", "log1p", "expm1", "erf", "normal_cdf", "softplus", "tanh",
     "sigmoid", "pow", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh",
     "acosh", "atanh", "atan2", "sqrt", "rsqrt"}
)  # fmt: skip


def compute_of(stage: Stage) -> ComputeOp:
    """Return what a stage computes, which te expresses."""
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def axes_of(stage: Stage) -> tuple[IterVar, ...]:
    """Return the axes of what a stage computes."""
    return compute_of(stage).axis


def apart_from_result(s: Schedule, total: Stage, *, is_stored: bool = False) -> Stage:
    """Return the stage of the accumulators: one of its own where `total` itself is stored.

    That is a result, and what is said to be.
    """
    is_apart = total.is_output or is_stored
    return s[s.cache_write(total.op.outputs[0], "local")] if is_apart else total


def unroll_accumulators(total: Stage, axes: Sequence[IterVar]) -> None:
    """Keep a tile of accumulators in registers: the reduction outside, `axes` within it.

    The last of `axes`, which are all of the stage's, becomes a vector; the others are unrolled.
    """
    total.reorder(*compute_of(total).reduce_axis, *axes)
    for axis in axes[:-1]:
        total.unroll(axis)
    total.vectorize(axes[-1])


def cut_reduction(total: Stage, block: int, axis: int = 0) -> Stage:
    """Cut an axis of a reduction into blocks of so many steps; return the sums of a block.

    What is left to `total` is to add these up.
    """
    outer, _ = total.split(compute_of(total).reduce_axis[axis], factor=block)
    s = total.schedule
    return s[s.rfactor(compute_of(total).output(0), outer)]


def unroll_short_steps(sums: Stage, vectors: int, knobs: Knobs) -> None:
    """Write the innermost steps of a reduction out: knob "unroll".

    For steps of less than a line of weights, which a line holds several of. A tile of one of the
    `vectors` loads a value for each multiply-add; written out, its loads take registers.
    """
    if knobs.flag("unroll", default=vectors > 1):
        sums.unroll(compute_of(sums).reduce_axis[-1])


def split_accumulators(total: Stage, lanes: int) -> None:
    """Keep a tile of accumulators in registers, its last axis as vectors of `lanes`."""
    *outside, last = axes_of(total)
    unroll_accumulators(total, (*outside, *total.split(last, factor=lanes)))


def is_reduction(stage: Stage) -> bool:
    """True when the stage combines elements."""
    return isinstance(stage.op, ComputeOp) and isinstance(stage.op.body[0], Reduce)


def is_step(stage: Stage) -> bool:
    """True when the stage is part of a reduction: it combines elements, many or two by two."""
    return is_reduction(stage) or (isinstance(stage.op, ComputeOp) and stage.op.tag == KEPT)


def is_guarded(stage: Stage) -> bool:
    """True when the stage tests an index (padding)."""
    op = stage.op
    return isinstance(op, ComputeOp) and any(map(has_lazy_select, op.body))


def is_costly(stage: Stage) -> bool:
    """True when an element takes a division or a transcendental function."""
    op = stage.op
    return isinstance(op, ComputeOp) and any(
        (isinstance(n, ex.Call) and n.name in _COSTLY)
        or (isinstance(n, ex.Binary) and n.op in ("div", "floordiv") and n.dtype[0] in "fb")
        for b in op.body
        for n in walk(b)
    )


_ONE: Expr = Const.of(1)


def size_of(shape: tuple[Expr, ...]) -> int | None:
    """Return the number of elements, None where a size is symbolic."""
    dims = [int_value(d) for d in shape]
    return None if any(d is None for d in dims) else prod(d for d in dims if d is not None)


def known(axis: IterVar) -> int:
    """Return the extent of an axis, 0 where it is symbolic."""
    return int_value(axis.extent) or 0


def stands_for(index: Expr, axis: IterVar) -> bool:
    """True for an index that is an axis, or the 0 that one of a single element always is."""
    return index is axis or (known(axis) == 1 and int_value(index) == 0)


def inline_movement(group: Group) -> None:
    """Inline every stage that can be evaluated where it is read at no extra cost."""
    for stage in group.schedule.stages:
        if is_inlined(group.schedule, stage):
            stage.compute_inline()


def is_inlined(s: Schedule, stage: Stage) -> bool:
    """True for a stage that can be evaluated where it is read at no extra cost.

    Not so: results, reductions, what a stage written by hand reads, guarded reads under a
    reduction, and costly elements that would be evaluated more than once.
    """
    if not isinstance(stage.op, ComputeOp) or stage.is_output or is_step(stage):
        return False
    readers = s.readers(stage)
    if any(isinstance(r.op, ExternOp) for r in readers):
        return False
    if is_guarded(stage) and any(is_reduction(r) for r in readers):
        return False
    is_repeated = len(readers) > 1 or any(_repeats(stage, r) for r in readers)
    return not (is_costly(stage) and is_repeated)


def inline_border(s: Schedule, sums: Stage) -> None:
    """Let sums read what is padded for them through a guard, not from a padded copy."""
    for stage in s.stages:
        if is_guarded(stage) and not stage.is_output and s.readers(stage) == [sums]:
            stage.compute_inline()


def inline_tail(s: Schedule, sums: Stage, end: Stage | None = None) -> None:
    """Inline what lies between `sums` and the results, costly elements with many readers too.

    With `end` what lies before that stage. The tail is element-wise: one element of a result reads
    one element of each of its stages, and what it reads twice is computed once.
    """
    after = [sums]
    for stage in s.stages:
        if stage is end or stage in after or not any(stage in s.readers(a) for a in after):
            continue
        after.append(stage)
        if not stage.is_output and not is_step(stage) and stage.attach.kind == "root":
            stage.compute_inline()


def _repeats(stage: Stage, reader: Stage) -> bool:
    """True when `reader` evaluates an element of `stage` more than once (by size)."""
    if not isinstance(reader.op, ComputeOp) or not isinstance(stage.op, ComputeOp):
        return False
    reads = prod((a.extent for a in (*reader.op.axis, *reader.op.reduce_axis)), start=_ONE)
    have = prod(stage.op.shape, start=_ONE)
    sizes = {v: Interval(0, None) for v in free_vars(reads - have)}
    return prove(reads <= have, sizes) is not True


def walks_along(stage: Stage, axis: IterVar) -> bool:
    """True when neighbours along `axis` are neighbours in memory in some tensor that is read."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    for body in op.body:
        for n in loads(body):
            if not isinstance(n.source, Tensor) or not n.indices:
                continue
            if steps_in_memory(n).get(axis) == 1:
                return True
    return False


def live_stages(s: Schedule) -> list[Stage]:
    """Return the stages that are computed on their own, producers first."""
    return [x for x in s.stages if isinstance(x.op, ComputeOp) and x.attach.kind == "root"]


def joint_axes(stage: Stage, s: Schedule) -> list[IterVar]:
    """Return the most of the last axes that can be fused so that every read stays in order.

    A read may use these axes as its last indices, all of them and in order, or none of them.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    count = len(op.axis)
    for body in _inlined(stage, s):
        for n in walk(body):
            if isinstance(n, ex.Load) and isinstance(n.source, Tensor):
                count = min(count, _joint_in(n, op.axis))
            elif isinstance(n, ex.Select) and n.lazy:
                count = min(count, _unused((n.cond,), op.axis))
    return list(op.axis[len(op.axis) - max(1, count) :])


def _joint_in(load: ex.Load, axes: tuple[IterVar, ...]) -> int:
    """Return how many of the last axes a read leaves in order (or does not use)."""
    same = 0
    for index, extent, axis in zip(
        reversed(load.indices), reversed(load.source.shape), reversed(axes), strict=False
    ):
        if not stands_for(index, axis) or extent is not axis.extent:
            break
        same += 1
    elsewhere = load.indices[: len(load.indices) - same]
    if any(a in i.leaves for a in axes[len(axes) - same :] for i in elsewhere):
        same = 0
    return max(same, _unused(load.indices, axes))


def _unused(indices: tuple[Expr, ...], axes: tuple[IterVar, ...]) -> int:
    """Return how many of the last axes occur in no index."""
    count = 0
    for axis in reversed(axes):
        if int_value(axis.extent) != 1 and any(axis in i.leaves for i in indices):
            break
        count += 1
    return count


def steps_in_memory(load: ex.Load) -> dict[Expr, int]:
    """Return by how many elements a read moves when an axis (or another term) grows by one.

    Where extents are not known: by the last index alone.
    """
    indices, shape = _flat_tail(load)
    offset = indices[-1]
    step: Expr = shape[-1]
    for index, extent in zip(reversed(indices[:-1]), reversed(shape[:-1]), strict=True):
        if int_value(step) is None:
            break
        offset = index * step + offset
        step = step * extent
    axes = [n for n in walk(offset) if isinstance(n, IterVar) and int_value(n.extent)]
    ranges: dict[ex.Var, Interval] = {a: Interval(0, known(a) - 1) for a in axes}
    return decompose(simplify(offset, ranges)).terms


def _flat_tail(load: ex.Load) -> tuple[list[Expr], list[Expr]]:
    """Return indices and extents with x[.., k // w, k % w], rows of w elements, as one index k."""
    indices, shape = list(load.indices), list(load.source.shape)
    while len(indices) > 1:
        row, column = indices[-2:]
        if not (isinstance(row, ex.Binary) and isinstance(column, ex.Binary)):
            break
        if (row.op, column.op) != ("floordiv", "floormod"):
            break
        if row.a is not column.a or row.b is not column.b or row.b is not shape[-1]:
            break
        indices[-2:], shape[-2:] = [row.a], [shape[-2] * shape[-1]]
    return indices, shape


@dataclass(frozen=True, slots=True)
class Transposition:
    """Reads run along the axes `along` while writes run along `across`: squares of `size` pay.

    Each are neighbours that can be fused; `axis` is the last that reads run along.
    """

    along: tuple[IterVar, ...]
    across: tuple[IterVar, ...]
    size: int

    @property
    def axis(self) -> IterVar:
        """The axis along which what is read lies side by side."""
        return self.along[-1]


def transposed_axis(
    stage: Stage, s: Schedule, lanes: int, *, least: int | None = None, joint: bool = False
) -> Transposition | None:
    """Return the axis along which a stage's reads are neighbours in memory, if not the last.

    The axis may stand alone or as `axis % block` (a blocked layout): then tiles divide the block.
    `least` is how long the last axis is at least where that is not known. `joint`: it comes with
    the axes before it that lie in memory as one with it, and so does the last.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    if len(op.axis) < 2 or is_guarded(stage):
        return None
    last = op.axis[-1]
    reads = [
        n
        for body in _inlined(stage, s)
        for n in loads(body)
        if isinstance(n.source, Tensor) and n.indices
    ]
    found = [
        side
        for n in reads
        if (side := _side_of(n, op.axis, lanes)) and any(last in i.leaves for i in n.indices)
    ]
    if not found or any(axis is not found[0][0] for axis, _ in found):
        return None
    axis = found[0][0]
    behind = op.axis[op.axis.index(axis) + 1 :]  # what is read along is not written along, too
    along = _run_to(axis, op.axis, reads) if joint else (axis,)
    across = _run_to(last, behind, reads) if joint else (last,)
    lengths = [size_of(tuple(a.extent for a in along))]
    lengths.append(size_of(tuple(a.extent for a in across)) if least is None else least)
    size = min(side for _, side in found)
    shortest = min((e for e in lengths if e is not None), default=size)
    while size > shortest:
        size //= 2
    return Transposition(along, across, size) if size >= SIDES[0] else None


def _side_of(load: ex.Load, axes: tuple[IterVar, ...], lanes: int) -> tuple[IterVar, int] | None:
    """Return the axis that a read runs along, and the largest square of it; None for the last."""
    for atom, factor in steps_in_memory(load).items():
        axis, block = atom, lanes
        if isinstance(atom, ex.Binary) and atom.op == "floormod":
            axis, block = atom.a, int_value(atom.b) or 1
        if factor == 1 and isinstance(axis, IterVar) and axis in axes[:-1]:
            return axis, min(lanes, block & -block)
    return None


def _run_to(
    axis: IterVar, axes: tuple[IterVar, ...], reads: Sequence[ex.Load]
) -> tuple[IterVar, ...]:
    """Return the axes that end with `axis` and that every read takes as if they were one."""
    first = last = axes.index(axis)
    while first > 0 and all(_are_joint(axes[first - 1], axes[first], n) for n in reads):
        first -= 1
    return axes[first : last + 1]


def _are_joint(outer: IterVar, inner: IterVar, load: ex.Load) -> bool:
    """True where a read has two axes of known extents as neighbours, or neither of them."""
    if not known(outer) or not known(inner):
        return False
    using = [k for k, i in enumerate(load.indices) if outer in i.leaves or inner in i.leaves]
    if not using:
        return True
    k, shape = using[0], load.source.shape
    return (
        using == [k, k + 1]
        and load.indices[k] is outer
        and load.indices[k + 1] is inner
        and int_value(shape[k + 1]) == known(inner)
    )


def _inlined(stage: Stage, s: Schedule) -> tuple[Expr, ...]:
    return inline_bodies(s)[id(stage)]


def is_long(sums: Stage, lanes: int, target: Target) -> bool:
    """True when multiply-adds of `lanes` take long enough to be worth waking other threads."""
    op = sums.op
    assert isinstance(op, ComputeOp)
    products = size_of((*op.shape, *(a.extent for a in op.reduce_axis)))
    return products is None or is_worth_forking(fma_cycles(products / lanes, target), target)


def lanes_of(stage: Stage, target: Target) -> int:
    """Return how many elements of the stage's result fill a vector."""
    dtype = stage.op.outputs[0].dtype
    return target.lanes(max(bits(dtype), 32))


def vector_lengths(lanes: int) -> tuple[int, ...]:
    """Return how many elements a loop may take at once instead of a vector of `lanes`."""
    return tuple(n for n in (lanes // 2, 2 * lanes, 4 * lanes) if n)


def fetch_distance(knobs: Knobs, name: str, usual: int, *, pays: bool = True) -> int:
    """Return a knob: how many steps before its use data is fetched; 0 where that does not pay."""
    if not pays:
        return knobs.option(name, 0, (usual,))
    return knobs.option(name, usual, (0, max(1, usual // 2), 2 * usual))


def by_register(stage: Stage, lanes: IterVar, target: Target) -> tuple[IterVar, IterVar]:
    """Split a block of channels into the registers it takes and the lanes of one of them.

    With the registers outside, what is computed for a position takes one register, not those of
    all of a block.
    """
    size = min(known(lanes), lanes_of(stage, target))
    return stage.split(lanes, factor=size if known(lanes) % size == 0 else known(lanes))


def itemsize_of(stage: Stage) -> int:
    """Return the bytes of one element of a stage's result."""
    return bits(stage.op.outputs[0].dtype) // 8


def peel_border(stage: Stage) -> None:
    """Where a result is a value with a constant around it, let tiles cover the inside only."""
    for axis, (begin, end) in border_box(stage).items():
        if begin != 0 or end is not axis.extent:
            stage.peel(axis, begin, end)


def border_box(stage: Stage) -> dict[IterVar, tuple[int, Expr]]:
    """Return per axis the range where a padded result is not the padding; {} if it is not padded.

    Padded is an element `if_then_else(conditions on axes, value, constant)`.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    body = op.body[0]
    if not isinstance(body, ex.Select) or not body.lazy or not isinstance(body.other, ex.Const):
        return {}
    box: dict[IterVar, tuple[int, Expr]] = {a: (0, a.extent) for a in op.axis}
    for check in conjuncts(body.cond):
        limit = _limit(check, op.axis)
        if limit is None:
            return {}
        axis, low, high = limit
        begin, _ = box[axis]
        box[axis] = (max(begin, low), box[axis][1] if high is None else high)
    return box if all(_is_inside(b, e, a.extent) for a, (b, e) in box.items()) else {}


def _is_inside(begin: int, end: Expr, extent: Expr) -> bool:
    """True for a range of an axis that is not certainly empty."""
    sizes = {v: Interval(0, None) for v in free_vars(extent)}
    return prove(end <= extent, sizes) is True and prove(end <= begin, sizes) is not True


def _limit(check: Expr, axes: tuple[IterVar, ...]) -> tuple[IterVar, int, Expr | None] | None:
    """Return (axis, low, high) when a condition says low <= axis < high and nothing else.

    `high` is None where the condition does not limit it; it may hold symbolic sizes.
    """
    if not isinstance(check, ex.Binary) or check.op not in ("ge", "gt", "lt", "le"):
        return None
    whole = decompose(check.a - check.b)
    found = [a for a in axes if any(uses(t, a) for t in whole.terms)]
    if len(found) != 1 or abs(whole.terms.get(found[0], 0)) != 1:
        return None
    sign, affine = whole.without(found[0])
    # sign * axis + rest (>=, >, <, <=) 0
    above = (check.op in ("ge", "gt")) == (sign == 1)
    bound = affine.times(-sign)
    strict = check.op in ("gt", "lt")
    if not above:
        return found[0], 0, (bound.to_expr() if strict else bound.to_expr() + 1)
    return None if bound.terms else (found[0], bound.const + strict, None)


class _Channels(Protocol):
    @property
    def unused(self) -> int: ...
    @property
    def blocks_axis(self) -> int: ...


def skip_unused(sums: Stage, attrs: _Channels, blocks: Sequence[IterVar] = ()) -> None:
    """Skip the last input channels of sums, as many as attributes of a convolution say.

    `blocks` is the axis that counts the blocks of a reduction that is cut.
    """
    axes = compute_of(sums).reduce_axis
    counted, lane = (*blocks, axes[attrs.blocks_axis], axes[-1]), axes[-1]
    sums.skip_past(lane, counted, prod(map(known, counted)) - attrs.unused)
