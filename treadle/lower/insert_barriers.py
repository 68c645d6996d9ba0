# SPDX-License-Identifier: Apache-2.0
"""Let the threads of a GPU block wait for each other before one reads what another wrote.

before: for t in thread(32, "threadIdx.x"):        after: for t in thread(32, "threadIdx.x"):
            for k in range(4):                                for k in range(4):
                S[t] = A[k * 32 + t]                              barrier()
                B[k, t] = S[31 - t]                               S[t] = A[k * 32 + t]
                                                                  barrier()
                                                                  B[k, t] = S[31 - t]

A barrier stands before a statement that reads what was written since the last one, or writes what
was read since: by the statements before it, or, at the start of a loop's body, by the iteration
before. Between accesses of one thread to its own element there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from treadle.errors import ScheduleError
from treadle.expr.nodes import Expr, Load, Var, int_value
from treadle.expr.traversal import free_vars, substitute, walk
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Barrier, Buffer, For, If, Let, PrimFunc, Seq, Stmt, Store


def insert_barriers(func: PrimFunc) -> PrimFunc:
    """Return `func` with barriers where threads of a block exchange data.

    Raises:
        ScheduleError: a barrier would be needed where not all threads come to it.
    """
    if not any(isinstance(s, For) and s.kind == "thread" for s in lp.walk_stmts(func.body)):
        return func
    return func.with_body(_Inserter(func.name).visit(func.body).stmt)


@dataclass(frozen=True, slots=True)
class _Access:
    """An element of a buffer that several threads see, and the threads that may be there."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    threads: tuple[Var, ...]

    def is_own(self, other: _Access) -> bool:
        """True when every thread accesses the same element both times, and one of its own."""
        if self.indices != other.indices:
            return False
        used = {v for i in self.indices for v in free_vars(i)}
        return used.issuperset(self.threads)

    def shifted(self, var: Var, before: Expr) -> _Access:
        """Return the access of another iteration."""
        return replace(self, indices=tuple(substitute(i, {var: before}) for i in self.indices))


@dataclass(frozen=True, slots=True)
class _Accesses:
    reads: tuple[_Access, ...] = ()
    writes: tuple[_Access, ...] = ()

    def __or__(self, other: _Accesses) -> _Accesses:
        return _Accesses(self.reads + other.reads, self.writes + other.writes)

    def conflict(self, after: _Accesses) -> Buffer | None:
        """Return a buffer of which these accesses must be done before those after them begin."""
        for first, then in ((self.writes, after.reads), (self.reads, after.writes)):
            for a in first:
                for b in then:
                    if a.buffer is b.buffer and not a.is_own(b):
                        return a.buffer
        return None

    def shifted(self, var: Var) -> _Accesses:
        """Return the accesses of the iteration before."""
        before = Var(f"{var.name}.before")
        reads, writes = (
            tuple(a.shifted(var, before) for a in g) for g in (self.reads, self.writes)
        )
        return _Accesses(reads, writes)


@dataclass(frozen=True, slots=True)
class _Part:
    """A statement, and what it accesses before its first barrier and after its last one."""

    stmt: Stmt
    head: _Accesses = _Accesses()
    tail: _Accesses = _Accesses()
    waits: bool = False
    """True when every way through it has a barrier."""


class _Inserter:
    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.threads: list[Var] = []
        """The indices of the loops over threads of a block that are open."""
        self.index_of: dict[str, Var] = {}
        """One variable for all loops over the threads of a tag."""
        self.indices: dict[Expr, Expr] = {}
        """The variables of open loops over threads, as the one of their tag."""
        self.depth = 0
        """How many loops over hardware indices are open."""
        self.varying: set[Var] = set()
        """The variables whose values differ between threads."""
        self.seen: set[int] = set()
        """The buffers that several threads see."""
        self.diverged: list[Expr] = []
        """The conditions and extents around that differ between threads."""

    def visit(self, s: Stmt) -> _Part:
        """Return a statement with barriers in it."""
        if isinstance(s, Seq):
            return self._seq(s)
        if isinstance(s, For):
            return self._thread(s) if s.kind == "thread" else self._loop(s)
        if isinstance(s, If):
            return self._if(s)
        if isinstance(s, Allocate):
            if s.buffer.scope == "shared" or (self.depth and s.buffer.scope != "local"):
                self.seen.add(id(s.buffer))
            return self._around(s, s.body)
        if isinstance(s, Let):
            if self._varies(s.value):
                self.varying.add(s.var)
            return self._around(s, s.body, self._reads([s.value]))
        if isinstance(s, Barrier):
            return _Part(s, waits=True)
        reads = self._reads(lp.stmt_exprs(s))
        writes = self._access(s.buffer, s.indices) if isinstance(s, Store) else ()
        found = _Accesses(reads.reads, tuple(writes))
        return _Part(s, found, found)

    def _around(
        self,
        s: Allocate | Let,
        body: Stmt,
        first: _Accesses = _Accesses(),
    ) -> _Part:
        inner = self.visit(body)
        tail = inner.tail if inner.waits else first | inner.tail
        return _Part(replace(s, body=inner.stmt), first | inner.head, tail, inner.waits)

    def _seq(self, s: Seq) -> _Part:
        made: list[Stmt] = []
        whole = _Part(s)
        for child in s.stmts:
            part = self.visit(child)
            needed = whole.tail.conflict(part.head)
            if needed is not None:
                made.append(self._barrier(needed))
                whole = replace(whole, tail=_Accesses(), waits=True)
            made.append(part.stmt)
            head = whole.head if whole.waits else whole.head | part.head
            tail = part.tail if part.waits else whole.tail | part.tail
            whole = _Part(s, head, tail, whole.waits or part.waits)
        return replace(whole, stmt=lp.seq(*made))

    def _thread(self, s: For) -> _Part:
        is_thread = not s.thread.startswith("blockIdx")
        self.depth += 1
        if is_thread:
            index = self.index_of.setdefault(s.thread, Var(s.thread))
            self.threads.append(index)
            self.indices[s.var] = index
            self.varying.add(s.var)
        body = self.visit(s.body)
        if is_thread:
            self.threads.pop()
        self.depth -= 1
        return replace(body, stmt=replace(s, body=body.stmt))

    def _loop(self, s: For) -> _Part:
        with self._where(s.extent, s.var):
            body = self.visit(s.body)
            carried = body.tail.shifted(s.var).conflict(body.head)
            made = body.stmt
            if carried is not None and int_value(s.extent) != 1:
                made = lp.seq(self._barrier(carried), made)
                body = _Part(made, _Accesses(), body.tail, waits=True)
        extent = int_value(s.extent)
        runs = extent is not None and extent > 0
        return replace(body, stmt=replace(s, body=made), waits=body.waits and runs)

    def _if(self, s: If) -> _Part:
        with self._where(s.cond):
            then = self.visit(s.then)
            other = _Part(lp.seq()) if s.orelse is None else self.visit(s.orelse)
        asked = self._reads([s.cond])
        head, tail = asked | then.head | other.head, then.tail | other.tail
        waits = then.waits and other.waits
        orelse = None if s.orelse is None else other.stmt
        return _Part(If(s.cond, then.stmt, orelse), head, tail if waits else asked | tail, waits)

    @contextmanager
    def _where(self, e: Expr, var: Var | None = None) -> Iterator[None]:
        """Be in statements that run as `e` says, whose loop is over `var`."""
        varies = self._varies(e)
        if varies:
            self.diverged.append(e)
            if var is not None:
                self.varying.add(var)
        try:
            yield
        finally:
            if varies:
                self.diverged.pop()

    def _varies(self, e: Expr) -> bool:
        return any(isinstance(n, Load) or n in self.varying for n in walk(e))

    def _reads(self, exprs: Iterable[Expr]) -> _Accesses:
        found: list[_Access] = []
        for n in (n for e in exprs for n in walk(e)):
            if isinstance(n, Load) and isinstance(n.source, Buffer):
                found += self._access(n.source, n.indices)
        return _Accesses(tuple(dict.fromkeys(found)))

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[_Access]:
        if id(buffer) not in self.seen:
            return []
        at = tuple(substitute(i, self.indices) for i in indices)
        return [_Access(buffer, at, tuple(self.threads))]

    def _barrier(self, buffer: Buffer) -> Barrier:
        if not self.diverged:
            return Barrier()
        raise ScheduleError(
            f"threads must wait for each other before {buffer.name} is used, where only those run "
            f"for which {self.diverged[-1]}",
            at=f"kernel {self.kernel}",
            hint="compute it outside of that condition, or split so that the parts are even",
        )
