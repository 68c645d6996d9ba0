# SPDX-License-Identifier: Apache-2.0
"""Small tasks whose candidates behave in known ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.optimize.cases import function, var
from treadle import te
from treadle.build.compile import fused_model
from treadle.graph.nodes import Call, Module
from treadle.graph.operator import Group
from treadle.ops.matmul import matmul
from treadle.te.knobs import Knobs
from treadle.tune.task import Task, extract_tasks

ROWS = (1, 2, 4, 8)


def schedule(group: Group, _target: object, knobs: Knobs) -> None:
    """Rows in strips; one of the choices asks for the threads of a GPU."""
    result: Any = group.schedule[group.outputs[0]]
    rows = knobs.pick("rows", ROWS, cost=lambda r: abs(r - 4))
    result.split(result.op.axis[0], factor=rows)
    if knobs.flag("lanes", False):
        result.vectorize(result.op.axis[1])
    if knobs.flag("broken", False):
        result.bind(result.op.axis[1], te.thread_axis("threadIdx.x"))


def network(size: int = 16) -> Module:
    """A product whose schedule is of its user, and an element-wise operator after it."""
    params = [var("x", size, 8), var("y", 8, 8)]
    product = matmul(*params)
    assert isinstance(product, Call)
    own = replace(matmul, name="own_product", schedule={"cpu": schedule})  # type: ignore[type-var]
    return Module(function(replace(product, op=own), params=params))


def product_task(size: int = 16) -> Task:
    (task,) = extract_tasks(fused_model(network(size))).tasks
    return task
