# SPDX-License-Identifier: Apache-2.0
"""A schedule in the making, as sketch rules of users see and extend it, in Ansor's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.auto_scheduler.compute_dag import ComputeDAG
from treadle.errors import UsageError
from treadle.te.operations import IterVar, Operation, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.steps import Step

StageKey = int | Tensor | Operation
"""A stage: its place among all of them, or what it computes."""


@dataclass(frozen=True)
class LoopStage:
    """A stage as rules see it: what it computes, and its loops, outermost first."""

    op: Operation
    iters: Sequence[IterVar]


class LoopState:
    """A schedule in the making, with Ansor's names for the primitives.

    A stage is named by its place in `stages`, or by what it computes. `state_object` is what rules
    return: the state itself.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    @property
    def state_object(self) -> LoopState:
        """The state itself."""
        return self

    @property
    def stages(self) -> list[LoopStage]:
        """All stages, producers first."""
        return [LoopStage(s.op, tuple(s.leaf_iter_vars)) for s in self.schedule.stages]

    @property
    def transform_steps(self) -> Sequence[Step]:
        """The steps so far: those of the rules before, then those of this one."""
        return tuple(self.schedule.steps)

    @property
    def stage_ops(self) -> list[Operation]:
        """What the stages compute."""
        return [s.op for s in self.schedule.stages]

    def __getitem__(self, stage: StageKey) -> LoopStage:
        found = self._stage(stage)
        return LoopStage(found.op, tuple(found.leaf_iter_vars))

    def _stage(self, key: StageKey) -> Stage:
        if not isinstance(key, int):
            return self.schedule[key]
        if not 0 <= key < len(self.schedule.stages):
            raise UsageError(f"there is no stage {key}; the last is {len(self.stages) - 1}")
        return self.schedule.stages[key]

    def copy(self) -> LoopState:
        """Return a state with the same steps that goes on by itself."""
        return LoopState(self.schedule.fresh().replay(self.schedule.steps))

    # -- loops

    def split(
        self,
        stage_id: StageKey,
        iterator: IterVar,
        lengths: Sequence[int],
        inner_to_outer: bool = True,
    ) -> list[IterVar]:
        """Split a loop in one more than there are lengths: those of the inner, or the outer."""
        if any(length is None for length in lengths):
            raise UsageError(
                "split has a length that is None: a rule decides what it schedules",
                hint="give numbers, or leave the stage to the other rules",
            )
        stage, made = self._stage(stage_id), [iterator]
        for length in reversed(lengths) if inner_to_outer else lengths:
            if inner_to_outer:
                made[:1] = stage.split(made[0], factor=length)
            else:
                made[-1:] = stage.split(made[-1], nparts=length)
        return made

    def fuse(self, stage_id: StageKey, iters: Sequence[IterVar]) -> IterVar:
        """Make one loop of neighbours."""
        return self._stage(stage_id).fuse(*iters)

    def reorder(self, stage_id: StageKey, order: Sequence[IterVar]) -> None:
        """Put loops in an order."""
        self._stage(stage_id).reorder(*order)

    def vectorize(self, stage_id: StageKey, iterator: IterVar) -> None:
        """Compute all iterations of a loop at once, in a vector."""
        self._stage(stage_id).vectorize(iterator)

    def unroll(self, stage_id: StageKey, iterator: IterVar, max_unroll: object = None) -> None:
        """Write the iterations of a loop out."""
        self._stage(stage_id).unroll(iterator)

    def parallel(self, stage_id: StageKey, iterator: IterVar) -> None:
        """Share the iterations of a loop among threads."""
        self._stage(stage_id).parallel(iterator)

    def pragma(self, stage_id: StageKey, iterator: IterVar, pragma_type: str) -> None:
        """Say `name$number` of a loop."""
        name, _, value = pragma_type.partition("$")
        self._stage(stage_id).pragma(iterator, name, int(value) if value.isdigit() else True)

    # -- where stages are computed

    def compute_at(
        self, stage_id: StageKey, target_stage_id: StageKey, target_iter: IterVar
    ) -> None:
        """Compute a stage inside a loop of another."""
        self._stage(stage_id).compute_at(self._stage(target_stage_id), target_iter)

    def compute_inline(self, stage_id: StageKey) -> None:
        """Compute a stage wherever it is read."""
        self._stage(stage_id).compute_inline()

    def compute_root(self, stage_id: StageKey) -> None:
        """Compute a stage by itself, before what reads it."""
        self._stage(stage_id).compute_root()

    # -- new stages

    def cache_read(
        self, stage_id: StageKey, scope_name: Any, reader_stage_ids: Sequence[StageKey]
    ) -> Operation:
        """Let stages read a copy of what a stage makes."""
        readers = [self._stage(r).op for r in reader_stage_ids]
        tensor = self._stage(stage_id).op.output(0)
        return self.schedule.cache_read(tensor, scope_name, readers).op

    def cache_write(self, stage_id: StageKey, scope_name: Any) -> Operation:
        """Compute a stage into a buffer of its own first."""
        return self.schedule.cache_write(self._stage(stage_id).op.output(0), scope_name).op

    def rfactor(self, stage_id: StageKey, iterator: IterVar, factor_iter_id: int) -> Operation:
        """Reduce in two steps: partial results along a loop, then over it."""
        tensor = self._stage(stage_id).op.output(0)
        return self.schedule.rfactor(tensor, iterator, factor_iter_id).op


class State(LoopState):
    """A copy of the state that a rule is given, as v0.8's rules make it: `State(state, dag)`."""

    def __init__(self, state_object: LoopState, dag: ComputeDAG) -> None:
        super().__init__(state_object.copy().schedule)
        self.compute_dag = dag
