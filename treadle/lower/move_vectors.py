# SPDX-License-Identifier: Apache-2.0
"""Let a thread of a GPU move neighbouring elements of a vectorized loop at once.

before: for v in vectorized(4): C[t * 4 + v] = f(A[t * 4 + v])
after:  A.lanes[0:4] = A[t * 4 : t * 4 + 4]
        for v in unrolled(4): C.lanes[v] = f(A.lanes[v])
        C[t * 4 : t * 4 + 4] = C.lanes[0:4]

Arithmetic has no vectors there. Only accesses that begin at a multiple of their own size count, and
none behind a test of single elements. All other vectorized loops become unrolled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from treadle.dtype import itemsize
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.conditions import all_of, conjuncts
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Load, Select, Var, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import rewrite, substitute, uses, walk
from treadle.limits import DEVICE_VECTORS
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store


def move_vectors(func: PrimFunc) -> PrimFunc:
    """Return `func` without vectorized loops: vectors are moved, and computed lane by lane."""
    ranges: dict[Var, Interval] = dict.fromkeys(func.sizes, Interval(0, None))
    return func.with_body(_visit(func.body, ranges))


def _visit(s: Stmt, ranges: dict[Var, Interval]) -> Stmt:
    if not isinstance(s, For):
        return lp.map_children(s, lambda inner: _visit(inner, ranges))
    extent = int_value(s.extent)
    last = None if extent is None else max(0, extent - 1)
    inside = {**ranges, s.var: Interval(0, last)}
    if s.kind != "vectorized":
        return lp.map_children(s, lambda inner: _visit(inner, inside))
    made = None if extent is None else _Lanes(s, extent, inside).moved()
    return replace(s, kind="unrolled") if made is None else made


@dataclass(slots=True)
class _Lanes:
    """A vectorized loop of `count` lanes around one store, perhaps under conditions."""

    loop: For
    count: int
    ranges: dict[Var, Interval]
    taken: dict[tuple[int, Expr], Buffer] = field(default_factory=dict)
    loads: list[Stmt] = field(default_factory=list)

    @property
    def lane(self) -> Var:
        return self.loop.var

    def moved(self) -> Stmt | None:
        """Return the statements in place of the loop; None where nothing is moved at once."""
        conditions, store = self._opened()
        if store is None or conditions is None:
            return None
        size = itemsize(store.buffer.dtype) * self.count
        start = self._start(store.indices[0]) if size in DEVICE_VECTORS else None
        value = rewrite(store.value, self._load_rule(store.value))
        if start is None and not self.taken:
            return None
        lanes = ex.ramp(0, 1, self.count)
        if start is None:
            each = For(self.lane, self.loop.extent, "unrolled", replace(store, value=value))
            return self._under(conditions, lp.seq(*self.loads, each), self.taken.values())
        whole = ex.ramp(start, 1, self.count)
        if isinstance(value, Load) and value.indices == (self.lane,) and len(self.loads) == 1:
            (load,) = self.loads
            assert isinstance(load, Store)
            return self._under(conditions, Store(store.buffer, (whole,), load.value), ())
        made = Buffer(f"{store.buffer.name}.lanes", store.buffer.dtype, (Const.of(self.count),),
                      "local")  # fmt: skip
        each = For(self.lane, self.loop.extent, "unrolled", Store(made, (self.lane,), value))
        put = Store(store.buffer, (whole,), ex.load(made, (lanes,)))
        body = lp.seq(*self.loads, each, put)
        return self._under(conditions, body, (*self.taken.values(), made))

    def _under(self, conditions: list[Expr], body: Stmt, buffers: Iterable[Buffer]) -> Stmt:
        for buffer in buffers:
            body = Allocate(buffer, body)
        return If(all_of(conditions), body) if conditions else body

    def _opened(self) -> tuple[list[Expr] | None, Store | None]:
        """Return the conditions around the store, which all lanes meet alike, and the store."""
        conditions: list[Expr] = []
        body = self.loop.body
        while isinstance(body, If) and body.orelse is None:
            for test in conjuncts(body.cond):
                alike = self._alike(test)
                if alike is None:
                    return None, None
                conditions.append(alike)
            body = body.then
        return conditions, body if isinstance(body, Store) else None

    def _alike(self, test: Expr) -> Expr | None:
        """Return what a condition is in every lane, None where lanes may differ."""
        if not uses(test, self.lane):
            return None if any(isinstance(n, Load) for n in walk(test)) else test
        if not isinstance(test, ex.Binary) or test.op not in ("lt", "ge"):
            return None
        factor, rest = decompose(test.a - test.b).without(self.lane)
        is_even = all(c % self.count == 0 for c in (*rest.terms.values(), rest.const))
        if factor != 1 or not is_even or any(uses(t, self.lane) for t in rest.terms):
            return None
        return simplify(substitute(test, {self.lane: Const.of(0)}), self.ranges)

    def _start(self, index: Expr) -> Expr | None:
        """Return where lanes begin that lie side by side, at a multiple of their number."""
        if not uses(index, self.lane):
            return None
        factor, rest = decompose(simplify(index, self.ranges)).without(self.lane)
        is_even = all(c % self.count == 0 for c in (*rest.terms.values(), rest.const))
        if factor != 1 or not is_even or any(uses(t, self.lane) for t in rest.terms):
            return None
        return rest.to_expr()

    def _load_rule(self, value: Expr) -> Callable[[Expr], Expr | None]:
        """Return a rule that reads lanes that were loaded at once."""
        guarded = {n for s in walk(value) if isinstance(s, Select) and s.lazy
                   for b in (s.then, s.other) for n in walk(b)}  # fmt: skip

        def rule(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or not isinstance(e.source, Buffer) or e in guarded:
                return None
            buffer = e.source
            if itemsize(buffer.dtype) * self.count not in DEVICE_VECTORS:
                return None
            start = self._start(e.indices[0])
            if start is None:
                return None
            made = self.taken.get((id(buffer), start))
            if made is None:
                made = Buffer(f"{buffer.name}.lanes", buffer.dtype, (Const.of(self.count),),
                              "local")  # fmt: skip
                self.taken[id(buffer), start] = made
                loaded = ex.load(buffer, (ex.ramp(start, 1, self.count),))
                self.loads.append(Store(made, (ex.ramp(0, 1, self.count),), loaded))
            return ex.load(made, (self.lane,))

        return rule
