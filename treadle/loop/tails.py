# SPDX-License-Identifier: Apache-2.0
"""Code for the last part of a split that does not divide its axis (`te.loops.Split.tail`)."""

from __future__ import annotations

from collections.abc import Callable

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, int_value
from treadle.limits import REMAINDER_CASES
from treadle.loop.context import Context
from treadle.loop.nodes import If, Stmt
from treadle.te.loops import AxisNote, Split

Body = Callable[[Expr], Stmt]
"""What is inside of the outer loop of a split, for an extent of its inner loop."""


def tail(
    split: Split, outer: Expr, whole: Expr, note: AxisNote | None, context: Context, body: Body
) -> Stmt:
    """Return the body of the outer loop of an uneven split, with exact extents of the inner one.

    `outer` is the value of the outer loop, `whole` the extent of the axis, `note` what is said of
    the inner one. One body whose inner loop may be shorter where the tail is "shorten", else

    if (outer + 1) * factor <= whole: body(factor)  else: body(whole - outer * factor)
    """
    factor = split.step(whole)

    def if_any(then: Callable[[], Stmt]) -> Stmt:
        if split.parts is None:
            return then()
        # Of a given number of parts the last ones may be empty.
        return context.branch(context.simplify(outer * factor < whole), then)

    if split.tail == "shorten":
        shorter = context.simplify(ex.minimum(whole - outer * factor, factor))
        return if_any(lambda: body(shorter))

    def remainder() -> Stmt:
        return _remainder(outer, factor, whole, note, context, body)

    fits = context.simplify((outer + 1) * factor <= whole)
    return context.branch(fits, lambda: body(factor), lambda: if_any(remainder))


def _remainder(
    outer: Expr, factor: Expr, whole: Expr, note: AxisNote | None, context: Context, body: Body
) -> Stmt:
    n, f = int_value(whole), int_value(factor)
    if n is not None and f is not None:
        return body(Const.of(n - (-(-n // f) - 1) * f))
    rest = context.simplify(whole - outer * factor)
    if f is not None and f <= REMAINDER_CASES and note is not None and note.kind == "unrolled":
        return _each_length(rest, f, context, body)
    return body(context.simplify(ex.minimum(rest, factor)))


def _each_length(rest: Expr, factor: int, context: Context, body: Body) -> Stmt:
    """Return a case for every length the last tile of a symbolic axis can have.

    So that an unrolled loop has a constant extent, and what it holds stays in registers.
    """
    case = body(Const.of(1))
    for length in range(2, factor):
        longer, shorter = body(Const.of(length)), case
        case = If(context.simplify(rest >= length), longer, shorter)
    return case
