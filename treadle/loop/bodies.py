# SPDX-License-Identifier: Apache-2.0
"""The elements of the stages that are computed, those of inlined stages put in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr
from treadle.expr.traversal import rewrite, substitute
from treadle.expr.vocabulary import HAS_LOAD
from treadle.te.operations import ComputeOp, ExternOp, Reduce, Tensor, read_tensors
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def inline_bodies(schedule: Schedule) -> dict[int, tuple[Expr, ...]]:
    """Return by stage id the body of every stage that is computed, inlined stages put in place.

    A stage written by hand has no expressions: ().
    """
    bodies: dict[int, tuple[Expr, ...]] = {}
    inlined: dict[int, Stage] = {id(s): s for s in schedule.stages if s.attach.kind == "inline"}

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
            return None
        stage = schedule[n.source]
        if id(stage) not in inlined:
            return None
        op = stage.op
        assert isinstance(op, ComputeOp)
        mapping: dict[Expr, Expr] = dict(zip(op.axis, n.indices, strict=True))
        return substitute(bodies[id(stage)][n.source.value_index], mapping)

    for stage in schedule.stages:
        if isinstance(stage.op, ComputeOp):
            bodies[id(stage)] = (
                tuple(rewrite(b, rule, traits=HAS_LOAD) for b in stage.op.body)
                if inlined
                else stage.op.body
            )
        elif isinstance(stage.op, ExternOp):
            bodies[id(stage)] = ()
    kept = _reachable(schedule, bodies)
    return {k: v for k, v in bodies.items() if k not in inlined and k in kept}


def _reachable(schedule: Schedule, bodies: dict[int, tuple[Expr, ...]]) -> set[int]:
    found: set[int] = set()
    queue = [s for s in schedule.stages if s.is_output]
    while queue:
        stage = queue.pop()
        if id(stage) in found:
            continue
        found.add(id(stage))
        if id(stage) in bodies:
            queue += [schedule[t] for t in read_by(stage, bodies)]
    return found


def read_by(stage: Stage, bodies: Mapping[int, tuple[Expr, ...]]) -> tuple[Tensor, ...]:
    """Return the tensors a stage reads, inlined stages put in place."""
    if isinstance(stage.op, ExternOp):
        return stage.op.input_tensors
    return read_tensors(bodies[id(stage)])


def rewritten(body: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Return a body with a rule applied, inside a reduction too."""
    if not isinstance(body, Reduce):
        return rewrite(body, rule)
    return body.with_children(tuple(rewrite(c, rule) for c in body.children))
