# SPDX-License-Identifier: Apache-2.0
"""Symbolic regions: what an index expression covers while some variables run over spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.te.operations import IterVar


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The integers [start, start + extent), of them each `step`-th."""

    start: Expr
    extent: Expr
    step: int = 1
    may_be_empty: bool = False
    """True where loops that run past the end of an axis may leave nothing of it."""


Box = dict[IterVar, Span]
Spans = Mapping[Any, Span]  # of variables: a Mapping is invariant in the type of its keys


class _Unknown(Exception):  # control flow inside this file
    """An index has no bounds that can be said."""


def index_span(index: Expr, box: Box, extent: Expr, known: Simplifier) -> Span:
    """Return what `index` covers while the axes of `box` run over their spans.

    Where nothing can be said, the whole dimension [0, extent).
    """
    try:
        low, high = _bounds(known.run(index), box, known)
    except _Unknown:
        return Span(Const.of(0), extent)
    return Span(known.run(low), known.run(high - low + 1))


def swept(span: Span, over: Mapping[Var, Span], whole: Span, known: Simplifier) -> Span:
    """Return what a span covers while the variables of `over` run: `whole` where none can tell.

    before: [t * 4, t * 4 + 6), t in [0, 8)     after: [0, 34)
    """
    last = span.start + span.extent - 1
    try:
        low, _ = _bounds(known.run(span.start), over, known)
        _, high = _bounds(known.run(last), over, known)
    except _Unknown:
        return whole
    return Span(known.run(low), known.run(high - low + 1), may_be_empty=span.may_be_empty)


def union(a: Span | None, b: Span, known: Simplifier) -> Span:
    """Return the smallest span that certainly covers both."""
    if a is None:
        return b
    if a.start is b.start and a.extent is b.extent:
        return a
    start = _least(a.start, b.start, known)
    a_end, b_end = a.start + a.extent, b.start + b.extent
    end = _greatest(a_end, b_end, known)
    return Span(start, known.run(end - start))


def _least(a: Expr, b: Expr, known: Simplifier) -> Expr:
    truth = known.prove(a <= b)
    if truth is None:
        return known.run(ex.minimum(a, b))
    return a if truth else b


def _greatest(a: Expr, b: Expr, known: Simplifier) -> Expr:
    truth = known.prove(a >= b)
    if truth is None:
        return known.run(ex.maximum(a, b))
    return a if truth else b


def _bounds(e: Expr, box: Spans, known: Simplifier) -> tuple[Expr, Expr]:
    if e.leaves.isdisjoint(box):
        return e, e
    affine = decompose(e)
    low: Expr = Const.of(affine.const)
    high: Expr = low
    for atom, factor in affine.terms.items():
        a, b = _atom_bounds(atom, box, known)
        if factor < 0:
            a, b = b, a
        low, high = low + a * factor, high + b * factor
    return known.run(low), known.run(high)


def _atom_bounds(e: Expr, box: Spans, known: Simplifier) -> tuple[Expr, Expr]:
    if isinstance(e, Var) and e in box:
        span = box[e]
        return span.start, known.run(span.start + span.extent - 1)
    if e.leaves.isdisjoint(box):
        return e, e
    if isinstance(e, ex.Select):
        a, b = _bounds(e.then, box, known), _bounds(e.other, box, known)
        return _least(a[0], b[0], known), _greatest(a[1], b[1], known)
    if isinstance(e, ex.Binary):
        return _binary_bounds(e, box, known)
    raise _Unknown


def _binary_bounds(e: ex.Binary, box: Spans, known: Simplifier) -> tuple[Expr, Expr]:
    if e.op in ("min", "max"):
        (a, b), (c, d) = _bounds(e.a, box, known), _bounds(e.b, box, known)
        pick = ex.minimum if e.op == "min" else ex.maximum
        return known.run(pick(a, c)), known.run(pick(b, d))
    divisor = int_value(e.b)
    if e.op not in ("floordiv", "floormod") or divisor is None or divisor <= 0:
        raise _Unknown
    low, high = _bounds(e.a, box, known)
    first, last = known.run(low // divisor), known.run(high // divisor)
    if e.op == "floordiv":
        return first, last
    if first is last:
        return known.run(low % divisor), known.run(high % divisor)
    if step_of(e.a, box) % divisor == 0:
        same = known.run(low % divisor)
        return same, same
    return Const.of(0), Const.of(divisor - 1)


def step_of(e: Expr, box: Spans) -> int:
    """Return what every two values of `e` differ by a multiple of; 0 where it has one value."""
    found = 0
    for atom, factor in decompose(e).terms.items():
        span = box.get(atom) if isinstance(atom, Var) else None
        if span is not None:
            found = gcd(found, 0 if int_value(span.extent) == 1 else factor * span.step)
        elif not atom.leaves.isdisjoint(box):
            found = gcd(found, factor)
    return found
