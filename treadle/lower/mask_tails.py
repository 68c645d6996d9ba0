# SPDX-License-Identifier: Apache-2.0
"""Run loops that do not fill a vector, and lanes under a condition, as vectors under a mask.

before: for i in vectorized(n - o * 16): A[i] = x[i]     where n - o * 16 is at most 15
after:  for i in vectorized(16): if i < n - o * 16: A[i] = x[i]

A local buffer is written whole, with what it had where a lane is off, and has room for whole
vectors: so it can live in registers. Only reads of other memory stand under the mask then:

before: for i in vectorized(n): s[i] = s[i] + y * x[i]
after:  for i in vectorized(16): s[i] = select(i < n, s[i] + y * if_then_else(i < n, x[i], 0), s[i])

Where nothing but such loops of the same lanes writes a local buffer, no one reads what lanes that
are off leave there, and they need not keep what they had:

after:  for i in vectorized(16): s[i] = s[i] + y * if_then_else(i < n, x[i], 0)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.dtype import itemsize
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.bounds import assume
from treadle.expr.conditions import all_of
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import divisors, reads_memory, rewrite, uses, walk
from treadle.limits import VECTOR_LANES
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, Let, PrimFunc, Seq, Stmt, Store


def mask_tails(func: PrimFunc, *, least_masked: int = 0) -> PrimFunc:
    """Return `func` with vectors for what only a mask makes vectors of.

    `least_masked` are the bytes of the smallest elements that the target masks; with 0 nothing
    changes, and so it is where all sizes are known: those loops are cut to fit.
    """
    if not least_masked or not func.sizes:
        return func
    masker = _Masker(least_masked, _private_rows(func.body))
    body = masker.statement(func.body, Simplifier({v: Interval(0, None) for v in func.sizes}))
    return func.with_body(_longer(body, masker.longer)) if masker.changed else func


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of a loop: its variable, their number, and what holds in those it runs."""

    var: Var
    count: int
    known: Simplifier
    iterations: Expr | None
    """What holds in the lanes that are iterations of the loop, None where all are."""


class _Masker:
    """Rewrites statements from outside in; remembers local buffers whose rows must grow."""

    def __init__(self, least: int, private: set[int]) -> None:
        self.least = least
        self.private = private
        self.longer: dict[int, int] = {}
        self.local: set[int] = set()
        self.changed = False

    def statement(self, s: Stmt, known: Simplifier) -> Stmt:
        """Return a statement with masked vectors in it."""
        if isinstance(s, Seq):
            return lp.seq(*(self.statement(p, known) for p in s.stmts))
        if isinstance(s, Allocate):
            if s.buffer.scope == "local":
                self.local.add(id(s.buffer))
            return Allocate(s.buffer, self.statement(s.body, known))
        if isinstance(s, Let):
            inside = Simplifier({**known.ranges, s.var: known.bounds.of(s.value)})
            return replace(s, body=self.statement(s.body, inside))
        if isinstance(s, If):
            then = self.statement(s.then, Simplifier(assume(known.ranges, s.cond)))
            outside = Simplifier(assume(known.ranges, s.cond, holds=False))
            return If(s.cond, then, s.orelse and self.statement(s.orelse, outside))
        if isinstance(s, For):
            return self._loop(s, known)
        return s

    def _loop(self, loop: For, known: Simplifier) -> Stmt:
        if loop.kind == "vectorized":
            made = self._vectors(loop, known)
            self.changed |= made is not None
            return loop if made is None else made
        inside = known.in_loop(loop.var, loop.extent)
        return replace(loop, body=self.statement(loop.body, inside))

    def _vectors(self, loop: For, known: Simplifier) -> Stmt | None:
        """Return a vectorized loop as masked vectors, None where it is none or needs no mask."""
        extent = loop.extent
        most = known.bounds.of_sum(decompose(extent)).hi
        if most is None or not 1 < most <= VECTOR_LANES:
            return None
        if int_value(extent) is not None:
            if not any(isinstance(s, If) and uses(s.cond, loop.var) for s in _all(loop.body)):
                return None
            guard: Expr | None = None
            count = most
        else:
            guard, count = loop.var < extent, 1 << (most - 1).bit_length()
        some = Simplifier(assume(known.ranges, extent > 0))
        lanes = _Lanes(loop.var, count, some, guard)
        body = self._masked(loop.body, guard, lanes)
        if body is None:
            return None
        made = For(loop.var, Const.of(count), "vectorized", body)
        return made if guard is None or known.prove(extent > 0) else If(extent > 0, made)

    def _masked(self, s: Stmt, guard: Expr | None, lanes: _Lanes) -> Stmt | None:
        """Return a body with every store under its condition; None where that cannot be."""
        if isinstance(s, Store):
            return self._store(s, guard, lanes)
        if isinstance(s, Seq):
            parts = [self._masked(p, guard, lanes) for p in s.stmts]
            made = [p for p in parts if p is not None]
            return lp.seq(*made) if len(made) == len(parts) else None
        if isinstance(s, If) and s.orelse is None:
            if not uses(s.cond, lanes.var):
                then = self._masked(s.then, guard, lanes)
                return None if then is None else If(s.cond, then)
            if reads_memory(s.cond):
                return None
            both = s.cond if guard is None else all_of([guard, s.cond])
            return self._masked(s.then, both, lanes)
        if (
            isinstance(s, For)
            and s.kind in ("serial", "unrolled")
            and not uses(s.extent, lanes.var)
        ):
            body = self._masked(s.body, guard, lanes)
            return None if body is None else replace(s, body=body)
        return None

    def _store(self, s: Store, guard: Expr | None, lanes: _Lanes) -> Stmt | None:
        if not self._is_maskable(s, lanes):
            return None
        if guard is None:
            return s
        if id(s.buffer) not in self.local or not self._has_room(s.buffer, s.indices, lanes):
            return If(guard, s)
        old = ex.load(s.buffer, s.indices)
        if guard is not lanes.iterations or _may_trap(s.value):
            return Store(s.buffer, s.indices, ex.select(guard, s.value, old, lazy=True))
        value = rewrite(s.value, lambda e: self._masked_load(e, lanes), {})
        kept = value if id(s.buffer) in self.private else ex.select(guard, value, old)
        return Store(s.buffer, s.indices, kept)

    def _masked_load(self, e: Expr, lanes: _Lanes) -> Expr | None:
        """Return a load with 0 in lanes that are off, where it reads what may not be there.

        What is the same in all lanes is there: the first of them is on.
        """
        if not isinstance(e, ex.Load) or not any(uses(i, lanes.var) for i in e.indices):
            return None
        source = e.source
        is_local = isinstance(source, Buffer) and id(source) in self.local
        if is_local and isinstance(source, Buffer) and self._has_room(source, e.indices, lanes):
            return None
        assert lanes.iterations is not None
        return ex.select(lanes.iterations, e, Const.of(0, e.dtype), lazy=True)

    def _is_maskable(self, s: Store, lanes: _Lanes) -> bool:
        """True for a store of its own in each lane, of elements that the target masks."""
        if not any(uses(i, lanes.var) for i in s.indices):
            return False
        if itemsize(s.buffer.dtype) < self.least:
            return False
        return all(
            n.lanes == 1 and (not isinstance(n, ex.Load) or itemsize(n.dtype) >= self.least)
            for e in (*s.indices, s.value)
            for n in walk(e)
        )

    def _has_room(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: _Lanes) -> bool:
        """True where rows of a local buffer can be made long enough for the lanes that are off.

        A loop that runs has its first lane inside the row.
        """
        *outer, last = indices
        if buffer.strides is not None or any(uses(i, lanes.var) for i in outer):
            return False
        step, at = decompose(lanes.known.run(last)).without(lanes.var)
        if step != 1 or any(uses(a, lanes.var) for a in at.terms):
            return False
        size, first = int_value(buffer.shape[-1]), lanes.known.bounds.of_sum(at)
        if size is None or first.lo is None or first.lo < 0 or first.hi is None or first.hi > size:
            return False
        if first.hi + lanes.count > size:
            self.longer[id(buffer)] = max(self.longer.get(id(buffer), 0), first.hi + lanes.count)
        return True


def _may_trap(e: Expr) -> bool:
    """True where lanes that are off must not be computed: a division by 0 traps."""
    return any((int_value(d) or 0) <= 0 for d in divisors(e))


def _private_rows(body: Stmt) -> set[int]:
    """Return the local buffers that loops of one symbolic extent alone write, at the same places.

    By their addresses. The extent is the same as long as a buffer lives.
    """
    lanes: dict[int, set[tuple[Expr, int] | None]] = {}
    inside: dict[int, For] = {}
    changing: dict[int, list[Var]] = {}
    for s in lp.walk_stmts(body):
        if isinstance(s, For) and s.kind == "vectorized":
            inside.update((id(inner), s) for inner in lp.walk_stmts(s.body))
        if isinstance(s, Allocate) and s.buffer.scope == "local":
            loops = (f.var for f in lp.walk_stmts(s.body) if isinstance(f, For))
            changing.setdefault(id(s.buffer), []).extend(loops)
        if isinstance(s, Store) and s.buffer.scope == "local":
            found = lanes.setdefault(id(s.buffer), set())
            found.add(_lanes_written(s, inside.get(id(s))))
    one = {b: next(iter(found)) for b, found in lanes.items() if len(found) == 1}
    return {
        b
        for b, found in one.items()
        if found is not None and not any(uses(found[0], v) for v in changing.get(b, ()))
    }


def _lanes_written(s: Store, loop: For | None) -> tuple[Expr, int] | None:
    """Return how many lanes a store has and the place of the first; None for any others."""
    if loop is None or int_value(loop.extent) is not None:
        return None
    step, at = decompose(s.indices[-1]).without(loop.var)
    return (loop.extent, at.const) if step == 1 and not at.terms else None


def _all(s: Stmt) -> list[Stmt]:
    return list(lp.walk_stmts(s))


def _longer(body: Stmt, sizes: dict[int, int]) -> Stmt:
    """Return a body whose local buffers have rows of so many elements."""
    made: dict[int, Buffer] = {}
    for s in lp.walk_stmts(body):
        if isinstance(s, Allocate) and id(s.buffer) in sizes:
            row = Const.of(sizes[id(s.buffer)])
            made[id(s.buffer)] = replace(s.buffer, shape=(*s.buffer.shape[:-1], row))
    if not made:
        return body
    memo: dict[Expr, Expr] = {}

    def on_load(e: Expr) -> Expr | None:
        if isinstance(e, ex.Load) and id(e.source) in made:
            return ex.load(made[id(e.source)], e.indices)
        return None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and id(s.buffer) in made:
            return Store(made[id(s.buffer)], s.indices, s.value)
        if isinstance(s, Allocate) and id(s.buffer) in made:
            return Allocate(made[id(s.buffer)], s.body)
        return None

    return lp.map_stmt(body, lambda e: rewrite(e, on_load, memo), on_stmt)
