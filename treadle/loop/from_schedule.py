# SPDX-License-Identifier: Apache-2.0
"""From a schedule to a loop nest: bound inference and loop construction in one walk inwards.

Every loop is made where its extent is known. A split that does not divide its axis becomes an `If`
as soon as the outer loop's value is known: a full tile in one branch, the smaller remainder in the
other, both with exact extents (`lower.partition_loops` then turns the `If` into two loops). What a
stage computed at an axis must provide is the union of what the stages inside that axis read; its
buffer holds just that region.

The regions follow the classic interval propagation of Halide (Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from treadle.errors import ScheduleError
from treadle.expr import nodes as ex
from treadle.expr.bounds import assume, ranges_when
from treadle.expr.conditions import all_of
from treadle.expr.facts import Facts, Holding, Iterating
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import substitute
from treadle.loop import nodes as lp
from treadle.loop.arguments import size_params
from treadle.loop.attach import Attached, check_attached
from treadle.loop.bodies import inline_bodies, read_by
from treadle.loop.domains import (
    ZERO,
    LoopsLeft,
    Nest,
    Phase,
    index_range,
    is_split_evenly,
    is_started,
    loops_left,
    relax,
)
from treadle.loop.elements import combined, extern_statement, store_all, to_buffers, within_ends
from treadle.loop.memory import Memory, scope_or
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store, seq
from treadle.loop.prefetch import matters, prefetches
from treadle.loop.regions import Box, Span, union
from treadle.loop.required import (
    WholeDomain,
    check_kind,
    check_rounded,
    clamped,
    greatest,
    inside_border,
    least,
    whole_tile,
)
from treadle.loop.tensorize import (
    Elements,
    check_tensorized,
    intrinsic_at,
    matched_elements,
    step_points,
    tensorize_error,
)
from treadle.loop.threads import Threads, fills_threads
from treadle.te.intrinsics import Intrinsic
from treadle.te.loops import Split, root_values
from treadle.te.operations import (
    ComputeOp,
    ExternOp,
    IterVar,
    PlaceholderOp,
    Reduce,
    Tensor,
)
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage

_MOST_CASES = 16


def schedule_to_func(
    schedule: Schedule,
    args: Sequence[Tensor | Var],
    name: str = "main",
    *,
    line_bytes: int = 64,
) -> PrimFunc:
    """Return the loop nest of a schedule as a function of `args`.

    Tensors among `args` become buffer parameters in their order (outputs are told by the schedule),
    variables size parameters; sizes that only occur in shapes are added. One prefetch brings
    `line_bytes`: the machine's where it is known, else what most have.

    Raises:
        ScheduleError: a stage is computed where its users cannot see it, or an input is missing.
    """
    return cases_to_func([Case(schedule, args)], name, line_bytes=line_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A schedule for sizes for which `when` holds (None: all of them)."""

    schedule: Schedule
    args: Sequence[Tensor | Var]
    when: Expr | None = None


def cases_to_func(cases: Sequence[Case], name: str = "main", *, line_bytes: int = 64) -> PrimFunc:
    """Return one function of several schedules of the same computation, for different sizes.

    The first case that holds runs; the last holds always. The tensors of the cases are the same in
    number, order and shape.

    before: n <= 16: for i in range(n): f(i);  else: parallel for i in range(n): f(i)
    after:  if n <= 16: for i in range(n): f(i), else: parallel for i in range(n): f(i)
    """
    first, *others = (_Builder(c, name, line_bytes) for c in cases)
    params = first.params()
    for builder in others:
        builder.memory.names = first.memory.names
        builder.share(params)
    made = [b.statement() for b in (first, *others)]
    body = made[-1]
    for case, then in reversed(list(zip(cases[:-1], made[:-1], strict=True))):
        assert case.when is not None
        body = If(case.when, then, body)
    return PrimFunc(name, tuple(params), tuple(first.sizes), body, first.written())


class _Builder:
    def __init__(self, case: Case, name: str, line_bytes: int) -> None:
        schedule, args = case.schedule, case.args
        self.schedule = schedule
        self.name = name
        self.tensors = [a for a in args if isinstance(a, Tensor)]
        self.sizes = size_params(args)
        self.bodies = inline_bodies(schedule)
        self.memory = Memory(schedule, self.bodies, line_bytes)
        self.past_end: dict[int, set[IterVar]] = {}
        """The axes along which a stage is being computed past the end of its tensor."""
        self.known = Simplifier(ranges_when(case.when, self.sizes))
        """What is known of the variables at the statement being built."""
        self.threads = Threads()
        """The hardware axes of the kernel launch that is being built."""
        self.around: list[Iterating | Holding] = []
        """The loops and conditions it stands in."""
        self.attached = Attached(schedule)

    def statement(self) -> Stmt:
        """Return all stages with the buffers they share."""
        check_attached(self.schedule, self.bodies)
        live = [s for s in self.schedule.stages if id(s) in self.bodies]
        for stage in live:
            check_tensorized(stage)
        roots = [s for s in live if s.attach.kind == "root"]
        temporaries: list[Buffer] = []
        for stage in roots:
            temporaries += self.memory.root_buffers(stage)
        body = seq(*(self._whole_stage(s) for s in roots))
        for buffer in reversed(temporaries):
            body = Allocate(buffer, body)
        return body

    def written(self) -> tuple[int, ...]:
        """Return which of the arguments the schedule computes, intermediate results too."""
        return tuple(
            k
            for k, t in enumerate(self.tensors)
            if t in self.schedule and not isinstance(self.schedule[t].op, PlaceholderOp)
        )

    def params(self) -> list[Buffer]:
        """Return a buffer for every tensor among the arguments."""
        known = Simplifier(ranges_when(None, self.sizes))
        shapes = [tuple(known.run(d) for d in t.shape) for t in self.tensors]
        made = [
            Buffer(self.memory.unique(tensor.name), tensor.dtype, shape)
            for tensor, shape in zip(self.tensors, shapes, strict=True)
        ]
        self.share(made)
        return made

    def share(self, params: Sequence[Buffer]) -> None:
        """Take buffers for the tensors among the arguments."""
        for tensor, buffer in zip(self.tensors, params, strict=True):
            if tensor in self.schedule or not isinstance(tensor.op, PlaceholderOp):
                self.memory.buffers[id(self.schedule[tensor]), tensor.value_index] = buffer
        for stage in self.schedule.stages:
            missing = isinstance(stage.op, PlaceholderOp) or stage.is_output
            if missing and (id(stage), 0) not in self.memory.buffers and self._is_used(stage):
                raise ScheduleError(
                    f"tensor {stage.name} is not among the arguments of {self.name}",
                    hint="pass every input and output tensor to lower or build",
                )

    def _is_used(self, stage: Stage) -> bool:
        if stage.is_output:
            return True
        live = (s for s in self.schedule.stages if id(s) in self.bodies)
        return any(self.schedule[t] is stage for s in live for t in read_by(s, self.bodies))

    def _whole_stage(self, stage: Stage) -> Stmt:
        op = stage.op
        self.threads = Threads()
        if isinstance(op, ExternOp):
            return extern_statement(stage, op, self.memory)
        if not isinstance(op, ComputeOp):
            return seq()
        box = {a: Span(ZERO, self._simplify(a.extent)) for a in op.axis}
        if not stage.peeled:
            return self._stage(stage, box)
        inner = dict(box)
        borders: list[Stmt] = []
        for axis, (begin, end) in stage.peeled.items():
            before = least(begin, axis.extent, self.known)
            after = greatest(end, before, self.known)
            for low, high in ((ZERO, before), (after, axis.extent)):
                width = self._simplify(high - low)
                if int_value(width) != 0:
                    strip = {**inner, axis: Span(self._simplify(low), width)}
                    borders.append(self._plain_nest(stage, strip))
            inner[axis] = Span(begin, self._simplify(end - begin))
        self.bodies[id(stage)] = tuple(
            inside_border(b, inner, self.known) for b in self.bodies[id(stage)]
        )
        return seq(*borders, self._stage(stage, inner))

    def _stage(self, stage: Stage, box: Box) -> Stmt:
        op = stage.op
        assert isinstance(op, ComputeOp)
        nest = Nest(
            base={a: s.start for a, s in box.items()} | {a: a.start for a in op.reduce_axis},
            roots={a: s.extent for a, s in box.items()}
            | {a: self._simplify(a.extent) for a in op.reduce_axis},
        )
        return self._open(stage, 0, nest)

    def _plain_nest(self, stage: Stage, box: Box) -> Stmt:
        """Loops over a box in the declared order, the schedule's loops left aside."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        values: dict[IterVar, Expr] = {}
        opened: list[tuple[Var, Expr]] = []
        outside = self.known
        for axis, span in box.items():
            if int_value(span.extent) == 1:
                values[axis] = span.start
                continue
            var = Var(self.memory.unique(axis.name))
            ranges = {**self.known.ranges, var: index_range(span.extent, self.known)}
            self.known = Simplifier(ranges)
            opened.append((var, span.extent))
            values[axis] = self._simplify(span.start + var)
        if isinstance(self.bodies[id(stage)][0], Reduce):
            raise ScheduleError("a reduction cannot be peeled", at=f"stage {stage.name}")
        body = self._store(stage, values, "whole")
        for position, (var, extent) in enumerate(reversed(opened)):
            lanes = int_value(extent)
            wide = position == 0 and lanes is not None and lanes <= 64
            body = For(var, extent, "vectorized" if wide else "serial", body)
        self.known = outside
        return body

    def _open(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        leaves = stage.leaf_iter_vars
        reducing = isinstance(self.bodies[id(stage)][0], Reduce)
        starts_reduction = k == len(leaves) or leaves[k].kind == "reduce"
        if reducing and nest.phase == "whole" and starts_reduction:
            init = self._open(stage, k, replace(nest, phase="init"))
            return seq(init, self._open(stage, k, replace(nest, phase="update")))
        if k == len(leaves):
            return self._innermost(stage, nest)
        leaf = leaves[k]
        intrinsic = None if nest.phase == "init" or nest.is_plain else intrinsic_at(stage, k)
        if intrinsic is not None:
            return self._step(stage, k, nest, intrinsic)
        if nest.phase == "init" and leaf.kind == "reduce":
            return self._open(stage, k + 1, nest)
        extent = self._simplify(stage.extents(nest.roots, nest.overrides)[leaf])
        note = stage.notes.get(leaf)
        if int_value(extent) == 1 and (note is None or note.thread is None):
            return self._decide(stage, k, replace(nest, bound={**nest.bound, leaf: ZERO}))
        return self._loop(stage, k, nest, leaf, extent)

    def _loop(self, stage: Stage, k: int, nest: Nest, leaf: IterVar, extent: Expr) -> Stmt:
        note = stage.notes.get(leaf)
        if note is not None:
            check_kind(stage, leaf, note, extent, self.known)
            if note.thread is not None:
                self.threads.check(stage, leaf, note.thread, extent)
        thread = note.thread.tag if note is not None and note.thread is not None else ""
        if thread in self.threads.open:
            var, _ = self.threads.open[thread]
            return self._decide(stage, k, replace(nest, bound={**nest.bound, leaf: var}))
        var = Var(self.memory.unique(leaf.name))
        with self._range(var, extent), self.threads.opened(thread, var, extent):
            inside = replace(nest, bound={**nest.bound, leaf: var})
            ahead = prefetches(stage, note, inside, var, self.memory, self.known)
            needed = matters(stage, note, inside, self.known)
            body = self._branch(needed, lambda: seq(*ahead, self._decide(stage, k, inside)))
        if note is None:
            return For(var, extent, "serial", body)
        return For(var, extent, note.kind, body, thread, tuple(note.pragmas))

    @contextmanager
    def _range(self, var: Var, extent: Expr) -> Iterator[None]:
        outside = self.known
        self.known = Simplifier({**outside.ranges, var: index_range(extent, outside)})
        self.around.append(Iterating(var, extent))
        try:
            yield
        finally:
            self.known = outside
            self.around.pop()

    @contextmanager
    def _where(self, cond: Expr, *, holds: bool = True) -> Iterator[None]:
        """Let what a condition says be known."""
        outside = self.known
        self.known = Simplifier(assume(outside.ranges, cond, holds=holds))
        self.around.append(Holding(cond, holds))
        try:
            yield
        finally:
            self.known = outside
            self.around.pop()

    def _decide(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        """Settle the uneven splits whose outer value has just become known, then go inwards."""
        extents = stage.extents(nest.roots, nest.overrides)
        values, _ = root_values(stage, nest.bound, extents)
        for r in stage.relations:
            if not isinstance(r, Split) or r.outer not in values or id(r) in nest.guarded:
                continue
            whole = extents[r.parent]
            if r.inner in nest.overrides or is_split_evenly(r, whole, self.known):
                continue
            settled = replace(nest, guarded=nest.guarded | {id(r)})
            if r.inner in values:
                inside = values[r.parent] < whole
                if not self.attached.is_shared_inside(stage, k):
                    return self._guarded(stage, k, settled, inside)
                nest = replace(settled, conditions=(*nest.conditions, self._simplify(inside)))
                continue
            waits = self.threads.differ(values[r.outer]) and self.attached.is_shared_inside(stage)
            waits = waits or fills_threads(stage, r.inner)
            if r.tail == "guard" or waits or is_started(stage, r.inner, nest.bound):
                continue
            return self._tail(stage, k, settled, r, values[r.outer], whole)
        return self._attach(stage, k, nest)

    def _guarded(self, stage: Stage, k: int, nest: Nest, inside: Expr) -> Stmt:
        return self._branch(self._simplify(inside), lambda: self._decide(stage, k, nest))

    def _tail(self, stage: Stage, k: int, nest: Nest, r: Split, outer: Expr, whole: Expr) -> Stmt:
        factor = r.step(whole)

        def with_extent(extent: Expr) -> Stmt:
            overrides = {**nest.overrides, r.inner: extent}
            return self._decide(stage, k, replace(nest, overrides=overrides))

        def with_rest() -> Stmt:
            n, f = int_value(whole), int_value(factor)
            if n is not None and f is not None:
                return with_extent(Const.of(n - (-(-n // f) - 1) * f))
            rest = self._simplify(whole - outer * factor)
            note = stage.notes.get(r.inner)
            if f is not None and f <= _MOST_CASES and note is not None and note.kind == "unrolled":
                return self._each_rest(rest, f, with_extent)
            return with_extent(self._simplify(ex.minimum(rest, factor)))

        def with_some() -> Stmt:
            if r.parts is None:
                return with_rest()
            return self._branch(self._simplify(outer * factor < whole), with_rest)

        if r.tail == "shorten":
            shorter = self._simplify(ex.minimum(whole - outer * factor, factor))
            if r.parts is None:
                return with_extent(shorter)
            is_some = self._simplify(outer * factor < whole)
            return self._branch(is_some, lambda: with_extent(shorter))
        fits = self._simplify((outer + 1) * factor <= whole)
        return self._branch(fits, lambda: with_extent(factor), with_some)

    def _each_rest(self, rest: Expr, factor: int, build: Callable[[Expr], Stmt]) -> Stmt:
        """Return a case for every length the last tile of a symbolic axis can have.

        So that an unrolled loop has a constant extent, and what it holds stays in registers.
        """
        case = build(Const.of(1))
        for length in range(2, factor):
            longer, shorter = build(Const.of(length)), case
            case = If(self._simplify(rest >= length), longer, shorter)
        return case

    def _branch(
        self, cond: Expr, then: Callable[[], Stmt], orelse: Callable[[], Stmt] = seq
    ) -> Stmt:
        known = self.known.prove(cond)
        if known is not None:
            return then() if known else orelse()
        with self._where(cond):
            first = then()
        with self._where(cond, holds=False):
            second = orelse()
        return If(cond, first, None if lp.is_empty(second) else second)

    def _attach(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        leaf = stage.leaf_iter_vars[k]
        here = self.attached.at(stage, leaf)
        if not here or nest.phase == "init":
            return self._open(stage, k + 1, nest)
        if self.attached.is_shared_inside(stage):
            return self._with_producers(stage, k, nest, here)
        box = relax(stage, nest, self.known)
        unsure = [x.extent for a, x in box.items() if x.may_be_empty and a.kind == "data"]
        something = self._is_any(unsure)
        return self._branch(something, lambda: self._with_producers(stage, k, nest, here))

    def _is_any(self, extents: Sequence[Expr]) -> Expr:
        """Return when all of some extents are 1 or more, as far as that is not certain."""
        if not extents:
            return Const.of(True, "bool")
        facts = Facts(self.sizes, self.around)
        return all_of(
            [self._simplify(e >= 1) for e in extents if not facts.are_ordered(Const.of(1), e)]
        )

    def _with_producers(self, stage: Stage, k: int, nest: Nest, here: Sequence[Stage]) -> Stmt:
        boxes = self._required(stage, k, nest)
        parts: list[Stmt] = []
        made: list[Buffer] = []
        for producer in here:
            box = boxes[id(producer)]
            made += self.memory.attached_buffers(producer, box, self.known)
            past_end = [a.extent for a in self.past_end[id(producer)]]
            exists = self._is_any(past_end)
            parts.append(self._branch(exists, partial(self._stage, producer, box)))
            self.memory.computed.add(id(producer))
        body = seq(*parts, self._open(stage, k + 1, nest))
        self.memory.computed.difference_update(id(producer) for producer in here)
        for buffer in reversed(made):
            body = Allocate(buffer, body)
        return body

    def _required(self, stage: Stage, k: int, nest: Nest) -> dict[int, Box]:
        """Return the box of every stage computed inside leaf `k` of `stage`, users first."""
        boxes: dict[int, Box] = {id(stage): relax(stage, nest, self.known)}
        loops = loops_left(stage, nest, self.known)
        inside = self.attached.inside(stage, k)
        for producer in reversed(self.schedule.stages):
            if id(producer) not in inside:
                continue
            box = self._box_of(producer, boxes, stage, loops)
            scope = scope_or(producer, "local")
            shared = self.threads.shared_box(box, scope, self.known)
            boxes[id(producer)] = {
                a: s if s is box[a] else clamped(s, a.extent, self.known) for a, s in shared.items()
            }
        return boxes

    def _box_of(
        self, producer: Stage, boxes: dict[int, Box], opened: Stage, loops: LoopsLeft
    ) -> Box:
        op = producer.op
        assert isinstance(op, ComputeOp)
        spans: list[Span | None] = [None] * len(op.axis)
        past_end: set[IterVar] = set()
        for reader in self.schedule.stages:
            if id(reader) not in self.bodies:
                continue
            read_past = self.past_end.get(id(reader), set())
            box: Box = {}
            domain = WholeDomain(reader, self.known)
            seen: set[tuple[int, Expr]] = set()
            for indices in self.memory.reads(reader, producer):
                pairs = zip(op.axis, indices, strict=True)
                past_end |= {a for a, i in pairs if not i.leaves.isdisjoint(read_past)}
                if id(reader) not in boxes:
                    raise ScheduleError(
                        f"stage {producer.name} is computed inside a loop, but stage "
                        f"{reader.name} outside that loop reads it too",
                        at=f"stage {producer.name}",
                        hint="compute it at a loop that encloses all its readers, or at root",
                    )
                box = box or {**domain.reductions(), **boxes[id(reader)]}
                for d, index in enumerate(indices):
                    if (d, index) in seen:
                        continue
                    seen.add((d, index))
                    check_rounded(reader, producer, d, index)
                    span = domain.read_span(index, box, op.axis[d].extent)
                    if reader is opened:
                        span = loops.narrowed(span, index, op.axis[d].extent)
                    spans[d] = union(spans[d], span, self.known)
        whole = (Span(ZERO, a.extent) for a in op.axis)
        box = {a: s or w for a, s, w in zip(op.axis, spans, whole, strict=True)}
        past_end |= {a for a in producer.rounded if int_value(box[a].extent) is None}
        self.past_end[id(producer)] = past_end
        return box | {a: whole_tile(box[a], self.known) for a in past_end}

    def _step(self, stage: Stage, k: int, nest: Nest, intrinsic: Intrinsic) -> Stmt:
        """Return one step of an intrinsic in place of the loops from leaf `k` on."""
        loops = stage.leaf_iter_vars[k:]
        if any(self.attached.at(stage, a) for a in loops):
            problem = f"other stages are computed inside {loops[0].name}"
            raise tensorize_error(stage, intrinsic.name, problem, "compute them further out")
        extents = stage.extents(nest.roots, nest.overrides)
        known = {a: self._simplify(e) for a, e in extents.items()}
        points = step_points(stage, loops, intrinsic, known, nest.guarded)
        if points is None:
            return self._open(stage, k, replace(nest, is_plain=True))
        places = [self._place(stage, replace(nest, bound={**nest.bound, **p})) for p in points]
        args: Elements = {}
        for number, at in enumerate(places):
            body = self._elements(stage, at)[0]
            found = matched_elements(stage, body, intrinsic)[number]
            args |= {key: self._value(e, dict(at.items())) for key, e in found.items()}
        values = [args[key] for key in sorted(args)]
        inside = all_of(nest.conditions)
        return self._branch(inside, lambda: self._step_store(stage, places[0], intrinsic, values))

    def _step_store(
        self, stage: Stage, at: dict[IterVar, Expr], intrinsic: Intrinsic, args: list[Expr]
    ) -> Stmt:
        body, target = self.bodies[id(stage)][0], self.memory.buffers[id(stage), 0]
        assert isinstance(body, Reduce)
        indices = self._indices(stage, at)
        current = ex.load(target, indices)
        if intrinsic.accumulates:
            return Store(target, indices, ex.apply(intrinsic, [current, *args]))
        made = ex.apply(intrinsic, args)
        return Store(target, indices, body.combiner.combine((current,), (made,))[0])

    def _innermost(self, stage: Stage, nest: Nest) -> Stmt:
        at = self._place(stage, nest)
        inside = all_of(nest.conditions)
        return self._branch(inside, lambda: self._store(stage, at, nest.phase))

    def _place(self, stage: Stage, nest: Nest) -> dict[IterVar, Expr]:
        """Return the values of the root axes in an iteration of the loops."""
        extents = stage.extents(nest.roots, nest.overrides)
        values, _ = root_values(stage, nest.bound, extents)
        return {
            a: self._simplify(nest.base[a] + values[a]) for a in stage.root_iter_vars if a in values
        }

    def _indices(self, stage: Stage, at: dict[IterVar, Expr]) -> tuple[Expr, ...]:
        """Return where a stage stores its element."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        offsets = self.memory.offsets.get(id(stage))
        return tuple(
            at[a] if offsets is None else self._simplify(at[a] - offsets[d])
            for d, a in enumerate(op.axis)
        )

    def _store(self, stage: Stage, at: dict[IterVar, Expr], phase: Phase) -> Stmt:
        indices = self._indices(stage, at)
        bodies = self._elements(stage, at)
        targets = [self.memory.buffers[id(stage), i] for i in range(len(bodies))]
        mapping: dict[Expr, Expr] = dict(at.items())
        if isinstance(bodies[0], Reduce):
            return self._reduce(bodies[0], targets, indices, mapping, phase)
        values = [self._value(b, mapping) for b in bodies]
        return seq(*(Store(t, indices, v) for t, v in zip(targets, values, strict=True)))

    def _elements(self, stage: Stage, at: dict[IterVar, Expr]) -> tuple[Expr, ...]:
        """Return what a stage computes."""
        past_end = self.past_end.get(id(stage), ())
        return within_ends(self.bodies[id(stage)], past_end, at, self.schedule, self.known)

    def _reduce(
        self,
        body: Reduce,
        targets: list[Buffer],
        indices: tuple[Expr, ...],
        mapping: dict[Expr, Expr],
        phase: Phase,
    ) -> Stmt:
        if phase == "init":
            start = body.combiner.identity
            return seq(*(Store(t, indices, v) for t, v in zip(targets, start, strict=True)))
        sources = [self._value(s, mapping) for s in body.sources]
        current = [ex.load(t, indices) for t in targets]
        results = combined(body, current, sources)
        update = store_all(targets, indices, results, self.memory)
        condition = self._value(body.condition, mapping)
        return self._branch(condition, lambda: update)

    def _value(self, body: Expr, mapping: dict[Expr, Expr]) -> Expr:
        # First: a branch that is never taken may read what is not computed here.
        reads = self.known.run(substitute(body, mapping))
        return self.known.run(to_buffers(reads, self.memory))

    def _simplify(self, e: Expr) -> Expr:
        return self.known.run(e)
