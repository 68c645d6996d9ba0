# SPDX-License-Identifier: Apache-2.0
"""Rules of users for single stages, in Ansor's words: where they apply, they schedule the stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from treadle.errors import UsageError
from treadle.te.operations import IterVar, Operation, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.tune.sketch_rules import SketchRule

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


Meet = Callable[[Any, LoopState, int], int]
Apply = Callable[[Any, LoopState, int], Sequence[Sequence[Any]]]


class PreloadCustomSketchRule:
    """A rule of a user, asked before all others.

    `meet_condition_func(policy, state, stage_id)` says whether it applies to a stage: PASS, or
    APPLY_AND_SKIP_REST. APPLY of v0.8 (the other rules as well) is not made.
    `apply_func(policy, state, stage_id)` returns [[state, next_stage_id]]: a copy of the state with
    steps of its own, and the stage that the rules are asked of next, those between being done.

    >>> rule = auto_scheduler.PreloadCustomSketchRule(meets, applies, "rows_in_parallel")
    >>> policy = auto_scheduler.SketchPolicy(task, model, init_search_callbacks=[rule])
    """

    PASS: Literal[0] = 0
    APPLY: Literal[1] = 1
    APPLY_AND_SKIP_REST: Literal[2] = 2

    def __init__(
        self, meet_condition_func: Meet, apply_func: Apply, rule_name: str = "CustomSketchRule"
    ) -> None:
        self.meet_condition_func = meet_condition_func
        self.apply_func = apply_func
        self.rule_name = rule_name

    def rule(self, policy: object) -> SketchRule:
        """Return it as a rule of sketches."""

        def applies(schedule: Schedule, stage: Stage) -> bool:
            state = LoopState(schedule).copy()
            met = self.meet_condition_func(policy, state, schedule.stages.index(stage))
            if met == self.APPLY:
                raise UsageError(
                    f"the rule {self.rule_name} answers APPLY: the stage would be scheduled by "
                    "other rules as well",
                    hint="answer APPLY_AND_SKIP_REST, or PASS",
                )
            return met == self.APPLY_AND_SKIP_REST

        def apply(schedule: Schedule, stage: Stage) -> Sequence[Stage]:
            return self._apply(policy, schedule, stage)

        return SketchRule(self.rule_name, applies, apply)

    def _apply(self, policy: object, schedule: Schedule, stage: Stage) -> Sequence[Stage]:
        """Take over the steps of what the user's function returns; return what it has scheduled."""
        start, at = len(schedule.steps), schedule.stages.index(stage)
        found = list(self.apply_func(policy, LoopState(schedule).copy(), at))
        is_one = len(found) == 1 and len(found[0]) == 2
        if not is_one or not isinstance(found[0][0], LoopState) or type(found[0][1]) is not int:
            raise UsageError(
                f"the rule {self.rule_name} returns {found!r:.80}",
                hint="it returns one state and the stage to go on with: [[state, stage_id - 1]]",
            )
        state, following = found[0]
        old = len(schedule.stages)
        schedule.replay(state.schedule.steps[start:])
        last = at + len(schedule.stages) - old
        return schedule.stages[max(following + 1, 0) : last + 1]
