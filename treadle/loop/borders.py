# SPDX-License-Identifier: Apache-2.0
"""Borders that a schedule peels off a stage: strips with plain loops around a box without guards.

for i in range(n): y[i] = f(i) if 1 <= i < n - 1 else 0
->
y[0] = 0;  for i in range(n - 2): y[i + 1] = f(i + 1);  y[n - 1] = 0
"""

from __future__ import annotations

from contextlib import ExitStack

from treadle.errors import ScheduleError
from treadle.expr.nodes import Expr, Var, int_value
from treadle.limits import VECTOR_LANES
from treadle.loop.context import Context
from treadle.loop.domains import ZERO
from treadle.loop.nodes import For, Stmt
from treadle.loop.regions import Box, Span
from treadle.loop.required import greatest, inside_border, least
from treadle.loop.stores import Stores
from treadle.te.operations import IterVar
from treadle.te.stage import Stage


def peeled(stage: Stage, box: Box, context: Context) -> tuple[list[Box], Box]:
    """Return the borders of a stage, and the part of its box inside of them."""
    inner = dict(box)
    borders: list[Box] = []
    for axis, (begin, end) in stage.peeled.items():
        before = least(begin, axis.extent, context.known)
        after = greatest(end, before, context.known)
        for low, high in ((ZERO, before), (after, axis.extent)):
            width = context.simplify(high - low)
            if int_value(width) != 0:
                borders.append({**inner, axis: Span(context.simplify(low), width)})
        inner[axis] = Span(begin, context.simplify(end - begin))
    return borders, inner


def drop_border_guards(stage: Stage, inner: Box, stores: Stores) -> None:
    """Drop the guards of a stage's elements that hold inside of its borders, for good."""
    bodies, known = stores.memory.bodies, stores.context.known
    bodies[id(stage)] = tuple(inside_border(b, inner, known) for b in bodies[id(stage)])


def plain_nest(stage: Stage, box: Box, stores: Stores) -> Stmt:
    """Return loops over a box in the declared order, the schedule's loops left aside.

    Raises: ScheduleError for a reduction.
    """
    if stores.is_reduction(stage):
        raise ScheduleError("a reduction cannot be peeled", at=f"stage {stage.name}")
    context, memory = stores.context, stores.memory
    values: dict[IterVar, Expr] = {}
    opened: list[tuple[Var, Expr]] = []
    with ExitStack() as loops:
        for axis, span in box.items():
            if int_value(span.extent) == 1:
                values[axis] = span.start
                continue
            var = Var(memory.unique(axis.name))
            loops.enter_context(context.inside_loop(var, span.extent))
            opened.append((var, span.extent))
            values[axis] = context.simplify(span.start + var)
        body = stores.element(stage, values, "whole")
    for position, (var, extent) in enumerate(reversed(opened)):
        lanes = int_value(extent)
        wide = position == 0 and lanes is not None and lanes <= VECTOR_LANES
        body = For(var, extent, "vectorized" if wide else "serial", body)
    return body
