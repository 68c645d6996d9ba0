# SPDX-License-Identifier: Apache-2.0
"""The loops of one stage and of all that is computed inside of them, from the outermost inwards.

Every loop is made where its extent is known: extents, and the boxes of producers, are expressions
over the loops that have been entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from treadle.expr.conditions import all_of
from treadle.expr.nodes import Expr, Var, int_value
from treadle.expr.traversal import divisors, uses
from treadle.loop.attach import Attached, stored_error
from treadle.loop.context import Context
from treadle.loop.domains import ZERO, Nest, is_split_evenly, is_started, relax, trimmed
from treadle.loop.memory import Kept, Memory
from treadle.loop.nodes import Allocate, Buffer, For, Stmt, seq
from treadle.loop.prefetch import matters, prefetches
from treadle.loop.producers import Producers
from treadle.loop.regions import Box
from treadle.loop.required import check_kind, intersection, limited
from treadle.loop.stores import Stores
from treadle.loop.tails import tail
from treadle.loop.tensorize import intrinsic_at, step_points, tensorize_error
from treadle.loop.threads import Threads, fills_threads
from treadle.te.intrinsics import Intrinsic
from treadle.te.loops import Split, root_values
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True)
class NestBuilder:
    """Makes the nest of one kernel launch: of a stage computed at root, and stages inside it."""

    context: Context
    memory: Memory
    attached: Attached
    producers: Producers
    stores: Stores
    threads: Threads = field(default_factory=Threads)
    """The hardware axes of this launch."""

    def nest(self, stage: Stage, box: Box) -> Stmt:
        """Return the loops of a stage over a box of its elements."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        simplify = self.context.simplify
        base = {a: s.start for a, s in box.items()} | {a: a.start for a in op.reduce_axis}
        roots = {a: s.extent for a, s in box.items()}
        roots |= {a: simplify(a.extent) for a in op.reduce_axis}
        for axis, trim in stage.trimmed.items():
            start = box[axis].start if axis in box else axis.start
            roots[axis] = simplify(trimmed(roots[axis], start, box[trim.along], trim))
        return self._enter(stage, 0, Nest(base=base, roots=roots))

    def _enter(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        """Return the loops of a stage from leaf `k` on; a reduction's start comes before them."""
        leaves = stage.leaf_iter_vars
        starts_reduction = k == len(leaves) or leaves[k].kind == "reduce"
        if nest.phase == "whole" and starts_reduction and self.stores.is_reduction(stage):
            init = self._enter(stage, k, replace(nest, phase="init"))
            return seq(init, self._enter(stage, k, replace(nest, phase="update")))
        if k == len(leaves):
            return self._innermost(stage, nest)
        leaf = leaves[k]
        intrinsic = None if nest.phase == "init" or nest.is_plain else intrinsic_at(stage, k)
        if intrinsic is not None:
            return self._step(stage, k, nest, intrinsic)
        if nest.phase == "init" and leaf.kind == "reduce":
            return self._enter(stage, k + 1, nest)
        note = stage.notes.get(leaf)
        whole = stage.extents(nest.roots, nest.overrides)[leaf]
        extent = limited(whole, note, self.context.known)
        if int_value(extent) == 1 and (note is None or note.thread is None):
            return self._settle(stage, k, nest.entered(leaf, ZERO))
        return self._loop(stage, k, nest, leaf, extent)

    def _loop(self, stage: Stage, k: int, nest: Nest, leaf: IterVar, extent: Expr) -> Stmt:
        note = stage.notes.get(leaf)
        thread = ""
        if note is not None:
            check_kind(stage, leaf, note, extent, self.context.known)
            if note.thread is not None:
                self.threads.check(stage, leaf, note.thread, extent)
                thread = note.thread.tag
        if thread in self.threads.open:
            var, _ = self.threads.open[thread]
            return self._settle(stage, k, nest.entered(leaf, var))
        var = Var(self.memory.unique(leaf.name))
        concurrent = note is not None and (note.kind == "parallel" or bool(thread))
        inside_loop = self.context.inside_loop(var, extent)
        opened = self.threads.opened(thread, var, extent)
        with inside_loop, opened, self.memory.in_parallel(concurrent):
            known = self.context.known
            inside = nest.entered(leaf, var)
            ahead = prefetches(stage, note, inside, var, self.memory, known)
            needed = matters(stage, note, inside, known)
            body = self.context.branch(needed, lambda: seq(*ahead, self._settle(stage, k, inside)))
        if note is None:
            return For(var, extent, "serial", body)
        return For(var, extent, note.kind, body, thread, tuple(note.pragmas))

    def _settle(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        """Settle the uneven splits whose outer value has just become known, then go inwards."""
        extents = stage.extents(nest.roots, nest.overrides)
        values, _ = root_values(stage, nest.bound, extents)
        for r in stage.relations:
            if not isinstance(r, Split) or r.outer not in values or id(r) in nest.guarded:
                continue
            whole = extents[r.parent]
            if r.inner in nest.overrides or is_split_evenly(r, whole, self.context.known):
                continue
            settled = replace(nest, guarded=nest.guarded | {id(r)})
            if r.inner in values:
                inside = self.context.simplify(values[r.parent] < whole)
                if not self.attached.is_shared_inside(stage, k):
                    return self.context.branch(inside, partial(self._settle, stage, k, settled))
                nest = replace(settled, conditions=(*nest.conditions, inside))
            elif not self._is_guarded_later(stage, nest, r, values[r.outer]):
                return self._tail(stage, k, settled, r, values[r.outer], whole)
        return self._attach(stage, k, nest)

    def _is_guarded_later(self, stage: Stage, nest: Nest, split: Split, outer: Expr) -> bool:
        """True where an uneven split becomes a condition once its inner value is known, too."""
        waits = self.threads.differ(outer) and self.attached.is_shared_inside(stage)
        waits = waits or fills_threads(stage, split.inner)
        return split.tail == "guard" or waits or is_started(stage, split.inner, nest.bound)

    def _tail(
        self, stage: Stage, k: int, nest: Nest, split: Split, outer: Expr, whole: Expr
    ) -> Stmt:
        def with_extent(extent: Expr) -> Stmt:
            overrides = {**nest.overrides, split.inner: extent}
            return self._settle(stage, k, replace(nest, overrides=overrides))

        note = stage.notes.get(split.inner)
        return tail(split, outer, whole, note, self.context, with_extent)

    def _attach(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        """Return what is inside leaf `k`: what is stored or computed there, then its loops."""
        if nest.phase == "init":
            return self._enter(stage, k + 1, nest)
        stored = self.attached.stored(stage, stage.leaf_iter_vars[k])
        if not stored:
            return self._compute(stage, k, nest)
        boxes = self.producers.boxes(stage, k, nest, self.threads)
        made: list[Buffer] = []
        for producer in stored:
            made += self.memory.attached_buffers(producer, boxes[id(producer)], self.context.known)
            self.memory.kept[id(producer)] = Kept(self.context.mark(), boxes[id(producer)])
        body = self._compute(stage, k, nest)
        for producer in stored:
            del self.memory.kept[id(producer)]
        return _allocated(made, body)

    def _compute(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        """Return the stages computed at leaf `k`, then the loops further in."""
        here = self.attached.at(stage, stage.leaf_iter_vars[k])
        if not here:
            return self._enter(stage, k + 1, nest)
        if self.attached.is_shared_inside(stage):
            return self._with_producers(stage, k, nest, here)
        unsure = {
            a: x.extent for a, x in relax(stage, nest, self.context.known).items() if x.may_be_empty
        }
        elements = [e for a, e in unsure.items() if a.kind == "data"]
        terms = [e for a, e in unsure.items() if a.kind != "data"]
        something = self.context.are_positive(elements)
        inside = partial(self._with_producers, stage, k, nest, here, terms)
        return self.context.branch(something, inside)

    def _with_producers(
        self,
        stage: Stage,
        k: int,
        nest: Nest,
        here: Sequence[Stage],
        terms: Sequence[Expr] = (),
    ) -> Stmt:
        """Return the stages computed inside leaf `k`, where there are `terms`, and what reads them.

        Without terms a sum is still what it is, but nothing has to be there that it reads: the
        quotients of an empty span need not be an empty one.
        """
        boxes = self.producers.boxes(stage, k, nest, self.threads)
        parts: list[Stmt] = []
        made: list[Buffer] = []
        for producer in here:
            box = boxes[id(producer)]
            first: list[Expr] = []
            if id(producer) in self.memory.kept:
                box = self._part(producer, box)
                first = self._first(producer, box)
            else:
                made += self.memory.attached_buffers(producer, box, self.context.known)
            past_end = [a.extent for a in self.producers.past_end[id(producer)]]
            # A read behind a test may divide by a size of 0: what is made for it must not.
            divided_by = [d for s in box.values() for d in divisors(s.start)]
            exists = self.context.are_positive([*past_end, *divided_by, *terms])
            exists = all_of([*first, exists])
            parts.append(self.context.branch(exists, partial(self.nest, producer, box)))
            self.memory.computed.add(id(producer))
        body = seq(*parts, self._enter(stage, k + 1, nest))
        self.memory.computed.difference_update(id(producer) for producer in here)
        return _allocated(made, body)

    def _part(self, producer: Stage, box: Box) -> Box:
        """Return the part of a box that is kept: all that anything reads."""
        kept, known = self.memory.kept[id(producer)].box, self.context.known
        return {a: intersection(span, kept[a], known) for a, span in box.items()}

    def _first(self, producer: Stage, box: Box) -> list[Expr]:
        """Return the conditions that no earlier iteration has computed a box that is kept.

        Of the loops since where it is stored, those that the box does not depend on are at their
        first iteration. Raises: ScheduleError where that one does not compute all that others read.
        """
        used = [s.start for s in box.values()] + [s.extent for s in box.values()]
        inside = self.context.loops_since(self.memory.kept[id(producer)].mark)
        same = [x for x in inside if not any(uses(e, x.var) for e in used)]
        for x in inside:
            if any(uses(x.extent, y.var) for y in same):
                problem = f"iterations of loops around {x.var.name} need other parts than the first"
                raise stored_error(producer, problem, "store it where it is computed")
        if axes := self.producers.past_end[id(producer)]:
            problem = f"it is computed past the end of its axis {axes[0].name}"
            raise stored_error(producer, problem, "store it where it is computed")
        return [x.var < 1 for x in same]

    def _step(self, stage: Stage, k: int, nest: Nest, intrinsic: Intrinsic) -> Stmt:
        """Return one step of an intrinsic in place of the loops from leaf `k` on."""
        loops = stage.leaf_iter_vars[k:]
        if any(self.attached.at(stage, a) for a in loops):
            problem = f"other stages are computed inside {loops[0].name}"
            raise tensorize_error(stage, intrinsic.name, problem, "compute them further out")
        extents = stage.extents(nest.roots, nest.overrides)
        known = {a: self.context.simplify(e) for a, e in extents.items()}
        points = step_points(stage, loops, intrinsic, known, nest.guarded)
        if points is None:
            return self._enter(stage, k, replace(nest, is_plain=True))
        places = [self._place(stage, replace(nest, bound={**nest.bound, **p})) for p in points]
        operands = self.stores.step_operands(stage, places, intrinsic)
        return self.context.branch(
            all_of(nest.conditions),
            lambda: self.stores.step(stage, places[0], intrinsic, operands),
        )

    def _innermost(self, stage: Stage, nest: Nest) -> Stmt:
        at = self._place(stage, nest)
        return self.context.branch(
            all_of(nest.conditions), lambda: self.stores.element(stage, at, nest.phase)
        )

    def _place(self, stage: Stage, nest: Nest) -> dict[IterVar, Expr]:
        """Return the values of the root axes in an iteration of the loops."""
        extents = stage.extents(nest.roots, nest.overrides)
        values, _ = root_values(stage, nest.bound, extents)
        return {
            a: self.context.simplify(nest.base[a] + values[a])
            for a in stage.root_iter_vars
            if a in values
        }


def _allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """Return a statement with the memory that it uses around it."""
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body
