# SPDX-License-Identifier: Apache-2.0
"""The tasks of a model in Ansor's words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treadle.auto_scheduler.hardware import HardwareParams
from treadle.auto_scheduler.search_task import SearchTask, check_host
from treadle.auto_scheduler.workload import model_workload
from treadle.build.compile import fused_model
from treadle.errors import UsageError
from treadle.expr.nodes import int_value
from treadle.files import replacing
from treadle.graph.nodes import (
    Call,
    Constant,
    Function,
    Module,
    Node,
    operands,
    topological,
    with_operands,
)
from treadle.graph.operator import Fusion, Operator
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.operations import Tensor
from treadle.tune.model import weights_are_cold
from treadle.tune.task import Task
from treadle.tune.task import extract_tasks as tasks_of

if TYPE_CHECKING:
    from treadle.frontend.onnx.files import AnyModel


def extract_tasks(
    mod: AnyModel | Module | Function,
    params: Mapping[str, np.ndarray] | None = None,
    target: str | Target = "llvm",
    target_host: str | Target | None = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | None = None,
    opt_level: int = 3,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[list[SearchTask], list[int]]:
    """Return the tasks of a model, and how often one run of it calls each.

    `mod` is an ONNX model in any of the forms that `treadle.compile` takes, a graph module or its
    main function; `params` are values of its inputs by name, for a graph without its weights.
    `shapes` gives sizes to inputs that leave them open. Tasks without a convolution, a product or a
    reduction are simple: left out unless `include_simple_tasks`. Kernels of which a size is not
    known are never tasks. `dump_workload_to_dag_log` names a file for the text of each task, as
    JSON by workload key.

    Raises: as `treadle.compile`; UsageError where `params` names no input.
    """
    machine = parse_target(target) if isinstance(target, str) else target
    check_host(target_host, machine)
    model = _with_params(mod, params or {})
    fused = fused_model(model, target=machine, shapes=shapes, opt_level=opt_level)
    cold = weights_are_cold(fused)
    tasks: list[SearchTask] = []
    weights: list[int] = []
    for task in tasks_of(fused).tasks:
        if not include_simple_tasks and not _is_complex(task):
            continue
        workload = model_workload(task.kernel, _shapes(task))
        params_of = hardware_params or HardwareParams()
        tasks.append(SearchTask.of_model(workload, task, params_of, cold_weights=cold))
        weights.append(task.uses)
    if dump_workload_to_dag_log is not None:
        _dump(Path(dump_workload_to_dag_log), tasks)
    return tasks, weights


def _with_params(
    mod: AnyModel | Module | Function, params: Mapping[str, np.ndarray]
) -> AnyModel | Module:
    """Return a model whose inputs of some names are constants."""
    if isinstance(mod, Function):
        mod = Module(mod)
    if not params:
        return mod
    if not isinstance(mod, Module):
        raise UsageError(
            "params are for a graph without its weights; an ONNX model holds its own",
            hint="leave params out, or give None",
        )
    main = mod.main
    names = {p.name for p in main.params}
    strange = sorted(set(params) - names)
    if strange:
        raise UsageError(
            f"params has {strange[0]!r:.60}, which is no input of the model",
            hint=f"its inputs are {', '.join(sorted(names))}",
        )
    made: dict[Node, Node] = {
        p: Constant.of(np.asarray(params[p.name])) for p in main.params if p.name in params
    }
    for node in topological([main.body]):
        if node not in made:
            made[node] = with_operands(node, [made[o] for o in operands(node)])
    left = tuple(p for p in main.params if p.name not in params)
    bound = Function(left, made[main.body], main.name, main.attrs)
    return Module(bound, mod.output_names, mod.name, mod.structures)


def _is_complex(task: Task) -> bool:
    calls = [n for n in topological([task.function.body]) if isinstance(n, Call)]
    kinds = (Fusion.ANCHOR, Fusion.REDUCE)
    return any(isinstance(c.op, Operator) and c.op.fusion in kinds for c in calls)


def _shapes(task: Task) -> list[list[int]]:
    """Return the shapes of what the kernel takes."""
    tensors = (a for a in task.kernel.scheduled[0].args if isinstance(a, Tensor))
    return [[int_value(d) or 0 for d in t.shape] for t in tensors]


def _dump(path: Path, tasks: Sequence[SearchTask]) -> None:
    with replacing(path) as file:
        found = {t.workload_key: str(t.compute_dag) for t in tasks}
        file.write(json.dumps(found, indent=1).encode() + b"\n")
