# SPDX-License-Identifier: Apache-2.0
"""The loops and conditions around the statement that is being built, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from treadle.expr.bounds import assume, ranges_when
from treadle.expr.conditions import all_of
from treadle.expr.facts import Facts, Holding, Iterating
from treadle.expr.nodes import Const, Expr, Var
from treadle.expr.simplify import Simplifier
from treadle.loop import nodes as lp
from treadle.loop.domains import index_range
from treadle.loop.nodes import If, Stmt, seq


class Context:
    """What is known where a statement stands; entering a loop or a branch adds to it."""

    def __init__(self, sizes: Sequence[Var], when: Expr | None) -> None:
        """Begin outside of all loops, where `when` holds of `sizes` (None: nothing is known)."""
        self.sizes = sizes
        self.known = Simplifier(ranges_when(when, sizes))
        """What is known of the variables."""
        self._around: list[Iterating | Holding] = []
        """The loops and conditions, outermost first."""

    def mark(self) -> int:
        """Return a mark of this place in the loops and conditions around."""
        return len(self._around)

    def loops_since(self, mark: int) -> list[Iterating]:
        """Return the loops entered since a mark that is still around, outermost first."""
        return [x for x in self._around[mark:] if isinstance(x, Iterating)]

    def simplify(self, e: Expr) -> Expr:
        """Return an expression with the same value here."""
        return self.known.run(e)

    @contextmanager
    def inside_loop(self, var: Var, extent: Expr) -> Iterator[None]:
        """Enter a loop: 0 <= var < extent."""
        outside = self.known
        self.known = Simplifier({**outside.ranges, var: index_range(extent, outside)})
        self._around.append(Iterating(var, extent))
        try:
            yield
        finally:
            self.known = outside
            self._around.pop()

    @contextmanager
    def where(self, cond: Expr, *, holds: bool = True) -> Iterator[None]:
        """Enter a branch: `cond` is true in it, or false."""
        outside = self.known
        self.known = Simplifier(assume(outside.ranges, cond, holds=holds))
        self._around.append(Holding(cond, holds))
        try:
            yield
        finally:
            self.known = outside
            self._around.pop()

    def branch(
        self, cond: Expr, then: Callable[[], Stmt], orelse: Callable[[], Stmt] = seq
    ) -> Stmt:
        """Return an If whose branches are built with what they may assume; one if it is certain."""
        known = self.known.prove(cond)
        if known is not None:
            return then() if known else orelse()
        with self.where(cond):
            first = then()
        with self.where(cond, holds=False):
            second = orelse()
        return If(cond, first, None if lp.is_empty(second) else second)

    def are_positive(self, extents: Sequence[Expr]) -> Expr:
        """Return the condition that all of some extents are 1 or more, as far as it is in doubt."""
        if not extents:
            return Const.of(True, "bool")
        facts = Facts(self.sizes, self._around)
        in_doubt = [e for e in extents if not facts.are_ordered(Const.of(1), e)]
        return all_of([self.simplify(e >= 1) for e in in_doubt])
