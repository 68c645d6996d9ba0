# SPDX-License-Identifier: Apache-2.0
"""Which expressions have a value already, here and now: common subexpressions of generated code.

A value holds until control leaves the block that dominates its users, or a buffer it was loaded
from changes. What may trap and was emitted under a mask holds only under that mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from treadle.expr.nodes import Expr
from treadle.target.llvm_builder import Builder, vector
from treadle.target.llvm_facts import Facts
from treadle.target.llvm_memory import Mask

_Table = dict[Expr, str]


class Emitted:
    """The values of expressions at the place where code is appended; `mask` is the one in force."""

    def __init__(self, builder: Builder, facts: Facts) -> None:
        self.b = builder
        self.facts = facts
        self.mask: Mask | None = None
        self._known: _Table = {}
        self._masked: _Table = {}
        self._readers: dict[int, list[tuple[_Table, Expr]]] = {}
        self._scopes: list[list[tuple[_Table, Expr]]] = []

    def find(self, e: Expr) -> str | None:
        """Return the value of an expression, None where it has none here."""
        found = self._known.get(e)
        if found is None and self.mask is not None:
            found = self._masked.get(e)
        return found

    def remember(self, e: Expr, value: str) -> None:
        """Keep the value of an expression for as long as it holds."""
        guarded = self.mask is not None and self.facts.has_hazard(e)
        table = self._masked if guarded else self._known
        table[e] = value
        for buffer in self.facts.reads(e):
            self._readers.setdefault(buffer, []).append((table, e))
        if self._scopes:
            self._scopes[-1].append((table, e))

    def forget(self, buffers: set[int]) -> None:
        """Forget values read from buffers that are about to change."""
        for buffer in buffers:
            for table, e in self._readers.pop(buffer, ()):
                table.pop(e, None)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget on leaving what was emitted inside: a branch or a loop body."""
        self._scopes.append([])
        yield
        for table, e in self._scopes.pop():
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
