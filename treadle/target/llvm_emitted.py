# SPDX-License-Identifier: Apache-2.0
"""Which expressions have a value already, here and now: common subexpressions of generated code.

A value holds until control leaves the block that dominates its users, or a buffer it was loaded
from changes. What may trap and was emitted under a mask holds only under that mask.

What is the same in all iterations of a loop is emitted before it (loop-invariant code motion): a
value belongs to the innermost scope that one of its operands belongs to. Scopes are numbered from
0, the function itself, inwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.expr.nodes import Const, Expr, Var
from treadle.target.llvm_builder import Builder, Lines, vector
from treadle.target.llvm_facts import Facts
from treadle.target.llvm_memory import Mask

_Table = dict[Expr, tuple[str, int]]
"""The values of expressions, and the scopes they belong to."""


@dataclass(slots=True)
class Scope:
    """A part of a function outside of which the values that belong to it do not hold.

    `before`: where code that runs once before it is appended, for the body of a loop. `stored`: the
    ids of the buffers that change in it; None: what is loaded in it must not be loaded outside, as
    it may not run.
    """

    before: Lines | None = None
    stored: frozenset[int] | None = None
    entries: list[tuple[_Table, Expr]] = field(default_factory=list)


class Emitted:
    """The values of expressions at the place where code is appended; `mask` is the one in force."""

    def __init__(self, builder: Builder, facts: Facts) -> None:
        self.b = builder
        self.facts = facts
        self.mask: Mask | None = None
        self._known: _Table = {}
        self._masked: _Table = {}
        self._readers: dict[int, list[tuple[_Table, Expr]]] = {}
        self._scopes = [Scope()]
        self._variables: dict[Var, int] = {}

    def find(self, e: Expr) -> str | None:
        """Return the value of an expression, None where it has none here."""
        found = self._entry(e)
        return None if found is None else found[0]

    def _entry(self, e: Expr) -> tuple[str, int] | None:
        found = self._known.get(e)
        if found is None and self.mask is not None:
            found = self._masked.get(e)
        return found

    def define(self, variable: Var) -> None:
        """Note that a variable has its value in the innermost scope."""
        self._variables[variable] = self.depth

    @property
    def depth(self) -> int:
        """The number of the innermost scope."""
        return len(self._scopes) - 1

    def home_of(self, operands: Sequence[Expr]) -> int:
        """Return the innermost of the scopes that the values of operands belong to."""
        home = 0
        for e in operands:
            if isinstance(e, Const):
                continue
            if isinstance(e, Var):
                scope = self._variables.get(e, 0)
            else:
                found = self._entry(e)
                scope = self.depth if found is None else found[1]
            home = max(home, scope)
        return home

    def home_of_hazards(self, buffer: int | None = None) -> int:
        """Return the outermost scope that runs whenever this one does, for what may trap.

        Where it reads a buffer: within the scopes that do not change it.
        """
        number = self.depth
        while number > 0:
            stored = self._scopes[number].stored
            if stored is None or buffer in stored:
                break
            number -= 1
        return number

    def add(self, e: Expr, home: int, emit: Callable[[Expr], str]) -> None:
        """Emit an expression of a scope before the outermost loop in it, and keep its value.

        Where there is no loop it is emitted here; it belongs to what its place belongs to.
        """
        inside, home, here = range(home + 1, len(self._scopes)), self.depth, self.b.lines
        for number in inside:
            before = self._scopes[number].before
            if before is not None:
                self.b.lines, home = before, number - 1
                break
        self._remember(e, emit(e), home)
        self.b.lines = here

    def _remember(self, e: Expr, value: str, number: int) -> None:
        """Keep the value of an expression, which belongs to a scope, for as long as it holds."""
        guarded = self.mask is not None and self.facts.has_hazard(e)
        table = self._masked if guarded else self._known
        table[e] = value, number
        for buffer in self.facts.reads(e):
            self._readers.setdefault(buffer, []).append((table, e))
        self._scopes[number].entries.append((table, e))

    def forget(self, buffers: Iterable[int]) -> None:
        """Forget values read from buffers that are about to change."""
        for buffer in buffers:
            for table, e in self._readers.pop(buffer, ()):
                table.pop(e, None)

    @contextmanager
    def scope(self, scope: Scope | None = None) -> Iterator[None]:
        """Forget on leaving what was emitted inside: a branch (None) or a loop body."""
        self._scopes.append(scope or Scope())
        yield
        for table, e in self._scopes.pop().entries:
            table.pop(e, None)

    @contextmanager
    def masked(self, mask: str, lanes: int) -> Iterator[None]:
        """Emit what may trap only for the lanes of `mask` (within the mask already in force)."""
        if self.mask is not None:
            mask = self.b.let(f"and {vector('i1', lanes)} {self.mask.text}, {mask}")
        with self._under(Mask(mask, lanes)):
            yield

    @contextmanager
    def unmasked(self) -> Iterator[None]:
        """Emit for a place that is only reached when it may run."""
        with self._under(None):
            yield

    @contextmanager
    def _under(self, mask: Mask | None) -> Iterator[None]:
        outer, table = self.mask, self._masked
        self.mask, self._masked = mask, {}
        yield
        self.mask, self._masked = outer, table
