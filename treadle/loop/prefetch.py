# SPDX-License-Identifier: Apache-2.0
"""What stands at the start of an iteration: hints to fetch memory, tests that skip the rest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle.dtype import itemsize
from treadle.expr import nodes as ex
from treadle.expr.bounds import FAR
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.loop import nodes as lp
from treadle.loop.domains import ZERO, Nest, relax
from treadle.loop.memory import Memory
from treadle.loop.nodes import Buffer, For, If, Prefetch, Stmt
from treadle.loop.regions import Box, Span, index_span
from treadle.te.schedule import AxisNote, Stage, ceil_div

LINE_BYTES = 64
"""What one prefetch brings; machines with longer lines get some twice."""
MOST_LINES = 64
"""Prefetches of one iteration up to which they are written one after the other."""


def matters(stage: Stage, note: AxisNote | None, nest: Nest, known: Simplifier) -> Expr:
    """Return when an iteration of the loop just opened does anything at all."""
    checks: list[Expr] = []
    for index, begin, end in note.ranges if note is not None else ():
        span = index_span(index, relax(stage, nest, known), Const.of(end), known)
        last = span.start + span.extent
        checks += [known.run(span.start < end), known.run(last > begin)]
    return ex.all_of(checks)


def prefetches(
    stage: Stage,
    note: AxisNote | None,
    nest: Nest,
    var: Var,
    memory: Memory,
    known: Simplifier,
) -> list[Stmt]:
    """Return the hints that stand at the start of an iteration of loop `var`."""
    if note is None or not (note.prefetches or note.lines) or nest.phase == "init":
        return []
    box = relax(stage, nest, known)
    return [
        *_single_lines(note, box, memory, known),
        *_regions(stage, note, nest, box, var, memory, known),
    ]


def _single_lines(note: AxisNote, box: Box, memory: Memory, known: Simplifier) -> list[Stmt]:
    """Return the hints of `prefetch_at`."""
    first: dict[Expr, Expr] = {axis: span.start for axis, span in box.items()}
    made: list[Stmt] = []
    for tensor, indices, where in note.lines:
        source = memory.schedule[tensor]
        buffer = memory.buffers.get((id(source), tensor.value_index))
        if buffer is None or (source.attach.kind == "at" and id(source) not in memory.computed):
            continue
        start = memory.offsets.get(id(source), (ZERO,) * len(indices))
        at = (ex.substitute(i, first) - o for i, o in zip(indices, start, strict=True))
        line = Prefetch(buffer, tuple(known.run(i) for i in at))
        needed = known.run(ex.substitute(where, first))
        holds = known.prove(needed)
        if holds is not False:
            made.append(line if holds else If(needed, line))
    return made


def _regions(
    stage: Stage,
    note: AxisNote,
    nest: Nest,
    box: Box,
    var: Var,
    memory: Memory,
    known: Simplifier,
) -> list[Stmt]:
    """Return the hints of `prefetch`."""
    made: list[Stmt] = []
    for tensor, offset in note.prefetches:
        source = memory.schedule[tensor]
        buffer = memory.buffers.get((id(source), tensor.value_index))
        if buffer is None or source.attach.kind == "at":  # not computed yet, or not at all
            continue
        for indices in dict.fromkeys(memory.reads(stage, source)):
            spans: Sequence[Span] = [
                index_span(i, box, d, known) for i, d in zip(indices, tensor.shape, strict=True)
            ]
            if offset:
                spans = _next_panels(stage, nest, spans, var, known)
            made.append(_lines(tensor.name, buffer, spans, {var: var + offset}, memory, known))
    return made


def _next_panels(
    stage: Stage, nest: Nest, spans: Sequence[Span], var: Var, known: Simplifier
) -> Sequence[Span]:
    """Where `var` stands past the end of the reduction, go on with the panels of the next tile.

    A tile reads several panels side by side, each along the reduction. What follows a panel in
    memory is the next of the same tile, which is in cache: as many panels are left out.
    """
    inner = [x for x in stage.leaf_iter_vars if x.kind == "reduce" and x in nest.bound]
    if not any(nest.bound[x] is var for x in inner):
        return spans
    moving = {nest.bound[x] for x in inner} - {ZERO}
    fixed = next((d for d, x in enumerate(spans) if any(n in moving for n in ex.walk(x.start))), 0)
    side_by_side = [d for d in range(fixed) if (int_value(spans[d].extent) or 0) > 1]
    if not side_by_side:
        return spans
    extents = stage.extents(nest.roots, nest.overrides)
    turn: Expr = ZERO
    turns: Expr = Const.of(1)
    for x in inner:
        turn, turns = turn * extents[x] + nest.bound[x], turns * extents[x]
    panel = spans[side_by_side[-1]]
    skipped = ex.select(turn >= known.run(turns), panel.extent - 1, 0)
    moved = list(spans)
    moved[side_by_side[-1]] = Span(panel.start + skipped, panel.extent)
    return moved


def _steps_of_lines(buffer: Buffer, spans: Sequence[Span]) -> list[int]:
    """Return how far apart lines are along every dimension of a region.

    Where rows are read whole and are shorter than a line, a line holds several of them.
    """
    steps, room = [1] * len(spans), LINE_BYTES // itemsize(buffer.dtype)
    for d in reversed(range(len(spans))):
        steps[d] = max(1, room)
        whole = int_value(buffer.shape[d])
        if whole is None or int_value(spans[d].extent) != whole or room % max(whole, 1):
            break
        room //= whole
    return steps


def _lines(
    name: str,
    buffer: Buffer,
    spans: Sequence[Span],
    later: dict[Expr, Expr],
    memory: Memory,
    known: Simplifier,
) -> Stmt:
    """Return loops that prefetch every cache line of a region of a buffer."""
    steps = _steps_of_lines(buffer, spans)
    loops: list[tuple[Var, Expr]] = []
    at: list[Expr] = []
    for span, step in zip(spans, steps, strict=True):
        index = ex.substitute(span.start, later)
        high = known.bounds.reach(span.extent).hi
        extent = span.extent if high is None or high >= FAR else Const.of(high)
        turns = ceil_div(extent, Const.of(step))
        if int_value(turns) != 1:
            line = Var(memory.unique(f"{name}.line"))
            loops.append((line, turns))
            index = index + line * step
        at.append(index)
    total = prod(int_value(n) or MOST_LINES for _, n in loops)
    kind: lp.ForKind = "unrolled" if total < MOST_LINES else "serial"
    stmt: Stmt = Prefetch(buffer, tuple(at))
    for line, turns in reversed(loops):
        stmt = For(line, turns, kind, stmt)
    return stmt
