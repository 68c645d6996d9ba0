# SPDX-License-Identifier: Apache-2.0
"""Tasks: the kernels of a model, and computations whose schedules are templates of the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.autotvm.entity import ConfigEntity
from treadle.autotvm.lines import args_text
from treadle.autotvm.runs import Arg, kernel_name, run_template, serialize_args, template_of
from treadle.autotvm.space import ConfigSpace
from treadle.build.compile import fused_model
from treadle.build.kernel import Scheduled, Template
from treadle.errors import UsageError
from treadle.expr.nodes import int_value
from treadle.graph.nodes import Call, Constant, Function, Module, Node, rewrite, topological
from treadle.graph.operator import Operator
from treadle.graph.types import tensor_type
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Knobs
from treadle.te.schedule import Schedule
from treadle.tune.define import Definitions
from treadle.tune.flops import flops_of
from treadle.tune.model import weights_are_cold
from treadle.tune.task import Task as EngineTask
from treadle.tune.task import extract_tasks, template_task

if TYPE_CHECKING:
    from treadle.frontend.onnx.files import AnyModel


class Task:
    """What is tuned: a computation and its arguments, for a target.

    `args` describe the arguments, tensors as ("TENSOR", shape, dtype). `cold_weights` says that the
    weights are those of a model that has more of them than the caches hold.
    """

    def __init__(
        self,
        name: str,
        args: Sequence[Arg],
        target: Target,
        kernel: EngineTask | None = None,
        *,
        cold_weights: bool = False,
    ) -> None:
        """`kernel` is that of a model; without one `name` is that of a template."""
        self.name = name
        self.args = tuple(args)
        self.kwargs: Mapping[str, object] = {}
        self.target = target
        self.cold_weights = cold_weights
        self._kernel = kernel

    @property
    def workload(self) -> tuple[Arg, ...]:
        """The name of the task and its arguments: what tells it from others."""
        return (self.name, *self.args)

    @property
    def key(self) -> tuple[str, str]:
        """The name of the task, and its arguments as text."""
        return self.name, args_text(self.args)

    @property
    def kernel_name(self) -> str:
        """The name that Treadle's records know it by."""
        return self.name if self._kernel is not None else kernel_name(self.name, self.args)

    @cached_property
    def engine(self) -> EngineTask:
        """The task as the engine knows it.

        Raises: UsageError where no template has the name, or it returns no schedule; what the
            template raises.
        """
        if self._kernel is not None:
            return self._kernel
        name, args = self.name, self.args
        made = run_template(name, args)
        stages = made.scheduled.schedule.fresh().stages
        flops = made.config.flop or flops_of(stage.op for stage in stages)

        def make(knobs: Knobs) -> Scheduled:
            return run_template(name, args, knobs).scheduled

        return template_task(Template(self.kernel_name, make), self.target, flops)

    @property
    def flop(self) -> float:
        """The operations of a call; a multiply-add counts two."""
        return float(self.engine.flops)

    @cached_property
    def config_space(self) -> ConfigSpace:
        """What there is to choose from."""
        if self._kernel is not None:
            return ConfigSpace(self._kernel.kernel.space, lambda config: Definitions(Knobs()))
        name, args = self.name, self.args
        return ConfigSpace(
            self.engine.kernel.space, lambda config: run_template(name, args, config).config
        )

    def instantiate(self, config: ConfigEntity | Choice = DEFAULTS) -> tuple[Schedule, list[Any]]:
        """Return the schedule of a configuration, and its arguments.

        Raises: ConfigError where it is none of the space.
        """
        choice = self.config_space.config(config) if isinstance(config, ConfigEntity) else config
        made = self.engine.candidate(choice).scheduled[-1]
        return made.schedule, list(made.args)

    def __repr__(self) -> str:
        return (
            f"Task(func_name={self.name}, args={self.args}, kwargs={{}}, workload={self.workload})"
        )


def create(
    task_name: str,
    args: Sequence[object],
    target: str | Target,
    target_host: str | Target | None = None,
) -> Task:
    """Return the task of a template with arguments.

    `target_host` is for scripts that give one: a CPU target is its own host.

    Raises: UsageError where there is no such template, or it returns no schedule; what the template
        raises.
    """
    template_of(task_name)
    task = Task(task_name, serialize_args(args), _target(target))
    _ = task.engine
    return task


def extract_from_program(
    mod: AnyModel | Module | Function,
    params: Mapping[str, Any] | None = None,
    target: str | Target = "llvm",
    target_host: str | Target | None = None,
    ops: Sequence[str | Operator[Any]] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[Task]:
    """Return the tasks of a model: its distinct kernels that leave something to choose.

    `mod` is what `treadle.compile` takes, or a function of a graph. `params` are values of inputs
    that are weights, by their names. `ops` limits the tasks to kernels with one of these operators,
    or of these names. The kernels with the most predicted time come first.

    Raises: as `treadle.compile`; UsageError where `params` name what is no input.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops, shapes=[shapes])


def extract_from_multiple_program(
    mods: Sequence[AnyModel | Module | Function],
    params: Sequence[Mapping[str, Any] | None],
    target: str | Target = "llvm",
    target_host: str | Target | None = None,
    ops: Sequence[str | Operator[Any]] | None = None,
    *,
    shapes: Sequence[Mapping[str, Sequence[int]] | None] | None = None,
) -> list[Task]:
    """Return the tasks of several models; a kernel that is in more than one is one task.

    Raises: as `extract_from_program`.
    """
    machine = _target(target)
    names = None if ops is None else {op if isinstance(op, str) else op.name for op in ops}
    found: dict[str, Task] = {}
    sizes = [None] * len(mods) if shapes is None else shapes
    for mod, weights, given in zip(mods, params, sizes, strict=True):
        fused = fused_model(_with_weights(mod, weights or {}), target=machine, shapes=given)
        is_cold = weights_are_cold(fused)
        for kernel in extract_tasks(fused).tasks:
            if names is None or not names.isdisjoint(_operators(kernel.function)):
                task = Task(kernel.name, _args(kernel), machine, kernel, cold_weights=is_cold)
                found.setdefault(kernel.name, task)
    return [task for task in found.values() if len(task.config_space) > 1]


def _with_weights(
    mod: AnyModel | Module | Function, weights: Mapping[str, Any]
) -> AnyModel | Module:
    """Return a model with some inputs as constants."""
    module = Module(mod) if isinstance(mod, Function) else mod
    if not weights:
        return module
    if not isinstance(module, Module):
        raise UsageError("a model that is read has its weights in it", hint="leave params out")
    inputs = {p.name: p for p in module.main.params}
    unknown = [name for name in weights if name not in inputs]
    if unknown:
        raise UsageError(
            f"params has {unknown[0]!r}, which is no input of the model",
            hint=f"its inputs are {', '.join(inputs)}",
        )
    values: dict[Node, Node] = {
        inputs[n]: Constant.of(np.asarray(w), origin=n) for n, w in weights.items()
    }
    main = rewrite(module.main, values.get)
    left = tuple(p for p in main.params if p not in values)
    return replace(module, main=Function(left, main.body, main.name, main.attrs))


def _operators(function: Function) -> set[str]:
    calls = (n for n in topological([function.body]) if isinstance(n, Call))
    return {c.op.name for c in calls}


def _args(kernel: EngineTask) -> list[Arg]:
    types = [tensor_type(p.type) for p in kernel.function.params]
    return [("TENSOR", tuple(int_value(d) for d in t.shape), t.dtype) for t in types]


def _target(target: str | Target) -> Target:
    return parse_target(target) if isinstance(target, str) else target
