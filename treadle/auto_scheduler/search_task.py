# SPDX-License-Identifier: Apache-2.0
"""Tasks in Ansor's words: a computation for a target, which can be tuned and whose best is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from treadle.auto_scheduler.compute_dag import ComputeDAG
from treadle.auto_scheduler.hardware import HardwareParams
from treadle.auto_scheduler.log import best_record
from treadle.auto_scheduler.measure import TuningOptions
from treadle.auto_scheduler.state import State
from treadle.auto_scheduler.tuning import tune_task
from treadle.auto_scheduler.workload import (
    TeFunction,
    Workload,
    keep,
    make_workload_key,
    te_workload,
    workload_of,
)
from treadle.build.kernel import Kernel, Template
from treadle.errors import UsageError
from treadle.expr.nodes import Var
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule
from treadle.tune.task import Task, task_of, template_task

if TYPE_CHECKING:
    from treadle.auto_scheduler.search_policy import SearchPolicy


class LayoutRewriteOption(IntEnum):
    """What Ansor does about the layout of constant weights.

    Treadle packs weights before there is a kernel, whatever is said here; the number stands in
    records.
    """

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


class SearchTask:
    """What is tuned: a registered function with its arguments, or a kernel of a model.

    `workload_key` names it in records, `desc` says in words what it is, `print(task.compute_dag)`
    shows what it computes, `target` is what it is compiled for.

    >>> task = auto_scheduler.SearchTask(func=matmul, args=(128, 128, 128), target="llvm")
    """

    def __init__(
        self,
        func: str | TeFunction | None = None,
        args: Sequence[object] | None = None,
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: str | Target | None = None,
        target_host: str | Target | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: int | None = None,
        task_inputs: object = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:
        """`func` with `args`, or `workload_key`, or that and `compute_dag` say what is computed.

        Raises: UsageError where none does, a workload is not known, or `task_inputs` is given:
            inputs are random numbers, and weights those of the model.
        """
        if task_inputs is not None or task_inputs_overwrite or task_inputs_save_to_file:
            raise UsageError(
                "task_inputs: a task is measured on random inputs, and a model's on its weights",
                hint="leave task_inputs out",
            )
        self.target = _target(target)
        check_host(target_host, self.target)
        self.workload = _workload(func, args, compute_dag, workload_key)
        self.hardware_params = hardware_params or HardwareParams()
        self.layout_rewrite_option = LayoutRewriteOption(layout_rewrite_option or 0)
        self.desc = desc or self.workload.name
        self.task = _task(self.workload, self.target)
        self.cold_weights = False
        self.compute_dag = ComputeDAG(_tensors(self.task.kernel), self.task.flops)

    @staticmethod
    def of_model(
        workload: Workload, task: Task, hardware_params: HardwareParams, *, cold_weights: bool
    ) -> SearchTask:
        """Return the task of a kernel of a model; `cold_weights` says how it is measured."""
        found = SearchTask(
            workload_key=workload.key, target=task.target, hardware_params=hardware_params
        )
        found.task = task
        found.cold_weights = cold_weights
        found.desc = " + ".join(task.origins) or workload.name
        return found

    @property
    def is_of_model(self) -> bool:
        """True for a kernel of a model, which has a default schedule of its operators."""
        return not isinstance(self.workload.work, Template)

    @property
    def workload_key(self) -> str:
        """What records name it by: JSON text."""
        return self.workload.key

    @property
    def name(self) -> str:
        """The name of its kernel."""
        return self.workload.name

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key}, {self.target})"

    def tune(
        self, tuning_options: TuningOptions, search_policy: SearchPolicy | None = None
    ) -> None:
        """Search for fast schedules, measure them and hand them to the callbacks of the options.

        Raises: UsageError where the target is not this machine, or there is nothing to measure.
        """
        tune_task(self, tuning_options, search_policy)

    def best_state(self, log_file: str | os.PathLike[str]) -> State:
        """Return the fastest candidate of a log.

        Raises: UsageError where it has none of this task for this target.
        """
        record = best_record(log_file, self.name, self.target)
        if record is None:
            raise UsageError(
                f"{os.fspath(log_file)} has no schedule of {self.workload_key:.120} for "
                f"{self.target}",
                hint="tune the task into this file first",
            )
        return State(self, record.choice)

    def apply_best(
        self,
        log_file: str | os.PathLike[str],
        include_compatible: bool = False,
        layout_rewrite_option: int | None = None,
    ) -> tuple[Schedule, list[Tensor | Var]]:
        """Return the schedule of the fastest candidate of a log, and the kernel's arguments.

        `treadle.build(schedule, args, task.target)` makes it run. A record of another target is
        never applied, with `include_compatible` neither.

        Raises: UsageError where the log has none of this task for this target.
        """
        made = self.best_state(log_file).scheduled()
        return made.schedule, list(made.args)

    def print_best(self, log_file: str | os.PathLike[str], print_mode: str = "schedule") -> str:
        """Return the fastest candidate of a log as text, to be printed.

        `print_mode` is "schedule" (Python), "loops", "source" (what the back end compiles), "asm",
        or "cuda", the source for a GPU.

        Raises: UsageError where there is no such text, or the log has none of this task.
        """
        modes = {
            "schedule": lambda k: str(k.schedule),
            "loops": Kernel.loop_text,
            "source": Kernel.source,
            "asm": Kernel.asm,
        }
        if print_mode == "cuda":
            raise UsageError(
                f"there is no CUDA source of a task for {self.target.kind}",
                hint='print_mode="source" is the source of this target',
            )
        if print_mode not in modes:
            raise UsageError(
                f"print_mode is {print_mode!r:.40}", hint=f"it is one of {', '.join(modes)}"
            )
        return modes[print_mode](self.best_state(log_file).kernel())


def _target(target: str | Target | None) -> Target:
    if target is None:
        raise UsageError("a task has no target", hint='give one: target="llvm" is this machine')
    return parse_target(target) if isinstance(target, str) else target


def check_host(host: str | Target | None, target: Target) -> None:
    """Raise UsageError where the host is another machine than the target, a CPU."""
    found = parse_target(host) if isinstance(host, str) else host
    if found is not None and found.triple != target.triple:
        raise UsageError(
            f"target_host is for {found.triple}, the target for {target.triple}",
            hint="leave target_host out: kernels for a CPU run on that CPU",
        )


def _workload(
    func: str | TeFunction | None,
    args: Sequence[object] | None,
    dag: ComputeDAG | None,
    key: str | None,
) -> Workload:
    if func is not None:
        return workload_of(make_workload_key(func, list(args or ())))
    if key is None:
        raise UsageError("a task has no computation", hint="give func and args, or workload_key")
    return workload_of(key) if dag is None else keep(te_workload(key, "computation", dag.tensors))


def _task(workload: Workload, target: Target) -> Task:
    if isinstance(workload.work, Template):
        dag = ComputeDAG(_tensors(workload.kernel(target)))
        return template_task(workload.work, target, dag.flop_ct)
    return task_of(workload.kernel(target))


def _tensors(kernel: Kernel) -> list[Tensor]:
    return [a for a in kernel.scheduled[0].args if isinstance(a, Tensor)]
