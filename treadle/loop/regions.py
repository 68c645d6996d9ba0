# SPDX-License-Identifier: Apache-2.0
"""Symbolic regions: what an index expression covers while some variables run over spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.bounds import Interval, prove
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import simplify
from treadle.te.tensor import IterVar

Ranges = Mapping[Var, Interval]


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The integers [start, start + extent)."""

    start: Expr
    extent: Expr


Box = dict[IterVar, Span]


class _Unknown(Exception):  # noqa: N818  # control flow inside this file
    """An index has no bounds that can be said."""


def index_span(index: Expr, box: Box, extent: Expr, ranges: Ranges) -> Span:
    """Return what `index` covers while the axes of `box` run over their spans.

    Where nothing can be said, the whole dimension [0, extent).
    """
    try:
        low, high = _bounds(simplify(index, ranges), box, ranges)
    except _Unknown:
        return Span(Const.of(0), extent)
    return Span(simplify(low, ranges), simplify(high - low + 1, ranges))


def union(a: Span | None, b: Span, ranges: Ranges) -> Span:
    """Return the smallest span that certainly covers both."""
    if a is None:
        return b
    if a.start is b.start and a.extent is b.extent:
        return a
    start = _least(a.start, b.start, ranges)
    a_end, b_end = a.start + a.extent, b.start + b.extent
    end = _greatest(a_end, b_end, ranges)
    return Span(start, simplify(end - start, ranges))


def _least(a: Expr, b: Expr, ranges: Ranges) -> Expr:
    known = prove(a <= b, ranges)
    if known is None:
        return simplify(ex.minimum(a, b), ranges)
    return a if known else b


def _greatest(a: Expr, b: Expr, ranges: Ranges) -> Expr:
    known = prove(a >= b, ranges)
    if known is None:
        return simplify(ex.maximum(a, b), ranges)
    return a if known else b


def _bounds(e: Expr, box: Box, ranges: Ranges) -> tuple[Expr, Expr]:
    if not any(isinstance(n, IterVar) and n in box for n in ex.walk(e)):
        return e, e
    affine = decompose(e)
    low: Expr = Const.of(affine.const)
    high: Expr = low
    for atom, factor in affine.terms.items():
        a, b = _atom_bounds(atom, box, ranges)
        if factor < 0:
            a, b = b, a
        low, high = low + a * factor, high + b * factor
    return simplify(low, ranges), simplify(high, ranges)


def _atom_bounds(e: Expr, box: Box, ranges: Ranges) -> tuple[Expr, Expr]:
    if isinstance(e, IterVar) and e in box:
        span = box[e]
        return span.start, simplify(span.start + span.extent - 1, ranges)
    if not any(isinstance(n, IterVar) and n in box for n in ex.walk(e)):
        return e, e
    if isinstance(e, ex.Select):
        a, b = _bounds(e.then, box, ranges), _bounds(e.other, box, ranges)
        return _least(a[0], b[0], ranges), _greatest(a[1], b[1], ranges)
    if isinstance(e, ex.Binary):
        return _binary_bounds(e, box, ranges)
    raise _Unknown


def _binary_bounds(e: ex.Binary, box: Box, ranges: Ranges) -> tuple[Expr, Expr]:
    if e.op in ("min", "max"):
        (a, b), (c, d) = _bounds(e.a, box, ranges), _bounds(e.b, box, ranges)
        pick = ex.minimum if e.op == "min" else ex.maximum
        return simplify(pick(a, c), ranges), simplify(pick(b, d), ranges)
    divisor = int_value(e.b)
    if e.op not in ("floordiv", "floormod") or divisor is None or divisor <= 0:
        raise _Unknown
    low, high = _bounds(e.a, box, ranges)
    first, last = _quotient(low, divisor, ranges), _quotient(high, divisor, ranges)
    if e.op == "floordiv":
        return first, last
    if first is last:
        return simplify(low % divisor, ranges), simplify(high % divisor, ranges)
    return Const.of(0), Const.of(divisor - 1)


def _quotient(e: Expr, divisor: int, ranges: Ranges) -> Expr:
    """Return e // divisor, inside the limits that clamp `e` where there are any.

    before: min(4 * i + 4, 15) // 4 with i in [0, 3]   ->   after: min(i + 1, 3)
    """
    affine = decompose(e)
    clamp = next((a for a in affine.terms if isinstance(a, ex.Binary) and a.op in _CLAMPS), None)
    if clamp is None or affine.terms[clamp] != 1:
        return simplify(e // divisor, ranges)
    rest = simplify(e - clamp, ranges)
    a, b = (_quotient(simplify(side + rest, ranges), divisor, ranges) for side in (clamp.a, clamp.b))
    pick = ex.minimum if clamp.op == "min" else ex.maximum
    return simplify(pick(a, b), ranges)


_CLAMPS = ("min", "max")
