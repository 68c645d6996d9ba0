# SPDX-License-Identifier: Apache-2.0
"""What the axes of a stage still run over while its loops are entered one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Literal

from treadle.expr import nodes as ex
from treadle.expr.conditions import all_of
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, ExprLike, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import has_division, substitute
from treadle.loop.regions import Box, Span, index_span
from treadle.te.loops import Fuse, Split, Trim, root_values
from treadle.te.operations import IterVar
from treadle.te.stage import Stage

Phase = Literal["whole", "init", "update"]
ZERO = Const.of(0)


@dataclass(slots=True)
class Nest:
    """How far the loops of one stage have been entered."""

    base: dict[IterVar, Expr]
    """Where each root axis starts."""
    roots: dict[IterVar, Expr]
    """The extent of each root axis."""
    bound: dict[IterVar, Expr] = field(default_factory=dict)
    """The value of each loop already entered."""
    overrides: dict[IterVar, Expr] = field(default_factory=dict)
    """Extents of inner axes of uneven splits whose case is decided."""
    guarded: frozenset[int] = frozenset()
    """Uneven splits that are guarded by a condition already."""
    conditions: tuple[Expr, ...] = ()
    """What holds of the elements that are stored: it may not hold around a barrier."""
    phase: Phase = "whole"
    is_plain: bool = False
    """The loops that are left run as loops, where an intrinsic was to do what they do."""
    relaxed: tuple[Simplifier, Box] | None = field(default=None, init=False)
    """What `relax` found last, with what was known then."""

    def entered(self, leaf: IterVar, value: Expr) -> Nest:
        """Return the nest inside of one more loop."""
        return replace(self, bound={**self.bound, leaf: value})


@dataclass(frozen=True, slots=True)
class LoopsLeft:
    """Where a stage stands in terms of its loops: those entered, and those left with their spans.

    The span of an axis is one piece; loops that step over others (every second row of an image,
    say) cover less of it.
    """

    at: dict[Expr, Expr]
    spans: Box
    known: Simplifier

    def narrowed(self, span: Span, index: Expr, extent: Expr, *, is_rounded: bool = False) -> Span:
        """Return the part of a span that an index with a quotient or remainder covers.

        It may be one of the index or of the axes in it, which fused loops stand for. What is
        `rounded` up may go past the end.
        """
        if int_value(span.extent) == 1:
            return span
        at = substitute(index, self.at)
        if not has_division(index):
            if not is_rounded or not has_division(at):
                return span
            at = self.known.run(at)  # x // w * w + x % w is x
        found = index_span(at, self.spans, extent, self.known)
        size, whole = int_value(found.extent), int_value(span.extent)
        if size is None or (whole is not None and size >= whole + is_rounded):
            return span
        if is_rounded:
            return found
        is_inside = self.known.prove(all_of([found.start >= 0, found.start + size <= extent]))
        return found if is_inside is True else span


def relax(stage: Stage, nest: Nest, known: Simplifier) -> Box:
    """Return what every root axis still runs over, given the loops entered so far."""
    if nest.relaxed is None or nest.relaxed[0] is not known:
        nest.relaxed = known, _relaxed(stage, nest, known)
    return nest.relaxed[1]


def _relaxed(stage: Stage, nest: Nest, known: Simplifier) -> Box:
    extents = {a: known.run(e) for a, e in stage.extents(nest.roots, nest.overrides).items()}
    spans: dict[IterVar, Span] = {}
    full: set[IterVar] = set()
    rounded: set[IterVar] = set()
    for leaf in stage.leaf_iter_vars:
        if leaf in nest.bound:
            spans[leaf] = Span(nest.bound[leaf], Const.of(1))
        else:
            spans[leaf] = Span(ZERO, extents[leaf])
            full.add(leaf)
    for r in reversed(stage.relations):
        if isinstance(r, Split):
            if r.outer in full and r.inner in full:
                full.add(r.parent)
                spans[r.parent] = Span(ZERO, extents[r.parent])
                continue
            o, i, factor = spans[r.outer], spans[r.inner], r.step(extents[r.parent])
            start = known.run(o.start * factor + i.start)
            extent = known.run((o.extent - 1) * factor + i.extent)
            spans[r.parent] = Span(start, extent, _joint_step(o, i, int_value(factor) or 1))
        elif r.fused in full:
            full.update((r.outer, r.inner))
            spans[r.outer] = Span(ZERO, extents[r.outer])
            spans[r.inner] = Span(ZERO, extents[r.inner])
        else:
            parts, is_exact = _unfuse(r, spans[r.fused], extents, known)
            spans.update(parts)
            rounded.update(() if is_exact else (r.outer,))
    over = _overrunning(stage, nest, extents, full, rounded, known)
    return {
        a: _rooted(spans[a], nest.base[a], nest.roots[a], known, is_exact=a not in over)
        for a in stage.root_iter_vars
    }


def _overrunning(
    stage: Stage,
    nest: Nest,
    extents: dict[IterVar, Expr],
    full: set[IterVar],
    rounded: set[IterVar],
    known: Simplifier,
) -> set[IterVar]:
    """Return the axes whose entered loops may run past the end.

    They are those of uneven splits not yet settled, and `rounded` ones.
    """
    over = set(rounded)
    for r in reversed(stage.relations):
        if not isinstance(r, Split):
            if r.fused in over:
                over.update((r.outer, r.inner))
        elif r.outer in over or r.inner in over:
            over.add(r.parent)
        elif r.parent in full or r.inner in nest.overrides:
            continue
        elif not is_split_evenly(r, extents[r.parent], known):
            over.add(r.parent)
    return over


def _rooted(span: Span, base: Expr, extent: Expr, known: Simplifier, *, is_exact: bool) -> Span:
    """Return a span of a root axis, counted from where the axis starts, as it really is.

    Loops over an uneven split or a fusion may run past the end of the axis.
    """
    start = known.run(base + span.start)
    end = known.run(span.start + span.extent)
    inside = is_exact or known.prove(end <= extent) is True
    if inside or _ends_inside(span, extent, known):
        return replace(span, start=start)
    rest = known.run(ex.minimum(end, extent) - span.start)
    return Span(start, bounded(rest, span.extent, known), span.step, may_be_empty=True)


def _ends_inside(span: Span, extent: Expr, known: Simplifier) -> bool:
    """True when the span is limited to the end of the axis: its extent is a minimum with it."""
    limit = span.extent
    if not isinstance(limit, ex.Binary) or limit.op != "min":
        return False
    ends = (known.run(span.start + part) for part in (limit.a, limit.b))
    return any(known.prove(end <= extent) is True for end in ends)


def _unfuse(
    fusion: Fuse, span: Span, extents: Mapping[IterVar, Expr], known: Simplifier
) -> tuple[dict[IterVar, Span], bool]:
    """Return the spans of two fused axes; False when the outer one may be one too long."""
    outer, inner, width = fusion.outer, fusion.inner, extents[fusion.inner]
    if int_value(extents[outer]) == 1:
        return {outer: Span(ZERO, Const.of(1)), inner: span}, True
    n, w = int_value(span.extent), int_value(width)
    row = known.run(span.start // width)
    if n == 1 or (n is not None and w is not None and w % n == 0 and is_even(span.start, n, known)):
        column = known.run(span.start % width)
        return {outer: Span(row, Const.of(1)), inner: Span(column, span.extent)}, True
    if n is not None and w is not None and n % w == 0 and is_even(span.start, w, known):
        return {outer: Span(row, Const.of(n // w)), inner: Span(ZERO, width)}, True
    rows = known.run((span.extent + width - 2) // width + 1)
    return {outer: Span(row, rows), inner: Span(ZERO, width)}, False


def _joint_step(outer: Span, inner: Span, factor: int) -> int:
    """Return the step of an axis whose parts run over these spans."""
    parts = [(outer, factor), (inner, 1)]
    steps = (f * span.step for span, f in parts if int_value(span.extent) != 1)
    return gcd(*steps) or 1


def trimmed(extent: Expr, start: Expr, along: Span, trim: Trim) -> Expr:
    """Return the extent of an axis from `start` on that ends where another one does."""
    per = trim.multiple // trim.scale
    last = along.start + along.extent - 1
    count = (last + trim.ahead + trim.multiple) // trim.multiple
    whole = int_value(extent)
    if whole is not None and whole % per == 0 and int_value(start) == 0:
        return ex.minimum(count, whole // per) * per
    return ex.maximum(ex.minimum(extent, count * per - start), 0)


def is_started(stage: Stage, axis: IterVar, bound: dict[IterVar, Expr]) -> bool:
    """True when a loop that `axis` was divided into is entered already."""
    parts = [axis]
    for r in stage.relations:
        if isinstance(r, Split):
            if any(r.parent is p for p in parts):
                parts += [r.outer, r.inner]
        elif any(r.outer is p or r.inner is p for p in parts):
            parts.append(r.fused)
    return any(p in bound for p in parts)


def bounded(extent: Expr, limit: Expr, known: Simplifier) -> Expr:
    """Return `extent`, with `limit` (a constant it cannot exceed) kept provable."""
    n = known.bounds.of(limit).hi
    high = known.bounds.of(extent).hi
    if n is None or (high is not None and high <= n):
        return ex.maximum(extent, 0) if int_value(extent) is None else extent
    return ex.maximum(ex.minimum(extent, n), 0)


def is_split_evenly(split: Split, whole: Expr, known: Simplifier) -> bool:
    """True when every part of an axis of extent `whole` is certainly a full one."""
    step = split.step(whole)
    if split.parts is not None:
        return int_value(known.run(split.parts * step - whole)) == 0
    return is_even(whole, step, known)


def is_even(whole: Expr, factor: ExprLike, known: Simplifier) -> bool:
    """True when an extent is certainly a multiple of a factor."""
    return int_value(known.run(whole % factor)) == 0


def index_range(extent: Expr, known: Simplifier) -> Interval:
    """Return what the variable of a loop of `extent` iterations runs over."""
    high = known.bounds.reach(extent).hi
    return Interval(0, None if high is None else max(0, high - 1))


def loops_left(stage: Stage, nest: Nest, known: Simplifier) -> LoopsLeft:
    """Return where a stage stands in terms of the loops that are not entered yet."""
    extents = stage.extents(nest.roots, nest.overrides)
    left = [a for a in stage.leaf_iter_vars if a not in nest.bound]
    leaves = {**nest.bound, **{a: a for a in left}}
    values, _ = root_values(stage, leaves, extents)
    spans = {a: Span(ZERO, known.run(extents[a])) for a in left}
    ranges: dict[Var, Interval] = {a: index_range(s.extent, known) for a, s in spans.items()}
    at: dict[Expr, Expr] = {a: nest.base[a] + values[a] for a in stage.root_iter_vars}
    return LoopsLeft(at, spans, Simplifier({**known.ranges, **ranges}))
