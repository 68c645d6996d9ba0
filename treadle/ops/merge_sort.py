# SPDX-License-Identifier: Apache-2.0
"""A stable merge sort of positions as a loop nest, for the operators that need an order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.expr.nodes import Const, Expr, ExprLike, convert, load, minimum
from treadle.loop.build import assign, counter, declared, loop, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq

_MOST_PASSES = 48
"""Merges that sort any vector that fits into memory."""

Compare = Callable[[Expr, Expr, Buffer], Stmt]
"""compare(a, b, result): what sets `result` above 0 when `a` must stand after `b`."""


@dataclass(frozen=True, slots=True)
class MergeSort:
    """Sorts the positions in plane 0 of `order`, bottom up, between its two planes.

    `order` is int64[*at, 2, n]; `count` of its positions are sorted. Afterwards they are in the
    plane that the local variable `plane` holds.
    """

    order: Buffer
    count: Expr
    compare: Compare
    plane: Buffer
    at: Sequence[Expr] = ()

    def build(self) -> Stmt:
        """Return one merge of neighbouring runs per pass, until there is one run."""

        def step(p: Expr) -> Stmt:
            width = convert(1) << p
            step = seq(self._pass(width), assign(self.plane, 1 - value_of(self.plane)))
            return If(width < self.count, step)

        return seq(assign(self.plane, 0), loop(_passes(self.count), step, "step"))

    def sorted(self, place: ExprLike) -> Expr:
        """Return the position at `place` of the sorted ones."""
        return load(self.order, (*self.at, value_of(self.plane), place))

    def _pass(self, width: Expr) -> Stmt:
        blocks = (self.count + 2 * width - 1) // (2 * width)
        return loop(blocks, lambda b: self._block(width, b), "block")

    def _block(self, width: Expr, block: Expr) -> Stmt:
        start = block * 2 * width
        middle = minimum(start + width, self.count)
        end = minimum(middle + width, self.count)
        left, right, result = counter("left"), counter("right"), counter("result")

        def move(run: Buffer, to: Expr) -> Stmt:
            place = (*self.at, 1 - value_of(self.plane), to)
            return seq(
                put(self.order, place, self.sorted(value_of(run))),
                assign(run, value_of(run) + 1),
            )

        def take(t: Expr) -> Stmt:
            a, b = (self.sorted(value_of(run)) for run in (left, right))
            choose = If(
                value_of(left) < middle,
                If(value_of(right) < end, self.compare(a, b, result), assign(result, 0)),
                assign(result, 1),
            )
            to = start + t
            return seq(choose, If(value_of(result) > 0, move(right, to), move(left, to)))

        return declared(
            [left, right, result],
            seq(assign(left, start), assign(right, middle), loop(end - start, take, "t")),
        )


def _passes(count: Expr) -> int:
    if isinstance(count, Const):
        return max(int(count.value) - 1, 0).bit_length()
    return _MOST_PASSES
