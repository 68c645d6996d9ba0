# SPDX-License-Identifier: Apache-2.0
"""Simplified expressions of a loop's body at numbers of its variables, simplified again.

An index is a sum in normal form: at numbers it has less terms and another constant, so the copies
of an unrolled body need no simplification of their own.

i*64 + j*16 + 3 at j = 2  ->  i*64 + 35
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter, mul

from treadle.dtype import INDEX
from treadle.expr.affine import Affine, decompose, is_sum
from treadle.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Select, Var, same_typed
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import substitute


class Iterations:
    """What expressions that are simplified for all values of some variables are at single ones."""

    def __init__(self, variables: Sequence[Var], known: Simplifier) -> None:
        """`known` simplifies outside of the loops over the variables."""
        self.variables = tuple(variables)
        self.values: dict[Expr, Expr] = {}
        """The variables in the iteration that expressions are asked for."""
        self._known = known
        self._steps: dict[Expr, list[_Step]] = {}
        self._made: dict[Expr, Expr] = {}
        self._numbers: tuple[int, ...] = ()

    def at(self, numbers: Sequence[int]) -> None:
        """Take another iteration."""
        self._numbers = tuple(numbers)
        consts = (Const.of(n) for n in numbers)
        self.values = dict(zip(self.variables, consts, strict=True))
        self._made = dict(self.values)

    def run(self, e: Expr) -> Expr:
        """Return an expression as it is in this iteration."""
        if e.leaves.isdisjoint(self.variables):
            return e
        steps = self._steps.get(e)
        if steps is None:
            steps = self._steps[e] = self._steps_of(e)
        made, numbers = self._made, self._numbers
        for step in steps:
            if step.node in made:
                continue
            if step.places is None:
                made[step.node] = self._at(step)
                continue
            key = step.places(numbers)
            found = step.kept.get(key)
            if found is None:
                found = step.kept[key] = self._at(step)
            made[step.node] = found
        return made[e]

    def _at(self, step: _Step) -> Expr:
        node, made = step.node, self._made
        if step.line is not None:
            return step.line.at(self._numbers)
        if step.is_whole:
            return self._known.run(substitute(node, self.values))
        fresh = node.with_children(tuple([made.get(c, c) for c in node.children]))
        return fresh if isinstance(node, _PLAIN) else self._known.outermost(fresh)

    def _steps_of(self, e: Expr) -> list[_Step]:
        """Return the nodes that depend on the variables, operands before users."""
        variables = self.variables
        found: dict[Expr, _Step | None] = dict.fromkeys(variables)
        stack = [(e, self._step(e))]
        while stack:
            node, step = stack.pop()
            if node in found:
                continue
            inner: list[Expr] = []
            if step.line is None and not step.is_whole:
                inner = [
                    c
                    for c in node.children
                    if c not in found and not c.leaves.isdisjoint(variables)
                ]
            if inner:
                stack.append((node, step))
                stack += [(c, self._step(c)) for c in inner]
            else:
                found[node] = step
        return [step for step in found.values() if step is not None]

    def _step(self, node: Expr) -> _Step:
        of = [k for k, v in enumerate(self.variables) if v in node.leaves]
        step = _Step(node, None if len(of) == len(self.variables) else itemgetter(*of))
        if node.dtype != INDEX or not is_sum(node):
            step.is_whole = isinstance(node, Select) and node.lazy
        elif node.lanes == 1:
            step.line = _line(decompose(node), self.variables)
            step.is_whole = step.line is None
        elif isinstance(node, Ramp):
            step.is_whole = not node.stride.leaves.isdisjoint(self.variables)
        else:
            step.is_whole = not isinstance(node, Broadcast)
        return step


_PLAIN = (Load, Ramp, Broadcast)
"""Nodes of simplified operands that need no rule."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Factors times the variables, plus a rest; `linear` is that without its constant, if not 0."""

    factors: tuple[int, ...]
    rest: Affine
    linear: Expr | None

    def at(self, numbers: Sequence[int]) -> Expr:
        const = self.rest.const + sum(map(mul, self.factors, numbers))
        if self.linear is None:
            return self.rest.like(self.rest.terms, const).to_expr()
        if const == 0:
            return self.linear
        return same_typed("add" if const > 0 else "sub", self.linear, Const.of(abs(const)))


@dataclass(slots=True)
class _Step:
    """A node, and how it depends on the variables.

    `places` takes the numbers of those that it depends on, where these are not all of them: for
    other numbers of the rest it is what was `kept`. `line` says how, where that is simple; else its
    operands are made first, or, where `is_whole`, all of it is simplified anew.
    """

    node: Expr
    places: Callable[[tuple[int, ...]], object] | None
    line: _Line | None = None
    is_whole: bool = False
    kept: dict[object, Expr] = field(default_factory=dict)


def _line(s: Affine, variables: Sequence[Var]) -> _Line | None:
    """Return a sum as a function of variables; None where other terms depend on them."""
    factors = tuple([s.terms.get(v, 0) for v in variables])
    terms = dict(s.terms)
    for v in variables:
        terms.pop(v, None)
    if not all(atom.leaves.isdisjoint(variables) for atom in terms):
        return None
    rest = s.like(terms, s.const)
    # A sum that begins with a subtraction has its constant first.
    is_led = any(coef > 0 for coef in terms.values())
    return _Line(factors, rest, rest.like(terms, 0).to_expr() if is_led else None)
