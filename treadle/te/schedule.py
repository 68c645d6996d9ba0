# SPDX-License-Identifier: Apache-2.0
"""Schedules: the stages of a tensor expression and the list of steps that shape their loops.

A schedule is data. Every step is checked when it is said and written to `Schedule.steps`; the same
steps replayed on the same tensors give the same loops. Nothing is lowered before
`treadle.loop.from_schedule` reads the stages once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from treadle.errors import ScheduleError, TreadleError
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import free_vars
from treadle.te.loops import Scope
from treadle.te.operations import (
    ComputeOp,
    ExternOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Tensor,
)
from treadle.te.primitives import PRIMITIVES, REQUIRED, Parameter, is_same
from treadle.te.script import python_script
from treadle.te.size_text import Sizes
from treadle.te.stage import Stage
from treadle.te.steps import Step, steps_to_json


class Schedule:
    """The stages of a tensor expression, producers first; `s[T]` is the stage of tensor T."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self._declared = tuple(outputs)
        self.outputs = list(outputs)
        self.steps: list[Step] = []
        self.stages: list[Stage] = []
        self._numbered: list[Stage] = []
        self._stage_of: dict[int, Stage] = {}
        self._kept: list[Operation] = []
        for op in _producers_first(outputs):
            self._add(op, len(self.stages))
        self.tensors: tuple[Tensor, ...] = tuple(x.op.output(0) for x in self.stages)
        """The first tensor of every stage there is before any step, by the stage's number."""
        for op in outputs:
            self[op].is_output = True

    def _add(self, op: Operation, position: int) -> Stage:
        stage = Stage(op, self, len(self._numbered))
        self._numbered.append(stage)
        self.stages.insert(position, stage)
        self._map(op, stage)
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

    # -- steps -----------------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> Sizes:
        """The symbolic sizes of the tensors, by name."""
        return Sizes(_size_vars(self._declared))

    def numbered(self, number: object) -> Stage | None:
        """Return the stage that steps call by a number; None where there is none."""
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        return self._numbered[number] if 0 <= number < len(self._numbered) else None

    def do(self, stage: Stage, primitive: str, *args: object) -> Any:  # what the primitive makes
        """Apply a primitive to what a user hands to it: write the step down, and apply that."""
        parameters = PRIMITIVES[primitive].parameters
        plain = [
            p.default if value is p.default else p.kind.write(stage, primitive, value)
            for p, value in zip(parameters, args, strict=True)
        ]
        while plain and is_same(plain[-1], parameters[len(plain) - 1].default):
            plain.pop()
        return self.apply(Step(stage.number, primitive, tuple(plain)))  # type: ignore[arg-type]  # defaults are plain

    def apply(self, step: Step) -> Any:  # what the primitive makes
        """Apply a step and append it to `steps`; return the axes or the tensor that it makes.

        Raises: ScheduleError where it does not fit this schedule, which then stays as it is.
        """
        stage = self.numbered(step.stage)
        if stage is None:
            raise ScheduleError(
                f"there is no stage {step.stage!r:.40}; the last is {len(self._numbered) - 1}"
            )
        made = PRIMITIVES.get(step.primitive)
        if made is None:
            close = get_close_matches(step.primitive[:40], PRIMITIVES, 1)
            raise ScheduleError(
                f"there is no primitive {step.primitive!r:.40}",
                hint=f"do you mean {close[0]}?" if close else "",
            )
        result = made.apply(stage, *_arguments(stage, step, made.parameters))
        self.steps.append(step)
        return result

    def replay(self, steps: Iterable[Step], sizes: Iterable[Var] = ()) -> Schedule:
        """Apply steps that a schedule of the same tensors was made by; return this schedule.

        `sizes` are those that the steps name and no tensor has.

        Raises: ScheduleError that names the first step that does not fit; those before it stay.
        """
        self.sizes.add(sizes)
        for k, step in enumerate(steps):
            try:
                self.apply(step)
            except TreadleError as e:
                place = f"step {k}, {step}, {e.at}" if e.at else f"step {k}, {step}"
                raise ScheduleError(e.problem, at=place, hint=e.hint) from None
        return self

    def fresh(self) -> Schedule:
        """Return a schedule of the same tensors without any step."""
        return Schedule(self._declared)

    def to_json(self) -> str:
        """Return the steps as JSON, which te.steps_from_json reads."""
        return steps_to_json(self.steps)

    def as_python(self) -> str:
        """Return the steps as Python, which makes them again of a fresh schedule called `s`."""
        return python_script(self.fresh(), self.steps, self.sizes)

    # -- new stages ------------------------------------------------------------------------------

    def cache_write(self, tensor: Tensor, scope: Scope = "local") -> Tensor:
        """Compute `tensor` into a buffer of its own first; the tensor becomes a copy of it.

        before: C[i] = f(i)   ->   after: C.local[i] = f(i); C[i] = C.local[i]
        """
        made = self.do(self[tensor], "cache_write", tensor, scope)
        assert isinstance(made, Tensor)
        return made

    def cache_read(
        self,
        tensor: Tensor,
        scope: Scope,
        readers: Tensor | Operation | Iterable[Tensor | Operation],
    ) -> Tensor:
        """Let `readers` read a copy of `tensor` in memory `scope`.

        before: C[i] = f(A[i])   ->   after: A.shared[i] = A[i]; C[i] = f(A.shared[i])
        """
        made = self.do(self[tensor], "cache_read", tensor, scope, readers)
        assert isinstance(made, Tensor)
        return made

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Reduce in two steps: partial results along reduction loop `axis`, then over it.

        before: B[i] = sum(A[i, k], k) with k split into ko, ki
        after:  B.rf[ki, i] = sum(A[i, ko * f + ki], ko); B[i] = sum(B.rf[ki, i], ki)
        """
        made = self.do(self[tensor], "rfactor", tensor, axis, factor_axis)
        assert isinstance(made, Tensor)
        return made

    def add_before(self, stage: Stage, op: Operation) -> Stage:
        """Return a new stage, which is computed before another."""
        return self._add(op, self.stages.index(stage))

    def add_after(self, stage: Stage, op: Operation) -> Stage:
        """Return a new stage, which is computed after another."""
        return self._add(op, self.stages.index(stage) + 1)

    def replaced(self, stage: Stage, old: Operation) -> None:
        """Take note of a new operation of a stage; the old one still names the stage."""
        self._map(stage.op, stage)
        if old in self.outputs:
            self.outputs[self.outputs.index(old)] = stage.op

    def normalize(self) -> Schedule:
        """Return the schedule itself (kept for scripts that call it)."""
        return self


def _arguments(stage: Stage, step: Step, parameters: Sequence[Parameter]) -> list[object]:
    """Return what a step hands to its primitive."""
    needed = sum(p.default is REQUIRED for p in parameters)
    if not needed <= len(step.args) <= len(parameters):
        names = ", ".join(p.name for p in parameters) or "none"
        raise stage.error(
            f"{step.primitive} has {len(step.args)} arguments; they are {names}",
        )
    values: list[object] = []
    for k, p in enumerate(parameters):
        is_given = k < len(step.args) and not is_same(step.args[k], p.default)
        values.append(p.kind.read(stage, step.primitive, step.args[k]) if is_given else p.default)
    return values


def _size_vars(outputs: Sequence[Operation]) -> dict[Var, None]:
    """Return the sizes that tensors have or compute with, in order."""
    found: dict[Var, None] = {}
    for op in _producers_first(outputs):
        parts: list[Expr] = [d for t in op.outputs for d in t.shape]
        if isinstance(op, ComputeOp):
            parts += [e for a in op.reduce_axis for e in (a.start, a.extent)]
            parts += op.body
        found |= {v: None for e in parts for v in free_vars(e) if type(v) is Var}
    return found


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
