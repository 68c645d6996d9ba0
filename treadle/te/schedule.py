# SPDX-License-Identifier: Apache-2.0
"""Schedules: the stages of a tensor expression and the list of steps that shape their loops.

A schedule is data. Every step is checked when it is said and written to `Schedule.steps`; nothing
is lowered before `treadle.loop.from_schedule` reads the whole list once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, get_args

from treadle.errors import ScheduleError
from treadle.expr import nodes as ex
from treadle.expr.bounds import Interval, prove
from treadle.expr.nodes import Const, Expr, ExprLike, convert, free_vars, int_value
from treadle.te.intrinsics import Intrinsic, find_intrinsic
from treadle.te.tensor import (
    ComputeOp,
    ExternOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Reduce,
    Tensor,
)

LoopKind = Literal["serial", "vectorized", "unrolled", "parallel", "thread"]
Scope = Literal["", "global", "local", "shared", "workspace"]
_SCOPES = get_args(Scope)


Tail = Literal["cut", "shorten", "guard"]
"""What becomes of the last iteration of a split that does not divide its axis: code of its own
("cut"), the same code with an inner loop that may be shorter ("shorten"), or the same code with a
test around what is past the end ("guard")."""
_TAILS = ", ".join(map(repr, get_args(Tail)))


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """`parent` becomes `outer` times a step plus `inner`.

    The step is `factor`, or where `parts` is given, what makes so many parts of the extent that is
    needed of the parent: the last ones of them may be empty.
    """

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None
    parts: Expr | None = None
    tail: Tail = "cut"

    def step(self, extent: Expr) -> Expr:
        """Return how far apart two iterations of `outer` are, given the extent of the parent."""
        if self.parts is not None:
            return ceil_div(extent, self.parts)
        assert self.factor is not None
        return self.factor

    def is_even(self, extent: Expr) -> bool:
        """True when the parts of an extent are certainly all full ones."""
        step, whole = int_value(self.step(extent)), int_value(extent)
        if step is None or whole is None:
            return False
        parts = None if self.parts is None else int_value(self.parts)
        return whole == parts * step if parts is not None else step > 0 and whole % step == 0


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """`outer` and `inner` become the single axis `fused` (inner fastest)."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


Relation = Split | Fuse


@dataclass(frozen=True, slots=True, eq=False)
class Attach:
    """Where a stage is computed: at root, inlined, or inside axis `axis` of `stage`."""

    kind: Literal["root", "inline", "at"]
    stage: Stage | None = None
    axis: IterVar | None = None


ROOT = Attach("root")
INLINE = Attach("inline")


@dataclass(frozen=True, slots=True)
class Step:
    """One schedule step as data: what was said, to which stage, with which arguments."""

    stage: str
    primitive: str
    args: tuple[object, ...]

    def __str__(self) -> str:
        return f"s[{self.stage}].{self.primitive}({', '.join(map(str, self.args))})"


@dataclass(slots=True)
class AxisNote:
    """How one axis is run: its loop kind, the hardware axis it is bound to, and pragmas."""

    kind: LoopKind = "serial"
    thread: IterVar | None = None
    pragmas: list[tuple[str, object]] = field(default_factory=list)
    prefetches: list[tuple[Tensor, int]] = field(default_factory=list)
    ranges: list[tuple[Expr, int, int]] = field(default_factory=list)
    """Iterations matter only where an index is somewhere in a range (begin, end)."""
    lines: list[tuple[Tensor, tuple[Expr, ...], Expr]] = field(default_factory=list)
    """Cache lines to fetch, each where a condition holds."""
    intrinsic: str = ""
    """The name of the intrinsic that does what the loops from here on do."""

    def said(self) -> str:
        """Return in a word what was said of the axis."""
        if self.intrinsic:
            return "tensorized"
        if self.kind != "serial":
            return "bound" if self.kind == "thread" else self.kind
        if self.prefetches or self.lines:
            return "where memory is fetched"
        return "skipped" if self.ranges else "under a pragma"


def ceil_div(a: Expr, b: Expr) -> Expr:
    """Return ceil(a / b) for positive b, folded where both are constants."""
    x, y = int_value(a), int_value(b)
    if x is not None and y is not None:
        return Const.of(-(-x // y))
    return ex.binary("floordiv", a + (b - 1), b)


def _product(a: Expr, b: Expr) -> Expr:
    x, y = int_value(a), int_value(b)
    if x is not None and y is not None:
        return Const.of(x * y)
    return a * b


class Stage:
    """One operation of a schedule and the loops it will run as.

    `leaf_iter_vars` are the loops, outermost first.
    """

    def __init__(self, op: Operation, schedule: Schedule) -> None:
        self.op = op
        self.schedule = schedule
        self.relations: list[Relation] = []
        self.notes: dict[IterVar, AxisNote] = {}
        self.attach = ROOT
        self.scope: Scope = ""
        self.peeled: dict[IterVar, tuple[Expr, Expr]] = {}
        self.rounded: set[IterVar] = set()
        self.is_output = False
        self._reset_loops()

    def _reset_loops(self) -> None:
        op = self.op
        roots = (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()
        self.root_iter_vars: tuple[IterVar, ...] = roots
        self.leaf_iter_vars: list[IterVar] = list(roots)
        self.relations.clear()
        self.notes.clear()

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.op.name

    def __repr__(self) -> str:
        return f"stage({self.name}, [{', '.join(a.name for a in self.leaf_iter_vars)}])"

    # -- loop structure ----------------------------------------------------------------------

    def split(
        self,
        parent: IterVar,
        factor: ExprLike | None = None,
        nparts: ExprLike | None = None,
        *,
        tail: Tail = "cut",
    ) -> tuple[IterVar, IterVar]:
        """Split an axis in two; the inner has extent `factor`, or the outer has `nparts`.

        A factor that does not divide the extent is fine: the remainder becomes a tile of its own,
        or `tail` says what else. Of a stage that is computed at a loop, `nparts` divides what is
        needed there: the outer loop always has `nparts` iterations, of which the last do nothing
        where there is less to do.

        before: for i in range(n)  ->  after: for io in range(n // factor): for ii in range(factor)
        """
        position = self._divided(parent, "split")
        if (factor is None) == (nparts is None):
            raise self._error(f"split of {parent.name} takes either factor or nparts")
        given = "factor" if nparts is None else "nparts"
        number = self._positive(factor if nparts is None else nparts, given, parent)
        if tail not in get_args(Tail):
            raise self._error(f"split of {parent.name}: tail is {tail!r}", f"it is one of {_TAILS}")
        more = () if tail == "cut" else (f"tail={tail!r}",)
        self._say("split", parent, f"{given}={number}", *more)
        outer = IterVar(f"{parent.name}.outer", kind=parent.kind)
        inner = IterVar(f"{parent.name}.inner", kind=parent.kind)
        step, parts = (number, None) if nparts is None else (None, number)
        self.relations.append(Split(parent, outer, inner, step, parts, tail))
        self.leaf_iter_vars[position : position + 1] = [outer, inner]
        return outer, inner

    def _positive(self, value: ExprLike | None, what: str, axis: IterVar) -> Expr:
        e = convert(value)  # type: ignore[arg-type]
        number = int_value(e)
        if isinstance(e, Const) and (number is None or number < 1):
            raise self._error(f"split of {axis.name} needs a positive integer {what}, got {e}")
        return e

    def fuse(self, *args: IterVar) -> IterVar:
        """Fuse neighbouring axes into one, the last running fastest."""
        if not args:
            raise self._error("fuse takes at least one axis")
        fused = args[0]
        for inner in args[1:]:
            fused = self._fuse_two(fused, inner)
        return fused

    def _fuse_two(self, outer: IterVar, inner: IterVar) -> IterVar:
        at, after = self._divided(outer, "fuse"), self._divided(inner, "fuse")
        if after != at + 1:
            raise self._error(
                f"{outer.name} and {inner.name} are not neighbours, the order is {self._order()}",
                "reorder them first, the inner right after the outer",
            )
        if outer.kind != inner.kind:
            raise self._error(f"cannot fuse {outer.kind} axis {outer.name} with {inner.name}")
        fused = IterVar(f"{outer.name}.{inner.name}.fused", kind=outer.kind)
        self.relations.append(Fuse(outer, inner, fused))
        self.leaf_iter_vars[at : at + 2] = [fused]
        self._say("fuse", outer, inner)
        return fused

    def reorder(self, *args: IterVar) -> None:
        """Put the given axes in this order; axes not named keep their places."""
        places = sorted(self._leaf(a, "reorder") for a in args)
        if len(set(places)) != len(args):
            raise self._error("reorder names an axis twice")
        for place, axis in zip(places, args, strict=True):
            self.leaf_iter_vars[place] = axis
        self._say("reorder", *args)

    def tile(
        self,
        x_parent: IterVar,
        y_parent: IterVar,
        x_factor: ExprLike,
        y_factor: ExprLike,
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and order them x.outer, y.outer, x.inner, y.inner."""
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def vectorize(self, var: IterVar) -> None:
        """Run an axis as SIMD lanes; its extent, where it is run, must have a constant bound."""
        if var.kind == "reduce":
            raise self._error(
                f"reduction axis {var.name} cannot be vectorized",
                "use rfactor, then vectorize",
            )
        self._set_kind(var, "vectorized")

    def unroll(self, var: IterVar) -> None:
        """Write the iterations of an axis one after the other.

        Its extent, where it is run, must have a constant bound.
        """
        self._set_kind(var, "unrolled")

    def parallel(self, var: IterVar) -> None:
        """Spread the iterations of an axis over the threads."""
        if var.kind == "reduce":
            raise self._error(
                f"reduction axis {var.name} cannot run in parallel", "use rfactor on it"
            )
        self._set_kind(var, "parallel")

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind an axis to a hardware axis made by te.thread_axis."""
        if thread_ivar.kind != "thread":
            raise self._error(f"{thread_ivar.name} is not a thread axis")
        self._leaf(ivar, "bind")
        extent, given = int_value(self.extents()[ivar]), int_value(thread_ivar.extent)
        if given is not None and given >= 0 and extent is not None and extent != given:
            raise self._error(
                f"bind: {ivar.name} has {extent} iterations, {thread_ivar.name} is {given} long"
            )
        note = self.notes.setdefault(ivar, AxisNote())
        note.kind, note.thread = "thread", thread_ivar
        self._say("bind", ivar, thread_ivar)

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: object = True) -> None:
        """Attach a note for the code generator to an axis, such as ("unroll", 4)."""
        self._leaf(var, "pragma")
        self.notes.setdefault(var, AxisNote()).pragmas.append((pragma_type, pragma_value))
        self._say("pragma", var, pragma_type, pragma_value)

    def tensorize(self, var: IterVar, intrinsic: Intrinsic | str) -> None:
        """Let an intrinsic do what the loops from `var` inwards do; v0.8's name.

        They are the reduction loops of one step of the intrinsic, innermost in the stage, with
        its products as their body; `var` may also be the loop around them, which becomes its lanes.
        Where the body is not the intrinsic's meaning, lowering raises ScheduleError and says what
        stands there. The end of an uneven split that is shorter than a step stays loops.

        before: for i in vectorized(16): for k in range(4): C[i] += int32(A[k]) * int32(B[i, k])
        after:  for i in vectorized(16): C[i] = x86.vpdpbusd(C[i], A[0], ..., A[3], B[i, 0], ...)
        """
        self._leaf(var, "tensorize")
        name = intrinsic if isinstance(intrinsic, str) else intrinsic.name
        if find_intrinsic(name) is not intrinsic and not isinstance(intrinsic, str):
            raise self._error(f"tensorize: {name} names another intrinsic", "register this one")
        note = self.notes.setdefault(var, AxisNote())
        note.intrinsic = name
        if var.kind != "reduce":
            note.kind = "vectorized"
        self._say("tensorize", var, repr(name))

    def prefetch(self, tensor: Tensor, var: IterVar, offset: int) -> None:
        """In each iteration of `var`, fetch what the iteration `offset` later reads of `tensor`.

        With 0, what this iteration reads is fetched while it computes something else first.
        Only a hint: lines past the end of a row are those of the next row in memory (past the end
        of panels that a tile reads side by side: those of the next panels), and nothing is fetched
        of a stage that is computed at a loop.

        before: for k: C[n] += B[k, n]  ->  after: for k: prefetch(B[k + offset, 0]); C[n] += ...
        """
        self._leaf(var, "prefetch")
        if not self._reads(tensor):
            raise self._error(f"prefetch: {self.name} does not read {tensor.name}")
        if offset < 0:
            raise self._error(f"prefetch of {tensor.name} needs an offset of 0 or more")
        self.notes.setdefault(var, AxisNote()).prefetches.append((tensor, offset))
        self._say("prefetch", tensor.name, var, offset)

    def skip_outside(self, var: IterVar, index: Expr, begin: int, end: int) -> None:
        """Skip the iterations of `var` for which `index` lies outside [begin, end) everywhere.

        Everywhere: for all elements that the loops inside compute. `var` is an axis of a reduction,
        to which such an iteration adds nothing: what it reads outside is known to be zero.

        before: for k: for i in range(8): C[i] += A[i + k] * B[k]
        after:  for k: if k + 7 >= begin and k < end: for i in range(8): C[i] += A[i + k] * B[k]
        """
        self._leaf(var, "skip_outside")
        if begin > end:
            raise self._error(f"skip_outside needs begin <= end, not {begin} and {end}")
        if var.kind != "reduce":
            raise self._error(f"skip_outside: {var.name} is not an axis of a reduction")
        self.notes.setdefault(var, AxisNote()).ranges.append((index, begin, end))
        self._say("skip_outside", var, index, begin, end)

    def prefetch_at(
        self,
        tensor: Tensor,
        var: IterVar,
        indices: Sequence[ExprLike],
        where: ExprLike = True,
    ) -> None:
        """In each iteration of `var`, fetch the cache line that holds `tensor[indices]`.

        The indices, and the condition `where`, are expressions of sizes and of the stage's own
        axes, of which those inside `var` stand at their first values. Only a hint: the place may be
        outside the tensor, and nothing is fetched of a stage that is computed at a loop and not
        complete.

        before: for k: C[n] += B[k, n]  ->  after: for k: prefetch(B[indices]); C[n] += B[k, n]
        """
        self._leaf(var, "prefetch_at")
        if not self._reads(tensor):
            raise self._error(f"prefetch_at: {self.name} does not read {tensor.name}")
        if len(indices) != len(tensor.shape):
            raise self._error(
                f"prefetch_at: {len(indices)} indices for the {len(tensor.shape)} dimensions "
                f"of {tensor.name}"
            )
        place, condition = tuple(convert(i) for i in indices), convert(where)
        own = (*self.op.axis, *self.op.reduce_axis) if isinstance(self.op, ComputeOp) else ()
        foreign = {
            n for i in (*place, condition) for n in ex.walk(i) if isinstance(n, IterVar)
        } - set(own)
        if foreign:
            names = ", ".join(sorted(str(n) for n in foreign))
            raise self._error(f"prefetch_at: {names} is no axis of {self.name}")
        self.notes.setdefault(var, AxisNote()).lines.append((tensor, place, condition))
        self._say("prefetch_at", tensor.name, var, place)

    def peel(self, axis: IterVar, begin: int, end: ExprLike) -> None:
        """Let the scheduled loops cover [begin, end) of a root axis; plain loops cover the rest.

        For tensors with a border (padding): the hot loops see the inside only. `end` may hold
        symbolic sizes, and lie before `begin` for some of them: then all is border.
        """
        if not isinstance(self.op, ComputeOp) or axis not in self.op.axis:
            raise self._error(f"{axis.name} is not a data axis of {self.name}")
        if any(isinstance(r, Split) and r.parent is axis for r in self.relations):
            raise self._error(f"peel of {axis.name} must come before it is split")
        limit = convert(end)
        sizes = {v: Interval(0, None) for v in free_vars(axis.extent)}
        fits = prove(limit <= axis.extent, sizes) and prove(limit <= begin, sizes) is not True
        if not fits or begin < 0:
            raise self._error(f"peel of {axis.name} needs 0 <= begin < end <= {axis.extent}")
        self.peeled[axis] = (Const.of(begin), limit)
        self._say("peel", axis, begin, end)

    def round_up(self, axis: IterVar) -> None:
        """Compute as much along a data axis as is ever needed, also where its tensor ends before.

        For a stage that is computed at a loop: its extents are constants then, so that it can be in
        lanes and registers. What lies past the end is made of the last elements and never stored.

        before: for i in vectorized(min(n - start, 8)): A[i] = X[start + i]
        after:  for i in vectorized(8): A[i] = X[min(start + i, n - 1)]
        """
        if not isinstance(self.op, ComputeOp) or axis not in self.op.axis:
            raise self._error(f"{axis.name} is not a data axis of {self.name}")
        if self.is_output:
            raise self._error("an output ends where its tensor ends")
        self.rounded.add(axis)
        self._say("round_up", axis)

    # -- where the stage is computed -----------------------------------------------------------

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute what `parent` needs inside its axis `scope`, afresh in each iteration."""
        if parent is self:
            raise self._error("a stage cannot be computed at itself")
        if self.is_output:
            raise self._error("an output is always computed at root")
        parent._leaf(scope, "compute_at")
        self._no_placeholder("compute_at")
        self._no_extern("compute_at")
        self.attach = Attach("at", parent, scope)
        self._say("compute_at", f"s[{parent.name}]", scope)

    def compute_inline(self) -> None:
        """Replace every read of this stage by its expression."""
        self._no_placeholder("compute_inline")
        self._no_extern("compute_inline")
        if self.is_output:
            raise self._error("an output cannot be inlined")
        if isinstance(self.op, ComputeOp) and self.op.reduce_axis:
            raise self._error("a reduction cannot be inlined", "use compute_at")
        self.attach = INLINE
        self._say("compute_inline")

    def compute_root(self) -> None:
        """Compute the whole stage before its users (the default)."""
        self.attach = ROOT
        self._say("compute_root")

    def set_scope(self, scope: Scope) -> None:
        """Choose the memory this stage's result lives in."""
        self._check_scope("set_scope", scope)
        self.scope = scope
        self._say("set_scope", repr(scope))

    # -- facts -----------------------------------------------------------------------------------

    def extents(
        self,
        roots: Mapping[IterVar, Expr] | None = None,
        overrides: Mapping[IterVar, Expr] | None = None,
    ) -> dict[IterVar, Expr]:
        """Return the extent of every axis, given those of the root axes.

        `overrides` fixes extents of inner axes of splits (in a tail they are smaller).
        """
        extents: dict[IterVar, Expr] = {}
        for axis in self.root_iter_vars:
            extents[axis] = (roots or {}).get(axis, axis.extent)
        for r in self.relations:
            if isinstance(r, Split):
                whole = extents[r.parent]
                factor = r.step(whole)
                n, f = int_value(whole), int_value(factor)
                inner = whole if n is not None and f is not None and n < f else factor
                extents[r.inner] = inner
                extents[r.outer] = ceil_div(whole, factor) if r.parts is None else r.parts
                if overrides is not None and r.inner in overrides:
                    extents[r.inner] = overrides[r.inner]
            else:
                extents[r.fused] = _product(extents[r.outer], extents[r.inner])
        return extents

    def _leaf(self, axis: IterVar, primitive: str) -> int:
        for position, leaf in enumerate(self.leaf_iter_vars):
            if leaf is axis:
                return position
        name = getattr(axis, "name", repr(axis))
        close = get_close_matches(name, [a.name for a in self.leaf_iter_vars], 1)
        raise self._error(
            f"{primitive}: {name} is not a loop of this stage; its loops are {self._order()}",
            f"do you mean {close[0]}?" if close and close[0] != name else "",
        )

    def inputs(self) -> list[Tensor]:
        """Return the tensors this stage reads, itself or through stages that may be inlined."""
        found: dict[Tensor, None] = {}
        queue = list(self.op.input_tensors)
        while queue:
            read = queue.pop()
            if read in found:
                continue
            found[read] = None
            op = self.schedule[read].op
            if not isinstance(op, ComputeOp) or not op.reduce_axis:
                queue += op.input_tensors
        return list(found)

    def _reads(self, tensor: Tensor) -> bool:
        return tensor in self.inputs()

    def _order(self) -> str:
        return ", ".join(a.name for a in self.leaf_iter_vars) or "none"

    def _set_kind(self, var: IterVar, kind: LoopKind) -> None:
        primitive = {"vectorized": "vectorize", "unrolled": "unroll"}.get(kind, kind)
        self._leaf(var, primitive)
        self.notes.setdefault(var, AxisNote()).kind = kind
        self._say(primitive, var)

    def _check_scope(self, primitive: str, scope: str) -> None:
        if scope not in _SCOPES:
            names = ", ".join(repr(name) for name in _SCOPES if name)
            raise self._error(f"{primitive}: {scope!r} names no memory", f"it is one of {names}")

    def _divided(self, axis: IterVar, primitive: str) -> int:
        """Return the place of an axis about to be divided, which nothing else refers to yet."""
        place = self._leaf(axis, primitive)
        inside = [s for s in self.schedule.stages if s.attach.axis is axis]
        if inside:
            raise self._error(
                f"{primitive}: {inside[0].name} is computed at {axis.name}, which would be no loop "
                "any more",
                f"{primitive} it first, then compute {inside[0].name} at one of its parts",
            )
        note = self.notes.get(axis)
        if note is not None:
            said = note.said()
            raise self._error(
                f"{primitive}: {axis.name} is {said} already, which its parts would not be",
                f"{primitive} it first, then say so of one of its parts",
            )
        return place

    def _no_placeholder(self, primitive: str) -> None:
        if isinstance(self.op, PlaceholderOp):
            raise self._error(f"{primitive}: an input is not computed")

    def _no_extern(self, primitive: str) -> None:
        if isinstance(self.op, ExternOp):
            raise self._error(f"{primitive}: a stage written by hand is computed at root")
        if any(isinstance(r.op, ExternOp) for r in self.schedule.readers(self)):
            raise self._error(f"{primitive}: a stage written by hand reads this one whole")

    def _error(self, problem: str, hint: str = "") -> ScheduleError:
        return ScheduleError(problem, at=f"schedule of stage {self.name}", hint=hint)

    def _say(self, primitive: str, *args: object) -> None:
        self.schedule.steps.append(Step(self.name, primitive, args))


class Schedule:
    """The stages of a tensor expression, producers first; `s[T]` is the stage of tensor T."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.steps: list[Step] = []
        self.stages: list[Stage] = []
        self._stage_of: dict[int, Stage] = {}
        self._kept: list[Operation] = []
        for op in _producers_first(outputs):
            self._add(Stage(op, self), len(self.stages))
        for op in outputs:
            self[op].is_output = True

    def _add(self, stage: Stage, position: int) -> Stage:
        self.stages.insert(position, stage)
        self._map(stage.op, stage)
        return stage

    def _map(self, op: Operation, stage: Stage) -> None:
        self._stage_of[id(op)] = stage
        self._kept.append(op)

    def __contains__(self, key: Tensor) -> bool:
        return id(key.op) in self._stage_of

    def __getitem__(self, key: Tensor | Operation | str) -> Stage:
        if isinstance(key, str):
            return self._named(key)
        op = key.op if isinstance(key, Tensor) else key
        if not isinstance(op, (PlaceholderOp, ComputeOp, ExternOp)):
            raise ScheduleError(
                f"{key!r} is no tensor of a schedule", hint="write s[C] for a tensor C"
            )
        stage = self._stage_of.get(id(op))
        if stage is None:
            names = ", ".join(s.name for s in self.stages)
            raise ScheduleError(f"{op.name} is not part of this schedule; its stages are {names}")
        return stage

    def _named(self, name: str) -> Stage:
        found = [s for s in self.stages if s.name == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise ScheduleError(
                f"{len(found)} stages are named {name}", hint="index the schedule by the tensor"
            )
        names = ", ".join(s.name for s in self.stages)
        close = get_close_matches(name, [s.name for s in self.stages], 1)
        hint = f"do you mean {close[0]}?" if close else ""
        raise ScheduleError(f"no stage is named {name}; the stages are {names}", hint=hint)

    def readers(self, stage: Stage) -> list[Stage]:
        """Return the stages that read a result of `stage`."""
        return [s for s in self.stages if any(self[t] is stage for t in s.op.input_tensors)]

    def cache_write(self, tensor: Tensor, scope: Scope = "local") -> Tensor:
        """Compute `tensor` into a buffer of its own first; the tensor becomes a copy of it.

        before: C[i] = f(i)   ->   after: C.local[i] = f(i); C[i] = C.local[i]
        """
        stage = self[tensor]
        stage._check_scope("cache_write", scope)
        op = stage.op
        if not isinstance(op, ComputeOp):
            raise stage._error("cache_write: only a compute can be written through a cache")
        if stage.relations:
            raise stage._error("cache_write must come before the loops of the stage are changed")
        fresh = [IterVar(f"{a.name}.c", extent=a.extent) for a in op.axis]
        mapping: dict[Expr, Expr] = dict(zip(op.axis, fresh, strict=True))
        body = tuple(_substitute(b, mapping) for b in op.body)
        cached = ComputeOp(f"{op.name}.{scope}", tuple(fresh), body, op.tag, op.attrs)
        copies = tuple(t[tuple(op.axis)] for t in cached.outputs)
        stage.op = ComputeOp(op.name, op.axis, copies, op.tag, op.attrs)
        self._map(stage.op, stage)
        if op in self.outputs:
            self.outputs[self.outputs.index(op)] = stage.op
        stage._reset_loops()
        made = self._add(Stage(cached, self), self.stages.index(stage))
        made.scope = scope
        stage._say("cache_write", repr(scope))
        return cached.output(tensor.value_index)

    def cache_read(
        self,
        tensor: Tensor,
        scope: Scope,
        readers: Tensor | Operation | Iterable[Tensor | Operation],
    ) -> Tensor:
        """Let `readers` read a copy of `tensor` in memory `scope`.

        before: C[i] = f(A[i])   ->   after: A.shared[i] = A[i]; C[i] = f(A.shared[i])
        """
        source = self[tensor]
        source._check_scope("cache_read", scope)
        if isinstance(readers, (Tensor, PlaceholderOp, ComputeOp, ExternOp)):
            readers = [readers]
        targets = [self[r] for r in readers]
        axes = [IterVar(f"ax{i}", extent=d) for i, d in enumerate(tensor.shape)]
        body = (source.op.output(tensor.value_index)[tuple(axes)],)
        copy = ComputeOp(f"{tensor.name}.{scope}", tuple(axes), body)
        for reader in targets:
            self._redirect(reader, source, tensor.value_index, copy.output(0))
        stage = self._add(Stage(copy, self), self.stages.index(source) + 1)
        stage.scope = scope
        source._say("cache_read", repr(scope), [t.name for t in targets])
        return copy.output(0)

    def _redirect(self, reader: Stage, source: Stage, index: int, to: Tensor) -> None:
        op = reader.op
        if not isinstance(op, ComputeOp):
            raise reader._error("cache_read: only a compute can read a copy")

        def rule(e: Expr) -> Expr | None:
            if (
                isinstance(e, ex.Load)
                and isinstance(e.source, Tensor)
                and self[e.source] is source
                and e.source.value_index == index
            ):
                return ex.load(to, e.indices)
            return None

        body = tuple(ex.rewrite(b, rule) for b in op.body)
        if all(a is b for a, b in zip(body, op.body, strict=True)):
            raise reader._error(f"cache_read: it does not read {source.name}")
        reader.op = ComputeOp(op.name, op.axis, body, op.tag, op.attrs)
        self._map(reader.op, reader)
        if op in self.outputs:
            self.outputs[self.outputs.index(op)] = reader.op

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Reduce in two steps: partial results along reduction loop `axis`, then over it.

        before: B[i] = sum(A[i, k], k) with k split into ko, ki
        after:  B.rf[ki, i] = sum(A[i, ko * f + ki], ko); B[i] = sum(B.rf[ki, i], ki)
        """
        stage = self[tensor]
        op = stage.op
        if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
            raise stage._error("rfactor: not a reduction")
        stage._leaf(axis, "rfactor")
        if axis.kind != "reduce":
            raise stage._error(f"rfactor: {axis.name} is not a reduction loop")
        if any(r.parent.kind != "reduce" for r in stage.relations if isinstance(r, Split)):
            raise stage._error("rfactor must come before the data axes are split")
        if not 0 <= factor_axis <= len(op.axis):
            raise stage._error(
                f"rfactor: factor_axis is {factor_axis}",
                f"the partial results have {len(op.axis) + 1} axes: it is one of 0 to "
                f"{len(op.axis)}",
            )
        partial = _partial_op(stage, op, axis, factor_axis)
        final_axis = IterVar(axis.name, extent=stage.extents()[axis], kind="reduce")
        stage.op = _final_op(op, partial, final_axis, factor_axis)
        self._map(stage.op, stage)
        if op in self.outputs:
            self.outputs[self.outputs.index(op)] = stage.op
        stage._reset_loops()
        self._add(Stage(partial, self), self.stages.index(stage))
        stage._say("rfactor", axis, factor_axis)
        return partial.output(tensor.value_index)

    def normalize(self) -> Schedule:
        """Return the schedule itself (kept for scripts that call it)."""
        return self

    def text(self) -> str:
        """Return the steps, one a line."""
        return "\n".join(map(str, self.steps))


def _substitute(body: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    if not isinstance(body, Reduce):
        return ex.substitute(body, mapping)
    return body.with_children(tuple(ex.substitute(c, mapping) for c in body.children))


def _partial_op(stage: Stage, op: ComputeOp, axis: IterVar, factor_axis: int) -> ComputeOp:
    extents = stage.extents()
    factored = IterVar(axis.name, extent=extents[axis])
    rest = [a for a in stage.leaf_iter_vars if a.kind == "reduce" and a is not axis]
    fresh = {a: IterVar(a.name, extent=extents[a], kind="reduce") for a in rest}
    leaves: dict[IterVar, Expr] = {a: fresh[a] for a in rest}
    leaves[axis] = factored
    values, guards = root_values(stage, leaves, extents)
    data = [IterVar(a.name, extent=a.extent) for a in op.axis]
    mapping: dict[Expr, Expr] = dict(zip(op.axis, data, strict=True))
    for root in op.reduce_axis:
        mapping[root] = values[root] if root not in leaves else leaves[root]
        if int_value(root.start) != 0:
            mapping[root] = mapping[root] + root.start
    bodies: list[Expr] = []
    for b in op.body:
        assert isinstance(b, Reduce)
        sources = tuple(ex.substitute(s, mapping) for s in b.sources)
        condition = ex.all_of([*guards, ex.substitute(b.condition, mapping)])
        if not guards:
            condition = ex.substitute(b.condition, mapping)
        if fresh:
            axes = tuple(fresh.values())
            bodies.append(Reduce(b.combiner, sources, axes, condition, b.index, b.dtype))
        else:  # nothing is left to combine: the one value, or the identity
            value, nothing = sources[b.index], b.combiner.identity[b.index]
            bodies.append(ex.select(condition, value, nothing, lazy=True))
    index = (*data[:factor_axis], factored, *data[factor_axis:])
    return ComputeOp(f"{op.name}.rf", index, tuple(bodies), op.tag)


def _final_op(op: ComputeOp, partial: ComputeOp, axis: IterVar, factor_axis: int) -> ComputeOp:
    index = [*op.axis[:factor_axis], axis, *op.axis[factor_axis:]]
    sources = tuple(t[tuple(index)] for t in partial.outputs)
    true = Const.of(True, "bool")
    first = op.body[0]
    assert isinstance(first, Reduce)
    bodies = tuple(
        Reduce(first.combiner, sources, (axis,), true, i, s.dtype) for i, s in enumerate(sources)
    )
    return ComputeOp(op.name, op.axis, bodies, op.tag, op.attrs)


def root_values(
    stage: Stage, leaves: Mapping[IterVar, Expr], extents: Mapping[IterVar, Expr]
) -> tuple[dict[IterVar, Expr], list[Expr]]:
    """Return the value of every axis given those of loops, and the guards of uneven splits.

    Only axes whose loops are all in `leaves` are in the result.
    """
    values: dict[IterVar, Expr] = dict(leaves)
    guards: list[Expr] = []
    for r in reversed(stage.relations):
        if isinstance(r, Split):
            if r.outer in values and r.inner in values:
                step = r.step(extents[r.parent])
                values[r.parent] = values[r.outer] * step + values[r.inner]
                if not r.is_even(extents[r.parent]):
                    guards.append(values[r.parent] < extents[r.parent])
        elif r.fused in values:
            both = values[r.fused]
            if int_value(extents[r.outer]) == 1:  # told here: an open inner extent hides it
                values[r.outer], values[r.inner] = Const.of(0, both.dtype), both
                continue
            values[r.outer] = both // extents[r.inner]
            values[r.inner] = both % extents[r.inner]
    return values, guards


def _producers_first(outputs: Sequence[Operation]) -> list[Operation]:
    seen: dict[int, Operation] = {}
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(outputs)]
    while stack:
        op, ready = stack.pop()
        if id(op) in seen:
            continue
        if ready:
            seen[id(op)] = op
            continue
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(op.input_tensors) if id(t.op) not in seen)
    return list(seen.values())


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """Return the default schedule of operations: every stage at root, loops as declared."""
    items = ops if isinstance(ops, Sequence) else [ops]
    return Schedule([o.op if isinstance(o, Tensor) else o for o in items])


__all__ = ["Attach", "Fuse", "Schedule", "Split", "Stage", "Step", "create_schedule"]
