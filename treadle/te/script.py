# SPDX-License-Identifier: Apache-2.0
"""Schedules printed as Python that a person can paste, edit and run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.primitives import PRIMITIVES, Parameter, is_same
from treadle.te.size_text import Sizes, identifier
from treadle.te.steps import Plain, Step

if TYPE_CHECKING:
    from treadle.te.schedule import Schedule


def python_script(schedule: Schedule, steps: Sequence[Step], sizes: Sizes) -> str:
    """Return steps as Python over `s`; they are applied to `schedule`, which is fresh.

    Raises: ScheduleError where a step does not fit the schedule.
    """
    schedule.sizes.add(sizes.names)
    script = _Script(schedule)
    for step in steps:
        script.step(step)
    return "\n".join([*script.header(), *script.lines])


class _Script:
    """The lines so far, and the variables they have given values."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.lines: list[str] = []
        self.taken: dict[str, object] = dict(schedule.sizes.by_name)
        self.tensors: dict[int, tuple[str, int]] = {}
        """The variable of a tensor of each stage, and which of its outputs that is."""
        self.axes: dict[IterVar, str] = {}
        self.inputs: dict[int, str] = {}

    def header(self) -> list[str]:
        """Return the lines that fetch what the others use."""
        text = "\n".join(self.lines)
        found = ["from treadle import te", ""] if "te." in text else []
        used = set(re.findall(r"\w+", text)) & self.schedule.sizes.own
        found += [f'{n} = s.sizes["{n}"]' for n in self.schedule.sizes.by_name if n in used]
        return [*found, *(self.inputs[k] for k in sorted(self.inputs))]

    # names

    def _named(self, wanted: str, value: object) -> str:
        name = identifier(wanted, self.taken)
        self.taken[name] = value
        return name

    def stage(self, number: int) -> str:
        """Return an expression for a stage."""
        return f"s[{self._variable(number)[0]}]"

    def _variable(self, number: int) -> tuple[str, int]:
        if number not in self.tensors:
            tensor = self.schedule.tensors[number]
            name = self._named(tensor.name, tensor)
            self.inputs[number] = f"{name} = s.tensors[{number}]"
            self.tensors[number] = (name, 0)
        return self.tensors[number]

    def tensor(self, number: int, output: int) -> str:
        """Return an expression for a tensor that a stage makes."""
        name, held = self._variable(number)
        return name if output == held else f"{name}.op.output({output})"

    def axis(self, number: int, index: int) -> str:
        """Return the variable that holds an axis of a stage."""
        stage = self.schedule.numbered(number)
        assert stage is not None
        axis = stage.all_iter_vars[index]
        if axis not in self.axes:
            assert isinstance(stage.op, ComputeOp)
            is_data = axis.kind != "reduce"
            field, axes = (
                ("axis", stage.op.axis) if is_data else ("reduce_axis", stage.op.reduce_axis)
            )
            left = ", ".join(self._axis_variable(number, a) for a in axes)
            self.lines.append(
                f"{left if len(axes) > 1 else f'({left},)'} = {self.stage(number)}.op.{field}"
            )
        return self.axes[axis]

    def _axis_variable(self, number: int, axis: IterVar) -> str:
        plain = identifier(axis.name, {})
        wanted = plain if plain not in self.taken else f"{self._variable(number)[0]}_{plain}"
        self.axes[axis] = self._named(wanted, axis)
        return self.axes[axis]

    # steps

    def step(self, step: Step) -> None:
        """Write a step, and apply it."""
        schedule, primitive = self.schedule, PRIMITIVES.get(step.primitive)
        stage = schedule.numbered(step.stage)
        call = ""
        if primitive is not None and stage is not None:
            pairs = zip(primitive.parameters, step.args, strict=False)
            shown = [self._argument(step, p, v) for p, v in pairs if not is_same(v, p.default)]
            owner = "s" if primitive.of_schedule else self.stage(step.stage)
            call = f"{owner}.{step.primitive}({', '.join(shown)})"
        made = schedule.apply(step)
        self.lines.append(f"{self._results(step.stage, made)}{call}")

    def _argument(self, step: Step, parameter: Parameter, value: Plain) -> str:
        stage = self.schedule.numbered(step.stage)
        assert stage is not None
        parameter.kind.read(stage, step.primitive, value)
        text = parameter.kind.python(self, stage, value)
        return f"{parameter.name}={text}" if parameter.is_keyword else text

    def _results(self, number: int, made: object) -> str:
        if isinstance(made, Tensor):
            stage = self.schedule[made]
            self.tensors[stage.number] = (self._named(made.op.name, made), made.value_index)
            return f"{self.tensors[stage.number][0]} = "
        axes = (
            [made] if isinstance(made, IterVar) else list(made) if isinstance(made, tuple) else []
        )
        names = [self._axis_variable(number, a) for a in axes]
        return f"{', '.join(names)} = " if names else ""
