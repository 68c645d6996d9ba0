# SPDX-License-Identifier: Apache-2.0
"""Which part of a stage must be there where it is computed: the union of what its readers read.

The parts follow the classic interval propagation of Halide (Ragan-Kelley et al., PLDI 2013), from
the stages that read to those that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from treadle.errors import ScheduleError
from treadle.expr.nodes import Expr, int_value
from treadle.expr.simplify import Simplifier
from treadle.loop.attach import Attached
from treadle.loop.context import Context
from treadle.loop.domains import ZERO, LoopsLeft, Nest, loops_left, relax
from treadle.loop.memory import Memory, scope_or
from treadle.loop.regions import Box, Span, union
from treadle.loop.required import WholeDomain, check_rounded, clamped, whole_tile
from treadle.loop.threads import Threads
from treadle.te.operations import ComputeOp, IterVar
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True)
class Producers:
    """The boxes of stages that are computed inside a loop of another one."""

    context: Context
    memory: Memory
    attached: Attached
    past_end: dict[int, tuple[IterVar, ...]] = field(default_factory=dict)
    """By stage id: the axes, in order, along which it is computed past the end of its tensor."""

    def boxes(self, stage: Stage, k: int, nest: Nest, threads: Threads) -> dict[int, Box]:
        """Return the box of every stage that is computed inside leaf `k` of `stage`, by its id."""
        known = self.context.known
        boxes: dict[int, Box] = {id(stage): relax(stage, nest, known)}
        loops = loops_left(stage, nest, known)
        inside = self.attached.inside(stage, k)
        for producer in reversed(self.memory.schedule.stages):  # readers before what they read
            if id(producer) not in inside:
                continue
            box = self._box_of(producer, boxes, stage, loops)
            shared = threads.shared_box(box, scope_or(producer, "local"), known)
            past_end = self.past_end[id(producer)]
            boxes[id(producer)] = {
                a: s
                if s is box[a]
                else whole_tile(s, known)
                if a in past_end
                else clamped(s, a.extent, known)
                for a, s in shared.items()
            }
        return boxes

    def _box_of(
        self, producer: Stage, boxes: Mapping[int, Box], opened: Stage, loops: LoopsLeft
    ) -> Box:
        op, known = producer.op, self.context.known
        assert isinstance(op, ComputeOp)
        spans: list[Span | None] = [None] * len(op.axis)
        past_end: set[IterVar] = set()
        for reader in self.memory.schedule.stages:
            if id(reader) not in self.memory.bodies:
                continue
            past_end |= self._read_past_end(reader, producer)
            left = loops if reader is opened else None
            self._add_reads(spans, reader, producer, boxes, left)
        whole = (Span(ZERO, a.extent) for a in op.axis)
        box = {a: s or w for a, s, w in zip(op.axis, spans, whole, strict=True)}
        past_end |= {a for a in producer.rounded if _may_pass_end(box[a], a, known)}
        self.past_end[id(producer)] = tuple([a for a in op.axis if a in past_end])
        return box | {a: whole_tile(box[a], known) for a in past_end}

    def _read_past_end(self, reader: Stage, producer: Stage) -> set[IterVar]:
        """Return the axes of a stage that a reader, computed past its own end, reads past it."""
        read_past = self.past_end.get(id(reader))
        if not read_past:
            return set()
        assert isinstance(producer.op, ComputeOp)
        return {
            axis
            for indices in self.memory.reads(reader, producer)
            for axis, index in zip(producer.op.axis, indices, strict=True)
            if not index.leaves.isdisjoint(read_past)
        }

    def _add_reads(
        self,
        spans: list[Span | None],
        reader: Stage,
        producer: Stage,
        boxes: Mapping[int, Box],
        loops: LoopsLeft | None,
    ) -> None:
        """Extend the spans of a stage by what one reader reads of it.

        `loops` are those left of the reader, where some of its loops are entered.
        """
        assert isinstance(producer.op, ComputeOp)
        extents = [a.extent for a in producer.op.axis]
        known = self.context.known
        domain = WholeDomain(reader, known)
        box: Box = {}
        seen: set[tuple[int, Expr]] = set()
        for indices in self.memory.reads(reader, producer):
            if id(reader) not in boxes:
                raise _read_outside(producer, reader)
            box = box or {**domain.reductions(), **boxes[id(reader)]}
            for d, index in enumerate(indices):
                if (d, index) in seen:
                    continue
                seen.add((d, index))
                check_rounded(reader, producer, d, index)
                span = domain.read_span(index, box, extents[d])
                if loops is not None:
                    is_rounded = producer.op.axis[d] in producer.rounded
                    span = loops.narrowed(span, index, extents[d], is_rounded=is_rounded)
                spans[d] = union(spans[d], span, known)


def _may_pass_end(span: Span, axis: IterVar, known: Simplifier) -> bool:
    """True for a part of an axis that is not certain to have one size and to end inside."""
    if int_value(span.extent) is None:
        return True
    return known.prove(span.start + span.extent <= axis.extent) is not True


def _read_outside(producer: Stage, reader: Stage) -> ScheduleError:
    return ScheduleError(
        f"stage {producer.name} is computed inside a loop, but stage "
        f"{reader.name} outside that loop reads it too",
        at=f"stage {producer.name}",
        hint="compute it at a loop that encloses all its readers, or at root",
    )
