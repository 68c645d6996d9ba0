# SPDX-License-Identifier: Apache-2.0
"""The innermost statements of a nest: one element of a stage, or one step of an intrinsic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr
from treadle.expr.traversal import substitute
from treadle.loop.context import Context
from treadle.loop.domains import Phase
from treadle.loop.elements import combined, store_all, to_buffers, within_ends
from treadle.loop.memory import Memory
from treadle.loop.nodes import Buffer, Stmt, Store, seq
from treadle.loop.producers import Producers
from treadle.loop.tensorize import Elements, matched_elements
from treadle.te.intrinsics import Intrinsic
from treadle.te.operations import ComputeOp, IterVar, Reduce
from treadle.te.stage import Stage

Place = Mapping[IterVar, Expr]
"""The values of the root axes in one iteration of the loops."""


@dataclass(frozen=True, slots=True)
class Stores:
    """What stages store in their buffers, in terms of the buffers that they read."""

    context: Context
    memory: Memory
    producers: Producers

    def is_reduction(self, stage: Stage) -> bool:
        """True when a stage combines many values to one."""
        return isinstance(self.memory.bodies[id(stage)][0], Reduce)

    def element(self, stage: Stage, at: Place, phase: Phase) -> Stmt:
        """Return the stores of one element; of a reduction its start, or one more value."""
        indices = self._indices(stage, at)
        bodies = self._bodies(stage, at)
        targets = [self.memory.buffers[id(stage), i] for i in range(len(bodies))]
        if isinstance(bodies[0], Reduce):
            return self._reduce(bodies[0], targets, indices, at, phase)
        values = [self._value(b, at) for b in bodies]
        return seq(*(Store(t, indices, v) for t, v in zip(targets, values, strict=True)))

    def step_operands(
        self, stage: Stage, places: Sequence[Place], intrinsic: Intrinsic
    ) -> list[Expr]:
        """Return the operands of an intrinsic that does the iterations at `places` in one step.

        Raises: ScheduleError where the stage does not compute what the intrinsic means.
        """
        args: Elements = {}
        for number, at in enumerate(places):
            body = self._bodies(stage, at)[0]
            found = matched_elements(stage, body, intrinsic)[number]
            args |= {key: self._value(e, at) for key, e in found.items()}
        return [args[key] for key in sorted(args)]

    def step(self, stage: Stage, at: Place, intrinsic: Intrinsic, operands: list[Expr]) -> Stmt:
        """Return the store of one step of an intrinsic, whose result begins `at` a place."""
        body, target = self.memory.bodies[id(stage)][0], self.memory.buffers[id(stage), 0]
        assert isinstance(body, Reduce)
        indices = self._indices(stage, at)
        current = ex.load(target, indices)
        if intrinsic.accumulates:
            return Store(target, indices, ex.apply(intrinsic, [current, *operands]))
        made = ex.apply(intrinsic, operands)
        return Store(target, indices, body.combiner.combine((current,), (made,))[0])

    def _indices(self, stage: Stage, at: Place) -> tuple[Expr, ...]:
        """Return where in its buffer a stage stores its element."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        offsets = self.memory.offsets.get(id(stage))
        if offsets is None:
            return tuple(at[a] for a in op.axis)
        return tuple(
            self.context.simplify(at[a] - o) for a, o in zip(op.axis, offsets, strict=True)
        )

    def _bodies(self, stage: Stage, at: Place) -> tuple[Expr, ...]:
        """Return what a stage computes, without reads of memory past an end."""
        past_end = self.producers.past_end.get(id(stage), ())
        bodies = self.memory.bodies[id(stage)]
        return within_ends(bodies, past_end, at, self.memory.schedule, self.context.known)

    def _reduce(
        self,
        body: Reduce,
        targets: list[Buffer],
        indices: tuple[Expr, ...],
        at: Place,
        phase: Phase,
    ) -> Stmt:
        if phase == "init":
            start = body.combiner.identity
            return seq(*(Store(t, indices, v) for t, v in zip(targets, start, strict=True)))
        sources = [self._value(s, at) for s in body.sources]
        current = [ex.load(t, indices) for t in targets]
        results = combined(body, current, sources)
        update = store_all(targets, indices, results, self.memory)
        return self.context.branch(self._value(body.condition, at), lambda: update)

    def _value(self, body: Expr, at: Place) -> Expr:
        """Return what an expression over axes and tensors is at a place, over buffers."""
        # Simplified first: a branch that is never taken may read what is not computed here.
        mapping: dict[Expr, Expr] = dict(at.items())
        reads = self.context.simplify(substitute(body, mapping))
        return self.context.simplify(to_buffers(reads, self.memory))
