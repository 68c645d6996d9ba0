# SPDX-License-Identifier: Apache-2.0
"""Axes as digits: where reads use quotients and remainders of an axis, or choose by them.

An axis `a` of which elements use `a // 6` and `a % 6` has the digits `a // 6` and `a % 6`: a loop
for each. Where an element is one of several formulas, `select(a % 3 == 0, x, y)`, writing the
iterations of that digit out leaves one formula in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod
from typing import Literal

from treadle.dtype import is_float
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.simplify import Simplifier, simplify
from treadle.expr.traversal import substitute, walk
from treadle.ops.schedules.stages import border_box
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.stage import Stage
from treadle.tune.sketch_nest import Nest, nest_of

Role = Literal["tile", "inner", "chosen", "lanes"]
"""What becomes of a digit: loops in several levels, a loop inside of those, iterations that are
written out because a formula depends on them, lanes."""

_MOST_CHOSEN = 16
"""The most formulas that are written out one after the other."""
_MOST_INNER = 8
"""The longest digit that is a loop inside of all tiles."""


@dataclass(frozen=True, slots=True)
class Digit:
    """The digit `(axis // unit) % extent` of an axis, by its place in the stage."""

    axis: int
    unit: int
    extent: int
    role: Role


@dataclass(frozen=True, eq=False)
class Digits:
    """A stage by its digits: those of an axis side by side, the outermost first.

    `nest` has them as axes. `operations` and `loads` are what an element takes, the mean over the
    formulas.
    """

    digits: tuple[Digit, ...]
    nest: Nest
    operations: float
    loads: float
    copies: int
    """How many times loops stand in the code, where digits do not divide their axes."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The expression `(axis // unit) % (bound // unit)`; bound 0: without the remainder."""

    axis: int
    unit: int
    bound: int


def digits_of(stage: Stage, op: ComputeOp, body: tuple[Expr, ...], lanes: int) -> Digits | None:
    """Return a stage without reduction by digits; None where its axes have but one each.

    The axes are counted from where the inside of a padded result begins.
    """
    box = border_box(stage) if stage.is_output else {}
    begins = {a: box.get(a, (0, a.extent))[0] for a in op.axis}
    extents = [(int_value(box.get(a, (0, a.extent))[1]) or 1) - begins[a] for a in op.axis]
    spans = _spans(body, op.axis, begins)
    digits = _digits(extents, spans, _chosen(body, spans), lanes)
    if not any(d.role in ("inner", "chosen") for d in digits):
        return None
    names = [ex.Var(f"d{k}") for k in range(len(digits))]
    whole: dict[Expr, Expr] = {}
    for k, axis in enumerate(op.axis):
        terms = (n * d.unit for n, d in zip(names, digits, strict=True) if d.axis == k)
        whole[axis] = sum(terms, start=Const.of(begins[axis]))
    known = Simplifier({n: Interval(0, d.extent - 1) for n, d in zip(names, digits, strict=True)})
    formulas = _formulas([known.run(substitute(b, whole)) for b in body], names, digits)
    nest = nest_of(stage, op, tuple(formulas), names, tuple(d.extent for d in digits))
    operations = sum(_operations(f) for f in formulas) / len(formulas) * len(body)
    loads = sum(_loads(f) for f in formulas) / len(formulas) * len(body)
    uneven = [a for a, n in enumerate(extents) if any(d.axis == a and n % d.unit for d in digits)]
    return Digits(digits, nest, operations, loads, 2 ** len(uneven))


def _spans(
    body: Sequence[Expr], axes: Sequence[IterVar], begins: Mapping[IterVar, int]
) -> dict[Expr, _Span]:
    """Return the expressions that are digits of an axis."""
    found: dict[Expr, _Span] = {}
    for node in dict.fromkeys(n for b in body for n in walk(b)):
        for k, axis in enumerate(axes):
            if node is axis and not begins[axis]:
                found[node] = _Span(k, 1, 0)
            elif begins[axis] and isinstance(node, ex.Binary):
                sums = decompose(node) if node.op in ("add", "sub") else None
                if sums is not None and sums.terms == {axis: 1} and sums.const == -begins[axis]:
                    found[node] = _Span(k, 1, 0)
        if not isinstance(node, ex.Binary) or node.op not in ("floordiv", "floormod"):
            continue
        base, step = found.get(node.a), int_value(simplify(node.b))
        if base is None or not step or step < 0:
            continue
        edge = base.unit * step
        if base.bound and (edge > base.bound or base.bound % edge):
            continue
        is_quotient = node.op == "floordiv"
        found[node] = _Span(base.axis, edge if is_quotient else base.unit,
                            base.bound if is_quotient else edge)  # fmt: skip
    return found


def _chosen(body: Sequence[Expr], spans: Mapping[Expr, _Span]) -> list[_Span]:
    """Return the digits by which elements choose among formulas."""
    found: list[_Span] = []
    for node in dict.fromkeys(n for b in body for n in walk(b)):
        if not isinstance(node, ex.Select) or node.lazy:
            continue
        test = node.cond
        if not isinstance(test, ex.Binary) or test.op != "eq" or int_value(test.b) is None:
            continue
        inside = [n for n in walk(test.a) if n in spans]
        covered = {c for n in inside for c in n.children}
        found += [spans[n] for n in inside if n not in covered]
    return found


def _digits(
    extents: Sequence[int], spans: Mapping[Expr, _Span], chosen: Sequence[_Span], lanes: int
) -> tuple[Digit, ...]:
    last = max((k for k, n in enumerate(extents) if n > 1), default=-1)
    found: list[Digit] = []
    for axis, extent in enumerate(extents):
        edges = {e for s in spans.values() if s.axis == axis for e in (s.unit, s.bound)}
        units = [1]
        for edge in sorted(edges):
            if edge > units[-1] and edge < extent and edge % units[-1] == 0:
                units.append(edge)
        if axis == last and lanes < min(extent, *units[1:], extent):
            units.insert(1, lanes)
            units = [u for u in units if u <= lanes or u % lanes == 0]
        ends = [*units[1:], extent]
        for unit, end in reversed([*zip(units, ends, strict=True)]):
            size = -(-end // unit)
            is_chosen = size <= _MOST_CHOSEN and any(
                s.axis == axis and s.unit <= unit and (not s.bound or unit < s.bound)
                for s in chosen
            )
            role: Role = "tile"
            if axis == last and unit == 1:
                role = "lanes"
            elif is_chosen and size > 1:
                role = "chosen"
            elif end < extent and 1 < size <= _MOST_INNER and not (axis == last and unit == lanes):
                role = "inner"
            found.append(Digit(axis, unit, size, role))
    return _few_chosen(tuple(found))


def _few_chosen(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
    """Return digits of which no more are chosen than can be written out together."""
    count = prod(d.extent for d in digits if d.role == "chosen")
    if count <= _MOST_CHOSEN:
        return digits
    return tuple(Digit(d.axis, d.unit, d.extent, "tile") if d.role == "chosen" else d
                 for d in digits)  # fmt: skip


def _formulas(body: Sequence[Expr], names: Sequence[ex.Var], digits: Sequence[Digit]) -> list[Expr]:
    """Return an element for each of the values of the digits that choose."""
    chosen = [k for k, d in enumerate(digits) if d.role == "chosen"]
    found: list[Expr] = []
    for values in cartesian(*(range(digits[k].extent) for k in chosen)):
        at: dict[Expr, Expr] = {names[k]: Const.of(v) for k, v in zip(chosen, values, strict=True)}
        ranges = {n: Interval(0, d.extent - 1) for n, d in zip(names, digits, strict=True)}
        known = Simplifier(ranges)
        found += [known.run(substitute(b, at)) for b in body]
    return found


def _operations(element: Expr) -> int:
    return sum(isinstance(n, (ex.Binary, ex.Call, ex.Select)) and is_float(n.dtype)
               for n in walk(element))  # fmt: skip


def _loads(element: Expr) -> int:
    return sum(isinstance(n, ex.Load) for n in walk(element))
