# SPDX-License-Identifier: Apache-2.0
"""Which candidates a tuning run tries next: of which task, space and search."""

from __future__ import annotations

import statistics
import zlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.errors import TreadleError
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS
from treadle.tune.allocate import next_task
from treadle.tune.cost_model import make_model
from treadle.tune.options import TuneOptions
from treadle.tune.search import Search, make_search
from treadle.tune.space import SearchSpace
from treadle.tune.spaces import spaces_of
from treadle.tune.state import Arm, TaskState
from treadle.tune.task import Task

_BATCH = 8
"""Candidates that a search proposes at once."""
_TRANSFERRED = 3
"""The best of as many tasks of the same kind are tried early."""
_MOST_INVALID = 200
"""Candidates in a row that turn out to be invalid end a task."""

Spaces = Callable[[Task], Sequence[SearchSpace[Any]]]
"""Returns the spaces of a task."""

Searches = Callable[[Task, SearchSpace[Any]], Search[Any]]
"""Makes the search through a space of a task."""


@dataclass(slots=True)
class Trial:
    """A candidate on its way; the default schedule is of no space."""

    state: TaskState
    arm: Arm | None
    candidate: Any
    choice: Choice


class Proposals:
    """Candidates in the order in which they are tried; `waiting` are those not taken yet."""

    def __init__(
        self,
        states: Sequence[TaskState],
        options: TuneOptions,
        notes: list[str],
        spaces: Spaces | None,
        searches: Searches | None,
    ) -> None:
        """`notes` is extended by what the user should know; defaults are as the options say."""
        self.waiting: deque[Trial] = deque()
        self._states = states
        self._options = options
        self._notes = notes
        self._spaces = spaces or (lambda task: spaces_of(task, options.space))
        self._searches = searches or self._search
        self._random = np.random.default_rng(options.seed)
        self._told: set[int] = set()

    def of_round(self, state: TaskState, count: int) -> list[Trial]:
        """Return up to `count` candidates of one task; fewer where nothing else is left to try.

        The default schedule and what was best elsewhere, and is in no space here, come first.
        """
        found: list[Trial] = []
        if self._options.tries_default and DEFAULTS not in state.tried:
            found.append(Trial(state, None, None, DEFAULTS))
        if state.number not in self._told:
            alien = sorted((r for r in state.elsewhere if r.point is None), key=lambda r: r.time)
            choices = dict.fromkeys(r.choice for r in alien if r.choice not in state.tried)
            found += [Trial(state, None, None, c) for c in [*choices][:_TRANSFERRED]]
            state.proposed.update(t.choice for t in found)
        while len(found) < count:
            self._propose_of(state, count - len(found))
            if not self.waiting:
                break
            found += self.waiting
            self.waiting.clear()
        return found[:count]

    def propose(self, running: Collection[Trial]) -> None:
        """Queue candidates of the task that promises most; mark those that have none left.

        `running` are being built or measured.
        """
        while not self.waiting:
            self._expect()
            for state in self._states:
                state.progress.queued = sum(t.state is state for t in running)
                state.progress.is_done = state.progress.is_done or self._is_stale(state)
            place = next_task([s.progress for s in self._states], in_turn=self._options.in_turn)
            if place is None:
                return
            state = self._states[place]
            if self._options.tries_default and not state.trials:
                if state.progress.queued:
                    return  # its spaces are made when its default is known
                self.waiting.append(Trial(state, None, None, DEFAULTS))
                return
            self._propose_of(state, self._batch(len(running)))
            if not self.waiting:
                state.progress.is_done = True

    def _expect(self) -> None:
        """Say what the first trials of tasks are expected to take: by the machine's limits, and by
        how far the defaults of others are from these."""
        known = [s for s in self._states if s.default is not None and s.task.cycles > 0]
        scale = statistics.median([(s.default or 0.0) / s.task.cycles for s in known] or [1.0])
        for state in self._states:
            if not state.trials and state.task.cycles > 0:
                state.progress.expected = scale * state.task.cycles

    def _batch(self, running: int) -> int:
        """Return how many candidates a search proposes now."""
        if self._options.trials is None:
            return _BATCH
        trials = sum(len(s.trials) for s in self._states)
        return max(1, min(_BATCH, self._options.trials - trials - running))

    def _is_stale(self, state: TaskState) -> bool:
        """True when the last trials have brought nothing better."""
        patience, best = self._options.early_stopping, state.progress.best
        return patience is not None and len(best) > patience and best[-1] >= best[-1 - patience]

    def _random_of(self, state: TaskState, arm: Arm) -> np.random.Generator:
        """Return the random numbers of the next proposals for a task.

        They follow from the seed, the task and how much of it has been tried: so a run that was
        interrupted draws what another one with the same records and the same seed draws.
        """
        words = f"{state.task.name} {state.task.target} {arm.space.kind}".encode()
        tried = len(state.trials) + state.progress.queued
        return np.random.default_rng([self._options.seed, zlib.crc32(words), tried])

    def _propose_of(self, state: TaskState, count: int) -> None:
        arms = self._arms_of(state)
        self._suggest(state)
        invalid = 0
        for _ in range(len(arms)):
            arm = arms[state.next_arm % len(arms)]
            state.next_arm += 1
            arm.search.draw_from(self._random_of(state, arm))
            while not self.waiting and invalid < _MOST_INVALID:
                found = arm.search.propose(count)
                if not found:
                    break
                for candidate in found:
                    choice = _choice(state, arm, candidate)
                    if choice is None:
                        arm.search.tell([candidate], [None])
                        invalid += 1
                    elif choice in state.proposed:  # two candidates may stand for one choice
                        arm.search.tell([candidate], [state.tried.get(choice)])
                        invalid += 1
                    else:
                        state.proposed.add(choice)
                        self.waiting.append(Trial(state, arm, candidate, choice))
            if self.waiting:
                return

    def _arms_of(self, state: TaskState) -> list[Arm]:
        """Return the spaces of a task, made when it is first tried."""
        if not state.arms:
            for space in self._spaces(state.task):
                state.arms.append(Arm(space, self._searches(state.task, space)))
            self._preload(state)
        return state.arms

    def _search(self, task: Task, space: SearchSpace[Any]) -> Search[Any]:
        """Return the search that the options say."""
        model, note = make_model(self._options.model)
        if note is not None and note not in self._notes:
            self._notes.append(note)
        return make_search(self._options.search, space, self._random, model)

    def _preload(self, state: TaskState) -> None:
        """Tell the searches of a task what is known: its own trials, and the best of others."""
        known: list[tuple[Any, float | None]]
        for arm in state.arms:
            own = [r for r in state.trials if r.space == arm.space.kind]
            pairs = [(arm.space.from_json(r.point), r.time) for r in own]
            known = [(c, t) for c, t in pairs if c is not None]
            if arm.space.kind == "template":
                first = arm.space.start()[:1]  # the default, named in full
                known += [(c, state.default) for c in first]
            arm.search.preload([c for c, _ in known], [t for _, t in known])

    def _suggest(self, state: TaskState) -> None:
        """Let what was best elsewhere, and the best of similar tasks, be tried early."""
        if state.number in self._told:
            return
        self._told.add(state.number)
        kind = _kind_of(state.task)
        others = [
            s
            for s in self._states
            if s is not state and s.best is not None and s.best.choice != DEFAULTS
            and _kind_of(s.task) == kind
        ]  # fmt: skip
        others.sort(key=lambda s: abs(s.task.flops - state.task.flops))
        elsewhere = sorted(state.elsewhere, key=lambda r: r.time)[:_TRANSFERRED]
        alike = [s.best for s in others[:_TRANSFERRED] if s.best is not None]
        for arm in state.arms:
            known = [r for r in (*elsewhere, *alike) if r.space == arm.space.kind]
            points = [arm.space.from_json(r.point) for r in known]
            arm.search.suggest([p for p in points if p is not None])


def _choice(state: TaskState, arm: Arm, candidate: Any) -> Choice | None:
    """Return what a candidate stands for; None where it turns out to be none, or is refused."""
    try:
        found: Choice | None = arm.space.choice(candidate)
    except TreadleError as error:
        state.refuse(error.problem)
        return None
    return found


def _kind_of(task: Task) -> str:
    """Return what tasks of the same operators have in common: the name without its digest."""
    return task.name.rpartition("_")[0]
