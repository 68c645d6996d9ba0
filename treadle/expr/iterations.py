# SPDX-License-Identifier: Apache-2.0
"""Simplified expressions of a loop's body at numbers of its variable, simplified again.

An index is a sum in normal form: at a number it has one term less and another constant, so the
copies of an unrolled body need no simplification of their own.

i*64 + j*16 + 3 at j = 2  ->  i*64 + 35
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.dtype import INDEX
from treadle.expr.affine import Affine, decompose, is_sum
from treadle.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Select, Var, binary
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import leaves, substitute


class Iterations:
    """What expressions that are simplified for all values of a variable are at single ones."""

    def __init__(self, var: Var, known: Simplifier) -> None:
        """`known` simplifies outside of the loop over `var`."""
        self.var = var
        self._known = known
        self._steps: dict[Expr, list[_Step]] = {}
        self._made: dict[Expr, Expr] = {}
        self.value = Const.of(0)

    def at(self, value: int) -> None:
        """Take another iteration."""
        self.value = Const.of(value)
        self._made = {self.var: self.value}

    def run(self, e: Expr) -> Expr:
        """Return an expression as it is in this iteration."""
        if self.var not in leaves(e):
            return e
        steps = self._steps.get(e)
        if steps is None:
            steps = self._steps[e] = self._steps_of(e)
        made = self._made
        for step in steps:
            if step.node not in made:
                made[step.node] = self._at(step)
        return made[e]

    def _at(self, step: _Step) -> Expr:
        node, made = step.node, self._made
        if step.line is not None:
            return step.line.at(int(self.value.value))
        if step.is_whole:
            return self._known.run(substitute(node, {self.var: self.value}))
        fresh = node.with_children(tuple([made.get(c, c) for c in node.children]))
        return fresh if isinstance(fresh, _PLAIN) else self._known.outermost(fresh)

    def _steps_of(self, e: Expr) -> list[_Step]:
        """Return the nodes that depend on the variable, operands before users."""
        var = self.var
        found: dict[Expr, _Step | None] = {var: None}
        stack = [(e, self._step(e))]
        while stack:
            node, step = stack.pop()
            if node in found:
                continue
            inner: list[Expr] = []
            if step.line is None and not step.is_whole:
                inner = [c for c in node.children if c not in found and var in c.leaves_of]
            if inner:
                stack.append((node, step))
                stack += [(c, self._step(c)) for c in inner]
            else:
                found[node] = step
        return [step for step in found.values() if step is not None]

    def _step(self, node: Expr) -> _Step:
        var = self.var
        if node.dtype != INDEX or not is_sum(node):
            return _Step(node, None, is_whole=isinstance(node, Select) and node.lazy)
        if node.lanes == 1:
            line = _line(decompose(node), var)
            return _Step(node, line, is_whole=line is None)
        is_plain = isinstance(node, Broadcast) or (
            isinstance(node, Ramp) and var not in node.stride.leaves_of
        )
        return _Step(node, None, is_whole=not is_plain)


_PLAIN = (Load, Ramp, Broadcast)
"""Nodes of simplified operands that need no rule."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The sum `factor * variable + rest`; `linear` is the rest without its constant, if not 0."""

    factor: int
    rest: Affine
    linear: Expr | None

    def at(self, value: int) -> Expr:
        const = self.rest.const + self.factor * value
        if self.linear is None:
            return self.rest.like(self.rest.terms, const).to_expr()
        if const == 0:
            return self.linear
        return binary("add" if const > 0 else "sub", self.linear, Const.of(abs(const)))


@dataclass(frozen=True, slots=True)
class _Step:
    """A node, and how it depends on the variable.

    `line` says that where it is simple; else its operands are made first, or, where `is_whole`, all
    of it is simplified anew.
    """

    node: Expr
    line: _Line | None
    is_whole: bool


def _line(s: Affine, var: Var) -> _Line | None:
    """Return a sum as a function of a variable; None where other terms depend on it."""
    factor, rest = s.without(var)
    if any(var in leaves(atom) for atom in rest.terms):
        return None
    # A sum that begins with a subtraction has its constant first.
    is_led = any(coef > 0 for coef in rest.terms.values())
    return _Line(factor, rest, rest.like(rest.terms, 0).to_expr() if is_led else None)
