# SPDX-License-Identifier: Apache-2.0
"""Let a thread read the operands of its next products while it computes those of this step.

before: for k in range(8):
            put(k); barrier()
            if k + 1 < 8: take(k + 1)
            for i in unrolled(4):
                for m, n: C[m, n] += S[k % 2, i, m] * T[k % 2, i, n]
after:  put(0); barrier(); L, R = S, T[0, 0]
        for k in range(8):
            take(min(k + 1, 7))
            for i in unrolled(3):
                L, R of i + 1 = S, T[k % 2, i + 1]
                for m, n: C[m, n] += L[m] * R[n] of i
            put(k + 1); barrier()
            L, R of 0 = S, T[(k + 1) % 2, 0]
            for m, n: C[m, n] += L[m] * R[n] of 3

`S` and `T` are shared memory with two places, one of which `put` stores; `L` and `R` are registers
for two steps, of which one half is read into while products are made of the other. The last
products of a tile are made behind the barrier of the next one, so that no warp waits for shared
memory. Behind the last tile that one is fetched and stored once more, which nothing reads: a body
without branches is one block of straight code, in which a compiler leaves the fetch ahead of
products. The loops are those of which a schedule says so, by the pragma `FRAGMENTS`, where
`fetch_ahead` made two places and the steps are unrolled, an even number. Every sum adds the same
terms in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Load, Var, int_value
from treadle.expr.traversal import reads_memory, rewrite, substitute, uses, walk
from treadle.limits import DEVICE_LANES
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Barrier, Buffer, For, If, PrimFunc, Stmt, Store
from treadle.lower.fetch_ahead import Loops, iterations, opened, slot

FRAGMENTS = "fragments"


def read_fragments(func: PrimFunc) -> PrimFunc:
    """Return `func` with the loops changed whose schedule asks for it, where that can be."""
    return func.with_body(_visit(func.body))


def _visit(s: Stmt) -> Stmt:
    if isinstance(s, For) and s.pragma(FRAGMENTS) is not None:
        made = _ahead(s)
        if made is not None:
            return made
    return lp.map_children(s, _visit)


def _ahead(loop: For) -> Stmt | None:
    """Return a loop whose threads read ahead; None where its body is no fetch and products."""
    count = int_value(loop.extent)
    shared, parts = opened(loop.body)
    barriers = [k for k, p in enumerate(parts) if isinstance(p, Barrier)]
    if count is None or count < 2 or len(barriers) != 1 or loop.kind != "serial":
        return None
    puts, (*takes, last) = parts[: barriers[0]], parts[barriers[0] + 1 :] or [lp.seq()]
    products = _Products.of(last, loop.var)
    fetch = _Fetch.of(loop, puts, takes, shared)
    if products is None or fetch is None or fetch.touches(products.store.buffer):
        return None
    following, start = loop.var + 1, Const.of(0)
    body = lp.seq(
        fetch.taken(),
        products.ahead(),
        fetch.put(following),
        Barrier(),
        products.reads(following, start),
        products.computed(Const.of(products.count - 1)),
    )
    ahead = replace(loop, body=body, pragmas=loop.pragmas_but(FRAGMENTS))
    made = lp.seq(fetch.put(start), Barrier(), products.reads(start, start), ahead)
    for buffer in reversed([*shared, *(f.buffer for f in products.fragments)]):
        made = Allocate(buffer, made)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class _Fetch:
    """What `fetch_ahead` makes: `puts` store a tile, `take` reads the one after it."""

    loop: For
    puts: Sequence[Stmt]
    take: Stmt

    @staticmethod
    def of(
        loop: For, puts: Sequence[Stmt], takes: Sequence[Stmt], shared: Sequence[Buffer]
    ) -> _Fetch | None:
        """Return the fetch of a loop; None where it is no such one."""
        take = takes[0] if len(takes) == 1 else None
        if not isinstance(take, If) or take.orelse is not None:
            return None
        stored = [s for p in puts for s in lp.walk_stmts(p) if isinstance(s, Store)]
        read = [s for s in lp.walk_stmts(take) if isinstance(s, Store)]
        has_places = all(s.buffer in shared and _has_places(s.indices, loop.var) for s in stored)
        is_ahead = take.cond is (loop.var + 1 < loop.extent)
        is_apart = all(s.buffer.scope == "local" for s in read)
        return _Fetch(loop, puts, take.then) if has_places and is_ahead and is_apart else None

    def touches(self, buffer: Buffer) -> bool:
        """True where it stores or loads elements of a buffer."""
        inside = [s for part in (*self.puts, self.take) for s in lp.walk_stmts(part)]
        is_stored = any(isinstance(s, Store) and s.buffer is buffer for s in inside)
        return is_stored or any(uses(e, buffer) for s in inside for e in lp.stmt_exprs(s))

    def taken(self) -> Stmt:
        """Return the read of the tile after an iteration, without a branch: of the last twice."""
        last = ex.minimum(self.loop.var, self.loop.extent - 2)
        at = Var(f"{self.loop.var.name}.ahead")
        return lp.Let(at, last, lp.substitute(self.take, {self.loop.var: at}))

    def put(self, at: Expr) -> Stmt:
        """Return the stores of a tile."""
        return lp.substitute(lp.seq(*self.puts), {self.loop.var: at})


@dataclass(frozen=True, slots=True, eq=False)
class _Fragment:
    """What a thread reads from shared memory in a step: `load` in every iteration of `loops`.

    `buffer` holds that of two steps.
    """

    load: Load
    loops: Loops
    buffer: Buffer

    @staticmethod
    def of(load: Load, nest: Sequence[For]) -> _Fragment:
        """Return the fragment of a load inside of a nest."""
        (index,) = load.indices
        loops = tuple(s for s in nest if uses(index, s.var))
        size = 2 * iterations(loops)
        made = Buffer(f"{load.source.name}.fragment", load.dtype, (Const.of(size),), "local")
        return _Fragment(load, loops, made)

    def at(self, step: Expr) -> Expr:
        """Return where the element of an iteration of a step lies."""
        return step % 2 * iterations(self.loops) + slot(self.loops, 1)

    def read(self, products: _Products, outer: Expr, step: Expr) -> Stmt:
        """Return the reads of a step, as vectors where the elements divide into such."""
        index = substitute(self.load.indices[0], {products.outer: outer, products.loop.var: step})
        made: Stmt = Store(self.buffer, (self.at(step),), ex.load(self.load.source, (index,)))
        for k, loop in enumerate(reversed(self.loops)):
            count = int_value(loop.extent) or 0
            if k or count % DEVICE_LANES:
                made = replace(loop, body=made, pragmas=())
                continue
            vector, lane = Var(loop.var.name), Var("lane")
            made = lp.substitute(made, {loop.var: vector * DEVICE_LANES + lane})
            made = For(lane, Const.of(DEVICE_LANES), "vectorized", made)
            made = For(vector, Const.of(count // DEVICE_LANES), "unrolled", made)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class _Products:
    """Unrolled loops over steps and elements of a thread around one sum of shared factors.

    `outer` is the variable of the loop around, by which the factors have two places.
    """

    outer: Var
    loop: For
    store: Store
    fragments: tuple[_Fragment, ...]

    @staticmethod
    def of(s: Stmt, outer: Var) -> _Products | None:
        """Return what a statement is; None where it is no such loop, or has an odd count."""
        nest: list[For] = []
        body = s
        while isinstance(body, For) and body.kind == "unrolled" and int_value(body.extent):
            nest.append(body)
            body = body.body
        if len(nest) < 2 or not isinstance(body, Store) or (int_value(nest[0].extent) or 1) % 2:
            return None
        if body.buffer.scope != "local":
            return None
        nodes = walk(body.value)
        loads = [n for n in nodes if isinstance(n, Load)]
        shared = [n for n in loads if _is_shared(n)]
        is_plain = not any(isinstance(n, ex.Select) for n in nodes) and all(
            n.source is body.buffer and n.indices == body.indices for n in loads if n not in shared
        )
        if not shared or not is_plain or not all(_has_places(n.indices, outer) for n in shared):
            return None
        found = tuple(_Fragment.of(n, nest[1:]) for n in shared)
        return _Products(outer, nest[0], body, found)

    @property
    def count(self) -> int:
        """How many steps there are."""
        return int_value(self.loop.extent) or 0

    def ahead(self) -> Stmt:
        """Return all steps but the last, each of which reads what the next one needs."""
        step = self.loop.var
        body = lp.seq(self.reads(self.outer, step + 1), self.computed(step))
        return replace(self.loop, extent=Const.of(self.count - 1), body=body)

    def reads(self, outer: Expr, step: Expr) -> Stmt:
        """Return the reads of a step from the place of an iteration of the loop around."""
        return lp.seq(*(f.read(self, outer, step) for f in self.fragments))

    def computed(self, step: Expr) -> Stmt:
        """Return the sums of a step, of what was read for it."""
        held: dict[Expr, Expr] = {f.load: ex.load(f.buffer, (f.at(step),)) for f in self.fragments}

        def on_stmt(s: Stmt) -> Stmt | None:
            if not isinstance(s, Store):
                return None
            return replace(s, value=rewrite(s.value, held.get))

        return lp.map_stmt(self.loop.body, on_stmt=on_stmt)


def _is_shared(load: Load) -> bool:
    return isinstance(load.source, Buffer) and load.source.scope == "shared"


def _has_places(indices: Sequence[Expr], outer: Var) -> bool:
    """True where the loop around matters by the place alone, which exists behind its end too."""
    placed = [substitute(index, {outer % 2: Const.of(0)}) for index in indices]
    return not any(reads_memory(index) or uses(index, outer) for index in placed)
