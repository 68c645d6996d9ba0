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

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from treadle.errors import InternalError, ScheduleError, TreadleError, UsageError
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.bounds import Interval, assume, prove, ranges_when
from treadle.expr.facts import Facts, Holding, Iterating
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.loop import nodes as lp
from treadle.loop.attach import attaching_step, check_attached
from treadle.loop.bodies import inline_bodies, read_by, rewritten
from treadle.loop.domains import (
    ZERO,
    LoopsLeft,
    Nest,
    Phase,
    bounded,
    index_range,
    is_split_evenly,
    is_started,
    loops_left,
    relax,
)
from treadle.loop.memory import Memory
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store, seq
from treadle.loop.prefetch import matters, prefetches
from treadle.loop.regions import Box, Span, index_span, union
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
from treadle.te.loops import AxisNote, Split, root_values
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
    schedule: Schedule, args: Sequence[Tensor | Var], name: str = "main"
) -> PrimFunc:
    """Return the loop nest of a schedule as a function of `args`.

    Tensors among `args` become buffer parameters in their order (outputs are told by the schedule),
    variables size parameters; sizes that only occur in shapes are added.

    Raises:
        ScheduleError: a stage is computed where its users cannot see it, or an input is missing.
    """
    return cases_to_func([Case(schedule, args)], name)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A schedule for sizes for which `when` holds (None: all of them)."""

    schedule: Schedule
    args: Sequence[Tensor | Var]
    when: Expr | None = None


def cases_to_func(cases: Sequence[Case], name: str = "main") -> PrimFunc:
    """Return one function of several schedules of the same computation, for different sizes.

    The first case that holds runs; the last holds always. The tensors of the cases are the same in
    number, order and shape.

    before: n <= 16: for i in range(n): f(i);  else: parallel for i in range(n): f(i)
    after:  if n <= 16: for i in range(n): f(i), else: parallel for i in range(n): f(i)
    """
    first, *others = (_Builder(c.schedule, c.args, name, c.when) for c in cases)
    params = first.params()
    for builder in others:
        builder.memory.names = first.memory.names
        builder.share(params)
    made = [b.statement() for b in (first, *others)]
    body = made[-1]
    for case, then in reversed(list(zip(cases[:-1], made[:-1], strict=True))):
        assert case.when is not None
        body = If(case.when, then, body)
    return PrimFunc(name, tuple(params), tuple(first.sizes), body, first.output_count())


class _Builder:
    def __init__(
        self, schedule: Schedule, args: Sequence[Tensor | Var], name: str, when: Expr | None
    ) -> None:
        self.schedule = schedule
        self.name = name
        self.tensors = [a for a in args if isinstance(a, Tensor)]
        self.sizes = _size_params(args)
        self.bodies = inline_bodies(schedule)
        self.memory = Memory(schedule, self.bodies)
        self.past_end: dict[int, set[IterVar]] = {}
        """The axes along which a stage is being computed past the end of its tensor."""
        self.known = Simplifier(ranges_when(when, self.sizes))
        """What is known of the variables at the statement being built."""
        self.threads = Threads()
        """The hardware axes of the kernel launch that is being built."""
        self.around: list[Iterating | Holding] = []
        """The loops and conditions it stands in."""
        self.has_shared = any(s.scope == "shared" for s in schedule.stages)
        self.attached: dict[tuple[int, int], list[Stage]] = {}
        for stage in schedule.stages:
            if stage.attach.kind == "at":
                key = (id(stage.attach.stage), id(stage.attach.axis))
                self.attached.setdefault(key, []).append(stage)

    # -- the function --------------------------------------------------------------------------

    def statement(self) -> Stmt:
        """Return all stages with the buffers they share."""
        check_attached(self.schedule, self.bodies)
        live = [s for s in self.schedule.stages if id(s) in self.bodies]
        for stage in live:
            check_tensorized(stage)
        roots = [s for s in live if s.attach.kind == "root"]
        temporaries: list[Buffer] = []
        for stage in roots:
            temporaries += self._root_buffers(stage)
        body = seq(*(self._whole_stage(s) for s in roots))
        for buffer in reversed(temporaries):
            body = Allocate(buffer, body)
        return body

    def output_count(self) -> int:
        """Return how many of the arguments are results."""
        return sum(t in self.schedule and self.schedule[t].is_output for t in self.tensors)

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

    def _root_buffers(self, stage: Stage) -> list[Buffer]:
        made = []
        for tensor in stage.op.outputs:
            key = (id(stage), tensor.value_index)
            if key not in self.memory.buffers:
                name = self.memory.unique(tensor.name)
                scope = _scope_or(stage, "workspace")
                if scope == "local" and any(int_value(d) is None for d in tensor.shape):
                    scope = "workspace"
                buffer = Buffer(name, tensor.dtype, tuple(tensor.shape), scope)
                self.memory.buffers[key] = buffer
                made.append(buffer)
        return made

    # -- one stage -----------------------------------------------------------------------------

    def _whole_stage(self, stage: Stage) -> Stmt:
        op = stage.op
        self.threads = Threads()
        if isinstance(op, ExternOp):
            return self._extern(stage, op)
        if not isinstance(op, ComputeOp):
            return seq()
        box = {a: Span(ZERO, self._simplify(a.extent)) for a in op.axis}
        if not stage.peeled:
            return self._stage(stage, box)
        inner = dict(box)
        borders: list[Stmt] = []
        for axis, (begin, end) in stage.peeled.items():
            before = self._least(begin, axis.extent)
            after = self._greatest(end, before)
            for low, high in ((ZERO, before), (after, axis.extent)):
                width = self._simplify(high - low)
                if int_value(width) != 0:
                    strip = {**inner, axis: Span(self._simplify(low), width)}
                    borders.append(self._plain_nest(stage, strip))
            inner[axis] = Span(begin, self._simplify(end - begin))
        self.bodies[id(stage)] = tuple(
            self._inside_border(b, inner) for b in self.bodies[id(stage)]
        )
        return seq(*borders, self._stage(stage, inner))

    def _least(self, a: Expr, b: Expr) -> Expr:
        return a if self.known.prove(a <= b) else self._simplify(ex.minimum(a, b))

    def _greatest(self, a: Expr, b: Expr) -> Expr:
        return a if self.known.prove(a >= b) else self._simplify(ex.maximum(a, b))

    def _inside_border(self, body: Expr, box: Box) -> Expr:
        """Return an element without the tests that all of a box passes: it is not the border.

        Bounds of single axes cannot show that where the box ends at a symbolic size.
        """
        if not isinstance(body, ex.Select) or not body.lazy:
            return body
        left = [c for c in ex.conjuncts(body.cond) if not self._passes(c, box)]
        return ex.select(ex.all_of(left), body.then, body.other, lazy=True) if left else body.then

    def _passes(self, cond: Expr, box: Box) -> bool:
        """True when a comparison holds at the corner of a box where it holds least."""
        if not isinstance(cond, ex.Binary) or cond.op not in ("lt", "le", "gt", "ge"):
            return False
        corner: dict[Expr, Expr] = {}
        for atom, factor in decompose(cond.a - cond.b).terms.items():
            span = box.get(atom) if isinstance(atom, IterVar) else None
            if span is not None:
                is_low = (factor > 0) == (cond.op in ("gt", "ge"))
                corner[atom] = span.start if is_low else span.start + span.extent - 1
        at_worst = self._simplify(ex.substitute(cond, corner))
        axes = {v for v in ex.free_vars(at_worst) if isinstance(v, IterVar)}
        return not axes and self.known.prove(at_worst) is True

    def _extern(self, stage: Stage, op: ExternOp) -> Stmt:
        inputs = [self.memory.buffers[id(self.schedule[t]), t.value_index] for t in op.inputs]
        outputs = [self.memory.buffers[id(stage), k] for k in range(len(op.outputs))]
        made = op.build(inputs, outputs)
        if not isinstance(made, Stmt):
            raise ScheduleError(
                f"the function of {stage.name} returns {made!r}, not a statement",
                at=f"stage {stage.name}",
                hint="return a For, Store, If, Allocate or Seq of treadle.loop.nodes",
            )
        return made

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

    # -- opening loops -------------------------------------------------------------------------

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
        self._check_kind(stage, leaf, note, extent)
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

    def _check_kind(self, stage: Stage, leaf: IterVar, note: AxisNote | None, extent: Expr) -> None:
        """Refuse vectors and unrolled code of any length, and threads of two numbers."""
        if note is None:
            return
        most = self.known.bounds.reach(extent).hi
        if note.kind in ("vectorized", "unrolled") and most is None:
            raise ScheduleError(
                f"{leaf.name} cannot be {note.kind}: it has no constant bound, its extent is "
                f"{extent}",
                at=f"stage {stage.name}",
                hint=f"split it by a constant factor, and let the inner part be {note.kind}",
            )
        if note.thread is not None:
            self.threads.check(stage, leaf, note.thread, extent)

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
                if not self._is_shared_inside(stage, k):
                    return self._guarded(stage, k, settled, inside)
                nest = replace(settled, conditions=(*nest.conditions, self._simplify(inside)))
                continue
            waits = self.threads.differ(values[r.outer]) and self._is_shared_inside(stage)
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

    # -- stages computed inside ----------------------------------------------------------------

    def _attach(self, stage: Stage, k: int, nest: Nest) -> Stmt:
        leaf = stage.leaf_iter_vars[k]
        here = self.attached.get((id(stage), id(leaf)), [])
        if not here or nest.phase == "init":
            return self._open(stage, k + 1, nest)
        if self._is_shared_inside(stage):
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
        return ex.all_of(
            [self._simplify(e >= 1) for e in extents if not facts.are_ordered(Const.of(1), e)]
        )

    def _with_producers(self, stage: Stage, k: int, nest: Nest, here: Sequence[Stage]) -> Stmt:
        boxes = self._required(stage, k, nest)
        parts: list[Stmt] = []
        made: list[Buffer] = []
        for producer in here:
            box = boxes[id(producer)]
            made += self._local_buffers(producer, box)
            past_end = [a.extent for a in self.past_end[id(producer)]]
            exists = self._is_any(past_end)
            parts.append(self._branch(exists, partial(self._stage, producer, box)))
            self.memory.computed.add(id(producer))
        body = seq(*parts, self._open(stage, k + 1, nest))
        self.memory.computed.difference_update(id(producer) for producer in here)
        for buffer in reversed(made):
            body = Allocate(buffer, body)
        return body

    def _local_buffers(self, stage: Stage, box: Box) -> list[Buffer]:
        shape = []
        for axis, span in box.items():
            high = self.known.bounds.reach(span.extent).hi
            if high is None:
                raise ScheduleError(
                    f"the part of {stage.name} needed here has no constant bound along "
                    f"{axis.name}: {span.extent}",
                    at=f"stage {stage.name}",
                    hint="compute it further out, or at root",
                )
            shape.append(Const.of(max(high, 1)))
        self.memory.offsets[id(stage)] = tuple(s.start for s in box.values())
        made = []
        for tensor in stage.op.outputs:
            name = self.memory.unique(tensor.name)
            buffer = Buffer(name, tensor.dtype, tuple(shape), _scope_or(stage, "local"))
            self.memory.buffers[id(stage), tensor.value_index] = buffer
            made.append(buffer)
        return made

    def _required(self, stage: Stage, k: int, nest: Nest) -> dict[int, Box]:
        """Return the box of every stage computed inside leaf `k` of `stage`, users first."""
        boxes: dict[int, Box] = {id(stage): relax(stage, nest, self.known)}
        loops = loops_left(stage, nest, self.known)
        inside = self._subtree(stage, k)
        for producer in reversed(self.schedule.stages):
            if id(producer) not in inside:
                continue
            box = self._box_of(producer, boxes, stage, loops)
            scope = _scope_or(producer, "local")
            shared = self.threads.shared_box(box, scope, self.known)
            boxes[id(producer)] = {
                a: s if s is box[a] else self._clamped(s, a.extent) for a, s in shared.items()
            }
        return boxes

    def _subtree(self, stage: Stage, k: int) -> set[int]:
        found: set[int] = set()
        queue = [p for a in stage.leaf_iter_vars[k:] for p in self._at(stage, a)]
        while queue:
            producer = queue.pop()
            found.add(id(producer))
            queue += [p for a in producer.leaf_iter_vars for p in self._at(producer, a)]
        return found

    def _is_shared_inside(self, stage: Stage, k: int = 0) -> bool:
        """True when threads wait for each other inside leaf `k` of a stage: all must be there."""
        if not self.has_shared:
            return False
        inside = self._subtree(stage, k)
        return any(s.scope == "shared" for s in self.schedule.stages if id(s) in inside)

    def _at(self, stage: Stage, axis: IterVar) -> list[Stage]:
        return self.attached.get((id(stage), id(axis)), [])

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
            for indices in self.memory.reads(reader, producer):
                past_end |= {a for a, i in zip(op.axis, indices, strict=True) if i in read_past}
                if id(reader) not in boxes:
                    raise ScheduleError(
                        f"stage {producer.name} is computed inside a loop, but stage "
                        f"{reader.name} outside that loop reads it too",
                        at=f"stage {producer.name}",
                        hint="compute it at a loop that encloses all its readers, or at root",
                    )
                for d, index in enumerate(indices):
                    self._check_rounded(reader, producer, d, index)
                    box = {**self._reductions(reader), **boxes[id(reader)]}
                    span = self._span(reader, index, box, op.axis[d].extent)
                    if reader is opened:
                        span = loops.narrowed(span, index, op.axis[d].extent)
                    spans[d] = union(spans[d], span, self.known)
        whole = (Span(ZERO, a.extent) for a in op.axis)
        box = {a: s or w for a, s, w in zip(op.axis, spans, whole, strict=True)}
        past_end |= {a for a in producer.rounded if int_value(box[a].extent) is None}
        self.past_end[id(producer)] = past_end
        return box | {a: self._whole_tile(box[a]) for a in past_end}

    def _check_rounded(self, reader: Stage, producer: Stage, d: int, index: Expr) -> None:
        """What is read past the end must be made past the end."""
        assert isinstance(producer.op, ComputeOp)
        if not any(a in reader.rounded for a in ex.walk(index)):
            return
        if index in reader.rounded and producer.op.axis[d] in producer.rounded:
            return
        raise ScheduleError(
            f"stage {reader.name} is rounded up, but {producer.name}, which it reads, is not",
            at=f"stage {producer.name}",
            hint=f"round up {producer.op.axis[d].name} of {producer.name}, too",
        )

    def _whole_tile(self, span: Span) -> Span:
        """Return a span with the most elements it ever has."""
        high = self.known.bounds.reach(span.extent).hi
        return span if high is None else Span(span.start, Const.of(high))

    def _reductions(self, stage: Stage) -> Box:
        """Return the whole of every reduction axis: a stage computed inside runs all of them."""
        op = stage.op
        axes = op.reduce_axis if isinstance(op, ComputeOp) else ()
        return {a: Span(a.start, self._simplify(a.extent)) for a in axes}

    def _span(self, reader: Stage, index: Expr, box: Box, extent: Expr) -> Span:
        span = index_span(index, box, extent, self.known)
        return span if self._stays_inside(reader, index, extent) else self._clamped(span, extent)

    def _stays_inside(self, reader: Stage, index: Expr, extent: Expr) -> bool:
        """True when no point of the reader's whole domain reads outside [0, extent)."""
        if isinstance(index, IterVar):
            same = self._simplify(index.extent) is self._simplify(extent)
            return int_value(index.start) == 0 and same
        ranges: dict[Var, Interval] = dict(self.known.ranges)
        last: dict[Expr, Expr] = {}
        for axis in reader.root_iter_vars:
            begin, end = reader.peeled.get(axis, (axis.start, axis.start + axis.extent))
            low, high = self.known.bounds.of(begin).lo, self.known.bounds.of(end - 1).hi
            ranges[axis] = Interval(low, high)
            if high is None:
                last[axis] = end - 1
        if prove(index >= 0, ranges) is not True:
            return False
        if prove(index < extent, ranges) is True:
            return True
        # An index that only grows with axes of symbolic ends is largest at all of their ends.
        if not all(_grows_with(index, axis) for axis in last):
            return False
        return prove(ex.substitute(index, last) < extent, ranges) is True

    def _clamped(self, span: Span, extent: Expr) -> Span:
        """Return the part of a span that exists; an empty one still starts and ends inside."""
        last = self._simplify(span.start + span.extent)
        start, end = self._within(span.start, extent), self._within(last, extent)
        if start is span.start and end is last:
            return span
        return Span(start, bounded(self._simplify(end - start), span.extent, self.known))

    def _within(self, e: Expr, extent: Expr) -> Expr:
        """Return `e`, limited to [0, extent]."""
        if self.known.prove(e >= 0) is not True:
            e = self._simplify(ex.maximum(e, 0))
        if self.known.prove(e <= extent) is not True:
            e = self._simplify(ex.minimum(e, extent))
        return e

    # -- intrinsics ----------------------------------------------------------------------------

    def _step(self, stage: Stage, k: int, nest: Nest, intrinsic: Intrinsic) -> Stmt:
        """Return one step of an intrinsic in place of the loops from leaf `k` on."""
        loops = stage.leaf_iter_vars[k:]
        if any(self._at(stage, a) for a in loops):
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
            body = self._within_ends(stage, at)[0]
            found = matched_elements(stage, body, intrinsic)[number]
            args |= {key: self._value(e, dict(at.items())) for key, e in found.items()}
        values = [args[key] for key in sorted(args)]
        inside = ex.all_of(nest.conditions)
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

    # -- the innermost statement ---------------------------------------------------------------

    def _innermost(self, stage: Stage, nest: Nest) -> Stmt:
        at = self._place(stage, nest)
        inside = ex.all_of(nest.conditions)
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
        bodies = self._within_ends(stage, at)
        targets = [self.memory.buffers[id(stage), i] for i in range(len(bodies))]
        mapping: dict[Expr, Expr] = dict(at.items())
        if isinstance(bodies[0], Reduce):
            return self._reduce(bodies[0], targets, indices, mapping, phase)
        values = [self._value(b, mapping) for b in bodies]
        return seq(*(Store(t, indices, v) for t, v in zip(targets, values, strict=True)))

    def _within_ends(self, stage: Stage, at: dict[IterVar, Expr]) -> tuple[Expr, ...]:
        """Return what a stage computes; where it is rounded up, it reads no memory past an end."""
        bodies = self.bodies[id(stage)]
        past_end = self.past_end.get(id(stage))
        if not past_end:
            return bodies
        last = {a: ex.minimum(at[a], a.extent - 1) for a in past_end if a in at}
        mapping: dict[Expr, Expr] = {a: self._simplify(e) for a, e in last.items()}

        def rule(n: Expr) -> Expr | None:
            if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
                return None
            if self.schedule[n.source].attach.kind == "at":
                return None
            return ex.load(n.source, [ex.substitute(i, mapping) for i in n.indices])

        return tuple(rewritten(b, rule) for b in bodies)

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
        results = _combine(body, current, sources)
        update = self._store_all(targets, indices, results)
        condition = self._value(body.condition, mapping)
        return self._branch(condition, lambda: update)

    def _store_all(
        self, targets: list[Buffer], indices: tuple[Expr, ...], values: Sequence[Expr]
    ) -> Stmt:
        if len(targets) == 1:
            return Store(targets[0], indices, values[0])
        held = [
            Buffer(self.memory.unique(f"{t.name}.next"), t.dtype, (Const.of(1),), "local")
            for t in targets
        ]
        first = [Store(h, (ZERO,), v) for h, v in zip(held, values, strict=True)]
        then = [Store(t, indices, ex.load(h, (ZERO,))) for t, h in zip(targets, held, strict=True)]
        stmt = seq(*first, *then)
        for h in held:
            stmt = Allocate(h, stmt)
        return stmt

    def _value(self, body: Expr, mapping: dict[Expr, Expr]) -> Expr:
        # First: a branch that is never taken may read what is not computed here.
        reads = self.known.run(ex.substitute(body, mapping))
        return self.known.run(self._to_buffers(reads))

    def _to_buffers(self, e: Expr) -> Expr:
        def rule(n: Expr) -> Expr | None:
            if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
                return None
            stage = self.schedule[n.source]
            buffer = self.memory.buffers.get((id(stage), n.source.value_index))
            if buffer is None:
                raise self._read_elsewhere(stage)
            offsets = self.memory.offsets.get(id(stage))
            if offsets is None:
                return ex.load(buffer, n.indices)
            return ex.load(buffer, [i - o for i, o in zip(n.indices, offsets, strict=True)])

        return ex.rewrite(e, rule)

    def _read_elsewhere(self, stage: Stage) -> TreadleError:
        """Return the error for a read of a stage where it is not computed."""
        parent, axis = stage.attach.stage, stage.attach.axis
        if parent is None or axis is None or not parent.peeled:
            return InternalError(
                f"stage {stage.name} is read before it is computed", at=f"kernel {self.name}"
            )
        return ScheduleError(
            f"{stage.name} is computed inside loop {axis.name} of {parent.name}, but the border of "
            f"{parent.name}, which is peeled, reads it outside of that loop",
            at=attaching_step(stage),
            hint="compute it at root, or peel only what does not read it",
        )

    def _simplify(self, e: Expr) -> Expr:
        return self.known.run(e)


def _grows_with(index: Expr, axis: Expr) -> bool:
    """True when an index is a multiple of an axis, above 0, and terms without it, or lacks it."""
    terms = dict(decompose(index).terms)
    factor = terms.pop(axis, 1)
    return factor > 0 and not any(axis in ex.walk(t) for t in terms)


def _scope_or(stage: Stage, default: lp.Scope) -> lp.Scope:
    """Return the memory a stage asks for; `default` where it does not say."""
    return default if stage.scope == "" or stage.scope == "global" else stage.scope


def _combine(body: Reduce, current: Sequence[Expr], sources: Sequence[Expr]) -> Sequence[Expr]:
    """Return the combined values; a combiner that contracts adds float products by fma."""
    source = sources[0]
    is_product = isinstance(source, ex.Binary) and source.op == "mul"
    if body.combiner.contracts and is_product and source.dtype in ("float32", "float64"):
        assert isinstance(source, ex.Binary)
        return [ex.call("fma", source.a, source.b, current[0])]
    return body.combiner.combine(current, sources)


def _size_params(args: Sequence[Tensor | Var]) -> list[Var]:
    sizes: dict[Var, None] = {}
    for tensor, count in Counter(a for a in args if isinstance(a, Tensor)).items():
        if count > 1:
            raise UsageError(
                f"tensor {tensor.name} stands {count} times among the arguments",
                hint="pass every input and output tensor once",
            )
    for a in args:
        if isinstance(a, Tensor):
            for d in a.shape:
                sizes.update(dict.fromkeys(ex.free_vars(d)))
        elif isinstance(a, Var):
            sizes.setdefault(a)
        else:
            raise UsageError(
                f"an argument of a kernel is {a!r}", hint="pass tensors, and sizes made by te.var"
            )
    return list(sizes)
