# SPDX-License-Identifier: Apache-2.0
"""An interpreter of loop nests over GPU threads, one at a time until all wait at a barrier.

The threads of a block run in a shuffled order, each as far as the next barrier, so that a barrier
that is missing shows as memory that was not written yet, or was overwritten too early. A barrier
that only some threads come to is an error. Built on the strict interpreter of `tests.loop_eval`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tests import loop_eval
from tests.loop_eval import Frame
from treadle import dtype as dt
from treadle.expr.nodes import Var, int_value
from treadle.loop import nodes as lp
from treadle.loop.nodes import PrimFunc, Stmt


class Diverged(AssertionError):
    """Some threads of a block wait at a barrier that others do not come to."""


def run(
    func: PrimFunc,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[Var, int] | None = None,
    seed: int = 0,
) -> None:
    """Run a function on arrays, one per parameter; outputs are written in place.

    The statements outside of all loops over hardware indices are launches, one after the other.
    """
    grid = _Grid(np.random.default_rng(seed))
    frame: Frame = dict(sizes or {})
    for param, array in zip(func.params, arrays, strict=True):
        grid.machine.memory[id(param)] = array
    grid.launches(func.body, frame)


class _Grid:
    def __init__(self, chance: np.random.Generator) -> None:
        self.chance = chance
        self.machine = loop_eval._Machine(chance)
        self.memory = self.machine.memory
        self.shared: set[int] = set()
        self.stores: dict[int, loop_eval.Run] = {}
        self.plain: dict[int, bool] = {}

    def launches(self, s: Stmt, frame: Frame) -> None:
        """Run what the host does: allocations, and one kernel launch after the other."""
        if isinstance(s, lp.Seq):
            for part in s.stmts:
                self.launches(part, frame)
        elif isinstance(s, lp.Allocate):
            self.allocate(s, frame)
            self.launches(s.body, frame)
        else:
            self.launch(s, frame)

    def launch(self, s: Stmt, frame: Frame) -> None:
        """Run every block of a kernel, in a shuffled order."""
        extents: dict[str, int] = {}
        for loop in (n for n in lp.walk_stmts(s) if isinstance(n, lp.For) and n.kind == "thread"):
            extent = int_value(loop.extent)
            assert extent is not None
            assert extents.setdefault(loop.thread, extent) == extent
        blocks = {t: e for t, e in extents.items() if t.startswith("blockIdx")}
        threads = {t: e for t, e in extents.items() if t not in blocks}
        for block in self.shuffled(blocks):
            self.shared.clear()
            self.block(s, frame, [{**block, **thread} for thread in self.shuffled(threads)])

    def shuffled(self, extents: Mapping[str, int]) -> list[dict[str, int]]:
        points = list(itertools.product(*map(range, extents.values())))
        order = self.chance.permutation(len(points))
        return [dict(zip(extents, points[i], strict=True)) for i in order]

    def block(self, s: Stmt, frame: Frame, places: list[dict[str, int]]) -> None:
        """Run the threads of a block from barrier to barrier."""
        locals_: list[dict[int, np.ndarray]] = [{} for _ in places]
        running = [
            self.thread(s, dict(frame), place, mine)
            for place, mine in zip(places, locals_, strict=True)
        ]
        while running:
            met = {id(b) if (b := next(thread, None)) is not None else None for thread in running}
            if met == {None}:
                return
            if len(met) > 1:
                raise Diverged("a barrier that not all threads of a block come to")

    def thread(
        self, s: Stmt, frame: Frame, place: Mapping[str, int], mine: dict[int, np.ndarray]
    ) -> Iterator[lp.Barrier]:
        """Yield the barriers that one thread comes to; `mine` is its local memory."""
        if self.is_plain(s):
            self.memory.update(mine)
            if id(s) not in self.stores:
                self.stores[id(s)] = self.machine.stmt(s)
            self.stores[id(s)](frame)
        elif isinstance(s, lp.Barrier):
            yield s
        elif isinstance(s, lp.Seq):
            for part in s.stmts:
                yield from self.thread(part, frame, place, mine)
        elif isinstance(s, lp.For):
            count = self.value(s.extent, frame, mine)
            for i in [place[s.thread]] if s.kind == "thread" else range(count):
                yield from self.thread(s.body, {**frame, s.var: i}, place, mine)
        elif isinstance(s, lp.If):
            taken = s.then if self.value(s.cond, frame, mine) else s.orelse
            if taken is not None:
                yield from self.thread(taken, frame, place, mine)
        elif isinstance(s, lp.Let):
            self.memory.update(mine)
            frame = {**frame, s.var: self.machine.expr(s.value)(frame, 0)}  # type: ignore[dict-item]
            yield from self.thread(s.body, frame, place, mine)
        elif isinstance(s, lp.Allocate):
            self.allocate(s, frame, mine)
            yield from self.thread(s.body, frame, place, mine)
        else:
            raise AssertionError(f"a statement of another kind, {type(s).__name__}")

    def is_plain(self, s: Stmt) -> bool:
        """True for a statement that one thread runs by itself, from its start to its end."""
        if id(s) not in self.plain:
            self.plain[id(s)] = not any(
                isinstance(x, (lp.Barrier, lp.Allocate)) or (isinstance(x, lp.For) and x.thread)
                for x in lp.walk_stmts(s)
            )
        return self.plain[id(s)]

    def value(self, e: object, frame: Frame, mine: Mapping[int, np.ndarray]) -> int:
        self.memory.update(mine)
        return int(self.machine.expr(e)(frame, 0))  # type: ignore[arg-type]

    def allocate(
        self, s: lp.Allocate, frame: Frame, mine: dict[int, np.ndarray] | None = None
    ) -> None:
        """Let a buffer exist: one per thread, or one per block, which the first thread makes."""
        key = id(s.buffer)
        is_local = s.buffer.scope == "local" and mine is not None
        if not is_local and mine is not None and key in self.shared:
            return
        dtype = dt.to_numpy(s.buffer.dtype)
        shape = [self.value(d, frame, mine or {}) for d in s.buffer.shape]
        fresh = np.full(shape, loop_eval.POISON[dtype.kind], dtype)
        if is_local and mine is not None:
            mine[key] = fresh
        else:
            self.memory[key] = fresh
            self.shared.add(key)
