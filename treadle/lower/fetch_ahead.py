# SPDX-License-Identifier: Apache-2.0
"""Let a block of threads fetch what its next step reads while this one is computed.

before: for k in range(8):                    after: ahead = A[0 + t]
            barrier()                                for k in range(8):
            S[t] = A[k * 32 + t]                         barrier()
            barrier()                                    S[t] = ahead
            f(S)                                         barrier()
                                                         if k + 1 < 8: ahead = A[(k + 1) * 32 + t]
                                                         f(S)

The loops are those of which a schedule says so, by the pragma `FETCH_AHEAD`. What is fetched waits
in registers of the thread that stores it. Where the pragma's value is 2, steps store in two places
by turns, so that threads wait for each other once a step:

after:  ahead = A[0 + t]
        for k in range(8):
            S[k % 2 * 32 + t] = ahead
            barrier()
            if k + 1 < 8: ahead = A[(k + 1) * 32 + t]
            f(S[k % 2 * 32 : ])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Load, int_value
from treadle.expr.traversal import rewrite, walk
from treadle.limits import DEVICE_HELD
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Barrier, Buffer, For, If, Let, PrimFunc, Seq, Stmt, Store

FETCH_AHEAD = "fetch_ahead"


def fetch_ahead(func: PrimFunc) -> PrimFunc:
    """Return `func` with the loops changed whose schedule asks for it, where that can be."""
    return func.with_body(_visit(func.body, is_repeated=False))


def _visit(s: Stmt, *, is_repeated: bool) -> Stmt:
    """Change the loops inside of a statement; one that runs again must not find threads behind."""
    places = s.pragma(FETCH_AHEAD) if isinstance(s, For) else None
    if places is not None and isinstance(s, For):
        made = _ahead(s, places=1 if is_repeated else places)
        if made is not None:
            return made
    again = is_repeated or (isinstance(s, For) and s.kind != "thread")
    return lp.map_children(s, lambda inner: _visit(inner, is_repeated=again))


def _ahead(loop: For, places: object) -> Stmt | None:
    count = int_value(loop.extent)
    if count is None or count < 2 or loop.kind != "serial":
        return None
    buffers, parts = opened(loop.body)
    barriers = [k for k, p in enumerate(parts) if isinstance(p, Barrier)]
    if len(barriers) != 2 or barriers[0] != 0:
        return None
    fetches, rest = parts[1 : barriers[1]], parts[barriers[1] + 1 :]
    shared = {id(b) for b in buffers}
    held = [_Held.of(f, shared) for f in fetches]
    if not all(held) or sum(h.size for h in held if h) > DEVICE_HELD:
        return None
    found = [h for h in held if h is not None]

    def take(at: Expr) -> Stmt:
        return lp.seq(*(lp.substitute(h.take, {loop.var: at}) for h in found))

    following = If(loop.var + 1 < loop.extent, take(loop.var + 1))
    puts = [h.put for h in found]
    if places == 2:
        buffers, changed = _twice(loop.var, buffers, [*puts, *rest])
        body = lp.seq(*changed[: len(puts)], Barrier(), following, *changed[len(puts) :])
    else:
        body = lp.seq(Barrier(), *puts, Barrier(), following, *rest)
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    ahead = replace(loop, body=body, pragmas=loop.pragmas_but(FETCH_AHEAD))
    made = lp.seq(take(Const.of(0)), ahead)
    for h in reversed(found):
        made = Allocate(h.buffer, made)
    return made


def _twice(
    step: ex.Var, buffers: Sequence[Buffer], parts: Sequence[Stmt]
) -> tuple[list[Buffer], list[Stmt]]:
    """Return buffers of twice the size, and the statements with each step in its half of them."""
    wide = {
        id(b): Buffer(
            b.name, b.dtype, (Const.of(2 * (int_value(b.shape[0]) or 0)),), b.scope, None, b.align
        )
        for b in buffers
    }

    def half(source: object, index: Expr) -> Expr:
        assert isinstance(source, Buffer)
        start = step % 2 * source.shape[0]
        if isinstance(index, ex.Ramp):
            return ex.ramp(index.base + start, index.stride, index.lanes)
        return index + start

    def on_load(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or id(e.source) not in wide:
            return None
        return ex.load(wide[id(e.source)], (half(e.source, e.indices[0]),))

    def on_stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or id(s.buffer) not in wide:
            return None
        return Store(wide[id(s.buffer)], (half(s.buffer, s.indices[0]),), s.value)

    changed = [lp.map_stmt(p, lambda e: rewrite(e, on_load), on_stmt) for p in parts]
    return list(wide.values()), changed


def opened(body: Stmt) -> tuple[list[Buffer], list[Stmt]]:
    """Return the shared buffers that a body makes, and its statements in order."""
    buffers: list[Buffer] = []
    parts: list[Stmt] = []
    stack = [body]
    while stack:
        s = stack.pop()
        if isinstance(s, Seq):
            stack += reversed(s.stmts)
        elif isinstance(s, Allocate) and s.buffer.scope == "shared":
            buffers.append(s.buffer)
            stack.append(s.body)
        else:
            parts.append(s)
    return buffers, parts


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A fetch in two: `take` puts what it reads into `buffer`, `put` stores that."""

    buffer: Buffer
    size: int
    take: Stmt
    put: Stmt

    @staticmethod
    def of(fetch: Stmt, shared: set[int]) -> _Held | None:
        """Return a fetch in two; None where it is not copies from the device's memory."""
        stores = [s for s in lp.walk_stmts(fetch) if isinstance(s, Store)]
        targets = {id(s.buffer): s.buffer for s in stores if id(s.buffer) in shared}
        if len(targets) != 1 or sum(id(s.buffer) in targets for s in stores) != 1:
            return None
        (target,) = targets.values()
        splitter = _Splitter(target)
        if not splitter.can_split(fetch, ()):
            return None
        made = Buffer(f"{target.name}.ahead", target.dtype, (Const.of(splitter.size),), "local")
        return _Held(made, splitter.size, splitter.taken(fetch, made, ()),
                     splitter.stored(fetch, made, ()))  # fmt: skip


Loops = tuple[For, ...]


@dataclass(slots=True)
class _Splitter:
    """Takes a fetch into `target` apart: what is loaded, and what is stored."""

    target: Buffer
    size: int = 1
    own: set[int] = field(default_factory=set)
    """The buffers that the fetch makes for itself."""

    def can_split(self, s: Stmt, loops: Loops) -> bool:
        """True where all is copies; counts the elements of a thread."""
        if isinstance(s, For):
            is_plain = s.kind in ("serial", "unrolled") and int_value(s.extent) is not None
            return is_plain and self.can_split(s.body, (*loops, s))
        if isinstance(s, Allocate):
            self.own.add(id(s.buffer))
            return s.buffer.scope == "local" and self.can_split(s.body, loops)
        if isinstance(s, Store):
            if s.buffer is self.target:
                self.size = iterations(loops) * s.value.lanes
            return all(
                n.source.scope in ("global", "workspace") or id(n.source) in self.own
                for e in (*s.indices, s.value)
                for n in walk(e)
                if isinstance(n, Load) and isinstance(n.source, Buffer)
            )
        if isinstance(s, (Seq, If, Let)):
            return all(self.can_split(x, loops) for x in lp.sub_stmts(s))
        return False

    def taken(self, s: Stmt, held: Buffer, loops: Loops) -> Stmt:
        """Return the statement with stores into `held`."""
        if isinstance(s, Store):
            if s.buffer is not self.target:
                return s
            return Store(held, (slot(loops, s.value.lanes),), s.value)
        inner = (*loops, s) if isinstance(s, For) else loops
        return lp.map_children(s, lambda x: self.taken(x, held, inner))

    def stored(self, s: Stmt, held: Buffer, loops: Loops) -> Stmt:
        """Return the statement with what `held` has in place of what was read."""
        if isinstance(s, Store):
            if s.buffer is not self.target:
                return lp.seq()
            return replace(s, value=ex.load(held, (slot(loops, s.value.lanes),)))
        if isinstance(s, Allocate):
            return self.stored(s.body, held, loops)
        inner = (*loops, s) if isinstance(s, For) else loops
        made = lp.map_children(s, lambda x: self.stored(x, held, inner))
        return lp.seq() if isinstance(made, For) and lp.is_empty(made.body) else made


def iterations(loops: Sequence[For]) -> int:
    """Return how many iterations loops have that stand one inside of the other."""
    total = 1
    for loop in loops:
        total *= int_value(loop.extent) or 1
    return total


def slot(loops: Loops, lanes: int) -> Expr:
    """Return the place of an iteration of loops among all of them."""
    at: Expr = Const.of(0)
    for loop in loops:
        at = at * loop.extent + loop.var
    return at if lanes == 1 else ex.ramp(at * lanes, 1, lanes)
