# SPDX-License-Identifier: Apache-2.0
"""The stages of a group of attention by what they do, for the schedules of CPUs and GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.expr.traversal import loads
from treadle.graph.operator import Group
from treadle.loop.bodies import inline_bodies
from treadle.ops.schedules.stages import compute_of, is_reduction, is_step
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True, eq=False)
class AttentionParts:
    """The stages of a group by what they do; `sums` and what packs are None where they are not.

    `scores` are the scores as the softmax reads them, `sums` their sums of products, `keys`,
    `queries` and `values` the operands whose elements are moved before they are read.
    """

    result: Stage
    product: Stage
    softmax: tuple[Stage, ...]
    scores: Stage | None
    sums: Stage | None
    keys: Stage | None
    queries: Stage | None
    values: Stage | None


def parts_of(group: Group) -> AttentionParts | None:
    """Return the stages of a group; None where it has more than one result.

    Scores that are nothing but sums are copied from a stage of sums.
    """
    s = group.schedule
    *steps, weighted, _ = group.anchor
    softmax = tuple(s[t] for t in steps)
    if len(group.outputs) != 1:
        return None
    powers = next(x for x in softmax if x.op is weighted.op.input_tensors[0].op)
    others = [t for t in compute_of(powers).input_tensors if s[t] not in softmax]
    scores = _computed(s[others[0]]) if others else None
    sums: Stage | None = None
    if scores is not None:
        sums = _accumulators_below(scores)
        if sums is scores:
            sums = s[s.cache_write(scores.op.outputs[0], "local")]
    values = _computed(s[compute_of(s[weighted]).input_tensors[-1]])
    keys = queries = None
    if sums is not None:
        operands = [_computed(s[x]) for x in compute_of(sums).input_tensors]
        # What is read as values, too, is moved with them: once per head is enough.
        keys, queries = (x if x is not values else None for x in (operands[0], operands[-1]))
        if keys is queries:
            keys = None
    result = s[group.outputs[0]]
    return AttentionParts(result, s[weighted], softmax, scores, sums, keys, queries, values)


def _computed(stage: Stage) -> Stage | None:
    return stage if isinstance(stage.op, ComputeOp) else None


def _accumulators_below(scores: Stage) -> Stage | None:
    """Return the sums of products that element-wise stages make into the scores."""
    pending, seen = [scores], {id(scores)}
    while pending:
        stage = pending.pop()
        if is_reduction(stage):
            return stage
        for tensor in stage.op.input_tensors:
            below = stage.schedule[tensor]
            if isinstance(below.op, ComputeOp) and id(below) not in seen:
                seen.add(id(below))
                pending.append(below)
    return None


def inline_others(group: Group, parts: AttentionParts | None) -> None:
    """Inline what is neither a step of the softmax nor kept as a block."""
    kept: tuple[Stage | None, ...] = ()
    if parts is not None:
        kept = (*parts.softmax, parts.scores, parts.keys, parts.queries, parts.values)
    for stage in group.schedule.stages:
        if not isinstance(stage.op, ComputeOp) or stage.is_output or is_step(stage):
            continue
        if not any(stage is k for k in kept):
            stage.compute_inline()


@dataclass(frozen=True, slots=True, eq=False)
class ResultAxes:
    """The axes of the result: heads (batches, too), rows and columns."""

    heads: tuple[IterVar, ...]
    rows: IterVar
    columns: IterVar


def result_axes(parts: AttentionParts) -> ResultAxes | None:
    """Return what the axes of the result are to the product, None where it is not a transpose."""
    op = compute_of(parts.result)
    for body in inline_bodies(parts.result.schedule)[id(parts.result)]:
        for n in loads(body):
            if not isinstance(n.source, Tensor):
                continue
            if n.source.op is not parts.product.op:
                continue
            *_, rows, columns = n.indices
            if rows not in op.axis or columns not in op.axis:
                return None
            assert isinstance(rows, IterVar)
            assert isinstance(columns, IterVar)
            rest = tuple(a for a in op.axis if a is not rows and a is not columns)
            return ResultAxes(rest, rows, columns) if columns is op.axis[-1] else None
    return None
