# SPDX-License-Identifier: Apache-2.0
"""Statements of one function to lines of C, for every language of its family.

What needs a place in memory or other threads is printed by the emitter of each language, which
builds on this class.
"""

from __future__ import annotations

from typing import NoReturn

from treadle.dtype import INDEX
from treadle.errors import InternalError
from treadle.loop.nodes import (
    Allocate,
    Barrier,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
)
from treadle.target.c_counters import Counters
from treadle.target.c_helpers import c_type
from treadle.target.c_values import Lines, Values, bare
from treadle.target.names import symbol


class Statements:
    """Prints the statements of one function of the kernel called `kernel`."""

    def __init__(self, kernel: str, values: Values, counters: Counters) -> None:
        self.kernel = kernel
        self.values = values
        self.counters = counters

    @property
    def lines(self) -> Lines:
        """The lines of the function."""
        return self.values.lines

    def statement(self, s: Stmt) -> None:
        """Print one statement."""
        if isinstance(s, Seq):
            for part in s.stmts:
                self.statement(part)
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, Prefetch):
            self.prefetch(s)
        elif isinstance(s, Allocate):
            self.allocate(s)
        elif isinstance(s, If):
            self._if(s)
        elif isinstance(s, Let):
            self._let(s)
        elif isinstance(s, Evaluate):
            [value] = self.values.statement(s.value)
            self.lines.line(f"(void){value};")
        elif isinstance(s, Barrier):
            self.barrier()
        else:
            self.any_loop(s)

    # -- what each language has its own words for

    def allocate(self, s: Allocate) -> None:
        """Print the declaration of a buffer, and what runs while it exists."""
        raise NotImplementedError

    def any_loop(self, s: For) -> None:
        """Print a loop of any kind."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Print a barrier between the threads of a block."""
        raise NotImplementedError

    def prefetch(self, s: Prefetch) -> None:
        """Print a prefetch, or nothing."""

    # -- what they share

    def store(self, s: Store) -> None:
        """Print a store of one element."""
        index, value = self.values.statement(s.indices[0], s.value)
        place = f"{self.values.buffer(s.buffer)}[{bare(index)}]"
        self.lines.line(f"{place} = {bare(value)};")

    def _let(self, s: Let) -> None:
        [value] = self.values.statement(s.value)
        name = self.values.vars[s.var] = self.lines.fresh(symbol(s.var.name))
        with self.counters.let(s.var, s.value) as type_:
            self.lines.line(f"const {type_} {name} = {bare(value)};")
            self.statement(s.body)

    def _if(self, s: If) -> None:
        [cond] = self.values.statement(s.cond)
        with self.lines.block(f"if ({bare(cond)})"):
            self.statement(s.then)
        if s.orelse is not None:
            with self.lines.block("else"):
                self.statement(s.orelse)

    def serial_loop(self, s: For) -> None:
        """Print a loop whose iterations run in order."""
        [extent] = self.values.statement(s.extent)
        self.loop(s, "0", extent)

    def loop(self, s: For, begin: str, end: str) -> None:
        """Print the part of a loop from `begin` up to but without `end`."""
        name = self.values.vars[s.var] = self.lines.fresh(symbol(s.var.name))
        with self.counters.loop(s.var, s.extent) as type_:
            if type_ != c_type(INDEX):
                begin, end = (x if x.isdigit() else f"({type_}){x}" for x in (begin, end))
            head = f"for ({type_} {name} = {begin}; {name} < {end}; ++{name})"
            with self.lines.block(head):
                self.statement(s.body)

    def fail(self, problem: str) -> NoReturn:
        """Raise InternalError about the kernel."""
        raise InternalError(problem, at=f"kernel {self.kernel}")
