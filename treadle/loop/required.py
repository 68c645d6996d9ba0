# SPDX-License-Identifier: Apache-2.0
"""What a stage must provide where it is computed: spans of reads, kept inside of tensors."""

from __future__ import annotations

from functools import cached_property

from treadle.errors import ScheduleError
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.bounds import Bounds
from treadle.expr.conditions import all_of, conjuncts
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import free_vars, substitute, uses
from treadle.loop.domains import bounded
from treadle.loop.regions import Box, Span, index_span
from treadle.te.loops import AxisNote
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.stage import Stage

_OF_CONSTANT_BOUND = ("vectorized", "unrolled")
"""Kinds of loops that are written out."""


def check_rounded(reader: Stage, producer: Stage, d: int, index: Expr) -> None:
    """What is read past the end must be made past the end."""
    assert isinstance(producer.op, ComputeOp)
    if index.leaves.isdisjoint(reader.rounded) or producer.op.axis[d] in producer.rounded:
        return
    raise ScheduleError(
        f"stage {reader.name} is rounded up, but {producer.name}, which it reads, is not",
        at=f"stage {producer.name}",
        hint=f"round up {producer.op.axis[d].name} of {producer.name}, too",
    )


def whole_tile(span: Span, known: Simplifier) -> Span:
    """Return a span with the most elements it ever has."""
    high = known.bounds.reach(span.extent).hi
    return span if high is None else Span(span.start, Const.of(high))


class WholeDomain:
    """All that a reader computes, whatever part of it is computed where its loops stand."""

    def __init__(self, reader: Stage, known: Simplifier) -> None:
        self.reader = reader
        self.known = known

    def reductions(self) -> Box:
        """Return the whole of every reduction axis: a stage computed inside runs all of them."""
        op = self.reader.op
        axes = op.reduce_axis if isinstance(op, ComputeOp) else ()
        return {a: Span(a.start, self.known.run(a.extent)) for a in axes}

    def read_span(self, index: Expr, box: Box, extent: Expr) -> Span:
        """Return what a read covers of a dimension while the axes of `box` run over their spans."""
        span = index_span(index, box, extent, self.known)
        return span if self._stays_inside(index, extent) else clamped(span, extent, self.known)

    @cached_property
    def _bounds(self) -> tuple[Bounds, dict[Expr, Expr]]:
        """The bounds of the axes, and the last values of those without a constant end."""
        bounds = self.known.bounds
        ranges: dict[Var, Interval] = dict(self.known.ranges)
        last: dict[Expr, Expr] = {}
        for axis in self.reader.root_iter_vars:
            begin, end = self.reader.peeled.get(axis, (axis.start, axis.start + axis.extent))
            low, high = bounds.of(begin).lo, bounds.of(end - 1).hi
            ranges[axis] = Interval(low, high)
            if high is None:
                last[axis] = end - 1
        return Bounds(ranges), last

    def _stays_inside(self, index: Expr, extent: Expr) -> bool:
        """True when no point of the domain reads outside [0, extent)."""
        if isinstance(index, IterVar):
            same = self.known.run(index.extent) is self.known.run(extent)
            return int_value(index.start) == 0 and same
        bounds, last = self._bounds
        if bounds.prove(index >= 0) is not True:
            return False
        if bounds.prove(index < extent) is True:
            return True
        # An index that only grows with axes of symbolic ends is largest at all of their ends.
        if not all(_grows_with(index, axis) for axis in last):
            return False
        return bounds.prove(substitute(index, last) < extent) is True


def clamped(span: Span, extent: Expr, known: Simplifier) -> Span:
    """Return the part of a span that exists; an empty one still starts and ends inside."""
    last = known.run(span.start + span.extent)
    start, end = _within(span.start, extent, known), _within(last, extent, known)
    if start is span.start and end is last:
        return span
    return Span(start, bounded(known.run(end - start), span.extent, known))


def intersection(span: Span, whole: Span, known: Simplifier) -> Span:
    """Return the part of a span that lies in another one."""
    start = greatest(span.start, whole.start, known)
    end = least(span.start + span.extent, whole.start + whole.extent, known)
    if start is span.start and known.run(end - start) is known.run(span.extent):
        return span
    return Span(start, bounded(known.run(end - start), whole.extent, known))


def _within(e: Expr, extent: Expr, known: Simplifier) -> Expr:
    """Return `e`, limited to [0, extent]."""
    if known.prove(e >= 0) is not True:
        e = known.run(ex.maximum(e, 0))
    if known.prove(e <= extent) is not True:
        e = known.run(ex.minimum(e, extent))
    return e


def _grows_with(index: Expr, axis: Expr) -> bool:
    """True when an index is a multiple of an axis, above 0, and terms without it, or lacks it."""
    terms = dict(decompose(index).terms)
    factor = terms.pop(axis, 1)
    return factor > 0 and not any(uses(t, axis) for t in terms)


def least(a: Expr, b: Expr, known: Simplifier) -> Expr:
    """Return the smaller of two sizes."""
    return a if known.prove(a <= b) else known.run(ex.minimum(a, b))


def greatest(a: Expr, b: Expr, known: Simplifier) -> Expr:
    """Return the larger of two sizes."""
    return a if known.prove(a >= b) else known.run(ex.maximum(a, b))


def inside_border(body: Expr, box: Box, known: Simplifier) -> Expr:
    """Return an element without the tests that all of a box passes: it is not the border.

    Bounds of single axes cannot show that where the box ends at a symbolic size.
    """
    if not isinstance(body, ex.Select) or not body.lazy:
        return body
    left = [c for c in conjuncts(body.cond) if not _passes(c, box, known)]
    return ex.select(all_of(left), body.then, body.other, lazy=True) if left else body.then


def _passes(cond: Expr, box: Box, known: Simplifier) -> bool:
    """True when a comparison holds at the corner of a box where it holds least."""
    if not isinstance(cond, ex.Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return False
    corner: dict[Expr, Expr] = {}
    for atom, factor in decompose(cond.a - cond.b).terms.items():
        span = box.get(atom) if isinstance(atom, IterVar) else None
        if span is not None:
            is_low = (factor > 0) == (cond.op in ("gt", "ge"))
            corner[atom] = span.start if is_low else span.start + span.extent - 1
    at_worst = known.run(substitute(cond, corner))
    axes = {v for v in free_vars(at_worst) if isinstance(v, IterVar)}
    return not axes and known.prove(at_worst) is True


def limited(extent: Expr, note: AxisNote | None, known: Simplifier) -> Expr:
    """Return the simplified extent of a loop; one that is unrolled keeps its constant bound.

    What is known of sizes changes with every condition around, and so does what an expression is
    simplified to: it need not be in the terms in which the bound is known.
    """
    found = known.run(extent)
    if (
        note is None
        or note.kind not in _OF_CONSTANT_BOUND
        or known.bounds.reach(found).hi is not None
    ):
        return found
    high = known.bounds.reach(extent).hi
    return found if high is None else known.run(ex.minimum(found, high))


def check_kind(
    stage: Stage, leaf: IterVar, note: AxisNote, extent: Expr, known: Simplifier
) -> None:
    """Refuse vectors and unrolled code of any length.

    Raises: ScheduleError.
    """
    if note.kind in _OF_CONSTANT_BOUND and known.bounds.reach(extent).hi is None:
        raise ScheduleError(
            f"{leaf.name} cannot be {note.kind}: it has no constant bound, its extent is {extent}",
            at=f"stage {stage.name}",
            hint=f"split it by a constant factor, and let the inner part be {note.kind}",
        )
