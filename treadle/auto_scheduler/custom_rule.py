# SPDX-License-Identifier: Apache-2.0
"""Rules of users for single stages, in Ansor's words: where they apply, they schedule the stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from treadle.auto_scheduler.loop_state import LoopState
from treadle.errors import UsageError
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.tune.sketch_rules import SketchRule

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
        found: Any = self.apply_func(policy, LoopState(schedule).copy(), at)  # of a user
        is_one = isinstance(found, Sequence) and len(found) == 1
        is_pair = is_one and isinstance(found[0], Sequence) and len(found[0]) == 2
        if not is_pair or not isinstance(found[0][0], LoopState) or type(found[0][1]) is not int:
            raise UsageError(
                f"the rule {self.rule_name} returns {found!r:.80}",
                hint="it returns one state and the stage to go on with: [[state, stage_id - 1]]",
            )
        state, following = found[0]
        old = len(schedule.stages)
        schedule.replay(state.schedule.steps[start:])
        last = at + len(schedule.stages) - old
        return schedule.stages[max(following + 1, 0) : last + 1]
