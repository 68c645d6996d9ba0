# SPDX-License-Identifier: Apache-2.0
"""Functions of users as templates.

>>> @autotvm.template("matmul")
... def matmul(n, m):
...     ...
...     config = autotvm.get_config()
...     config.define_split("tile_y", y, num_outputs=2)
...     yo, yi = config["tile_y"].apply(s, C, y)
...     return s, [A, B, C]
>>> task = autotvm.task.create("matmul", args=(64, 64), target="llvm")
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from treadle.autotvm.dispatcher import best_config
from treadle.autotvm.runs import TASK_TABLE, TemplateFn, run_template, serialize_args
from treadle.autotvm.task import Task
from treadle.errors import UsageError
from treadle.target.base import Target
from treadle.target.parse import parse_target


def template(task_name: str, func: TemplateFn | None = None) -> Any:  # a function, or a decorator
    """Register a function as a template; use it as a decorator, or give it `func`.

    The function returns a schedule and the tensors that its kernel takes, and defines what there is
    to choose with `get_config()`. A call of it makes what records say is best: those that
    `apply_history_best` applies, for the target of the block `with target:` it stands in, else for
    this machine; without records, the first candidate of all it defines.

    Raises: UsageError where another function has the name.
    """
    return _registered(task_name, func) if func is not None else lambda f: _registered(task_name, f)


def _registered(name: str, function: TemplateFn) -> TemplateFn:
    known = TASK_TABLE.get(name)
    if known is not None and _place_of(known) != _place_of(function):
        raise UsageError(
            f"there is a template {name!r} already", hint="give this one a name of its own"
        )
    TASK_TABLE[name] = function

    @wraps(function)
    def call(*args: Any) -> Any:
        task = Task(name, serialize_args(args), Target.current() or parse_target("llvm"))
        made = run_template(name, task.args, best_config(task)).scheduled
        return made.schedule, list(made.args)

    return call


def _place_of(function: TemplateFn) -> tuple[str, str]:
    return function.__module__, function.__qualname__
