# SPDX-License-Identifier: Apache-2.0
"""From a schedule to a loop nest: bound inference and loop construction in one walk inwards.

`nest` makes the loops, `producers` the boxes of what is computed inside of them, `tails` the ends
of uneven splits, `borders` what is peeled, `stores` the innermost statements, `memory` the buffers;
`context` has what is known where a statement stands.

Every loop is made where its extent is known. A split that does not divide its axis becomes an `If`
as soon as the outer loop's value is known: a full tile in one branch, the smaller remainder in the
other, both with exact extents (`lower.partition_loops` then turns the `If` into two loops). What a
stage computed at an axis must provide is the union of what the stages inside that axis read; its
buffer holds just that region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.errors import ScheduleError
from treadle.expr.bounds import ranges_when
from treadle.expr.nodes import Expr, Var
from treadle.expr.simplify import Simplifier
from treadle.loop.arguments import size_params
from treadle.loop.attach import Attached, check_attached
from treadle.loop.bodies import inline_bodies, read_by
from treadle.loop.borders import drop_border_guards, peeled, plain_nest
from treadle.loop.context import Context
from treadle.loop.domains import ZERO
from treadle.loop.elements import extern_statement
from treadle.loop.memory import Memory
from treadle.loop.nest import NestBuilder
from treadle.loop.nodes import Allocate, Buffer, If, PrimFunc, Stmt, Store, seq, walk_stmts
from treadle.loop.producers import Producers
from treadle.loop.regions import Span
from treadle.loop.stores import Stores
from treadle.loop.tensorize import check_tensorized
from treadle.te.operations import ComputeOp, ExternOp, PlaceholderOp, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


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
    first, *others = (_Kernel(c, name, line_bytes) for c in cases)
    params = first.params()
    for other in others:
        other.memory.names = first.memory.names
        other.share(params)
    made = [k.statement() for k in (first, *others)]
    body = made[-1]
    for case, then in reversed(list(zip(cases[:-1], made[:-1], strict=True))):
        assert case.when is not None
        body = If(case.when, then, body)
    by_hand = frozenset(n for k in (first, *others) for n in k.by_hand)
    attrs: dict[str, object] = {"by_hand": by_hand} if by_hand else {}
    return PrimFunc(name, tuple(params), tuple(first.sizes), body, first.written(), attrs=attrs)


class _Kernel:
    """One schedule on its way to the body of a function: arguments, then stage after stage."""

    def __init__(self, case: Case, name: str, line_bytes: int) -> None:
        self.schedule = case.schedule
        self.name = name
        self.tensors = [a for a in case.args if isinstance(a, Tensor)]
        self.sizes = size_params(case.args)
        self.bodies = inline_bodies(case.schedule)
        self.memory = Memory(case.schedule, self.bodies, line_bytes)
        self.context = Context(self.sizes, case.when)
        self.attached = Attached(case.schedule)
        self.producers = Producers(self.context, self.memory, self.attached)
        self.stores = Stores(self.context, self.memory, self.producers)
        self.by_hand: set[str] = set()
        """The buffers that nests written by hand make or write."""

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

    def written(self) -> tuple[int, ...]:
        """Return which of the arguments the schedule computes, intermediate results too."""
        return tuple(
            k
            for k, t in enumerate(self.tensors)
            if t in self.schedule and not isinstance(self.schedule[t].op, PlaceholderOp)
        )

    def statement(self) -> Stmt:
        """Return all stages with the buffers they share."""
        check_attached(self.schedule, self.bodies)
        live = self._live()
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

    def _live(self) -> list[Stage]:
        return [s for s in self.schedule.stages if id(s) in self.bodies]

    def _is_used(self, stage: Stage) -> bool:
        if stage.is_output:
            return True
        return any(self.schedule[t] is stage for s in self._live() for t in read_by(s, self.bodies))

    def _whole_stage(self, stage: Stage) -> Stmt:
        """Return a stage that is computed at root: one kernel launch, with peeled borders."""
        op = stage.op
        if isinstance(op, ExternOp):
            made = extern_statement(stage, op, self.memory)
            self.by_hand |= {b.name for b in _written(made)}
            return made
        if not isinstance(op, ComputeOp):
            return seq()
        box = {a: Span(ZERO, self.context.simplify(a.extent)) for a in op.axis}
        borders, inner = peeled(stage, box, self.context)
        strips = [plain_nest(stage, b, self.stores) for b in borders]
        if stage.peeled:
            drop_border_guards(stage, inner, self.stores)
        builder = NestBuilder(self.context, self.memory, self.attached, self.producers, self.stores)
        return seq(*strips, builder.nest(stage, inner))


def _written(stmt: Stmt) -> Iterator[Buffer]:
    """Yield the buffers that a statement makes or writes."""
    return (s.buffer for s in walk_stmts(stmt) if isinstance(s, (Allocate, Store)))
