# SPDX-License-Identifier: Apache-2.0
"""Workloads: what tasks compute, under keys that records name them by.

A key is JSON text: `["matmul_add", 1024, "float32"]` is a call of a function that a user has
registered, `["conv2d_nchwc_relu_0123456789ab", [1, 3, 8, 8], …]` a kernel of a model with the
shapes of its arguments. The registry is of the process, as in TVM: a function and the tasks that
are made of it are found by name from records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from treadle.build.kernel import Kernel, Scheduled, Template
from treadle.errors import UsageError
from treadle.expr.nodes import int_value
from treadle.graph.nodes import Function
from treadle.target.base import Target
from treadle.te.operations import ComputeOp, PlaceholderOp, Tensor
from treadle.te.schedule import Schedule, create_schedule
from treadle.te.text import operations_text

TeFunction: TypeAlias = Callable[..., Sequence[Tensor]]
"""Returns the tensors that a kernel takes, inputs and outputs in calling order."""

_MOST_KEY = 100_000

WORKLOAD_FUNC_REGISTRY: dict[str, TeFunction] = {}
"""Functions of users by name."""
_KNOWN: dict[str, Workload] = {}
_BY_KERNEL: dict[str, Workload] = {}


@dataclass(frozen=True, eq=False)
class Workload:
    """A computation under its key: a fused function of a model, or tensors of a user's function."""

    key: str
    work: Function | Template

    def kernel(self, target: Target) -> Kernel:
        """Return its kernel for a target, by default; no code is made."""
        return Kernel(self.work, target)

    @cached_property
    def name(self) -> str:
        """The name of its kernel, under which records keep it."""
        return self.kernel(_any_target()).name

    def scheduled(self, target: Target) -> Scheduled:
        """Return a schedule of it without any step, and the arguments of the kernel."""
        made = self.kernel(target).scheduled[0]
        return Scheduled(made.schedule.fresh(), made.args, made.name)


def _any_target() -> Target:
    return Target("llvm")


def register_workload(
    func_name: str | TeFunction, f: TeFunction | None = None, override: bool = False
) -> Any:  # the function itself, or a decorator
    """Register a function under its own name, or another; a decorator with or without a name.

    The function takes plain values (numbers, text, lists of those) and returns the tensors of a
    kernel, inputs and outputs. With `override` another function may have had the name.

    Raises: UsageError where the name is taken.

    >>> @auto_scheduler.register_workload
    ... def matmul(n, m, k): ...
    """
    if callable(func_name):
        return _register(func_name.__name__, func_name, override)
    if f is not None:
        return _register(func_name, f, override)
    name = func_name
    return lambda function: _register(name, function, override)


def _register(name: str, function: TeFunction, override: bool) -> TeFunction:
    known = WORKLOAD_FUNC_REGISTRY.get(name)
    is_again = known is not None and _place(known) == _place(function)
    if known is not None and not is_again and not override:
        raise UsageError(
            f"the workload {name} has been registered already",
            hint="give another name, or override=True",
        )
    WORKLOAD_FUNC_REGISTRY[name] = function
    return function


def _place(function: TeFunction) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def make_workload_key(func: str | TeFunction, args: Sequence[object]) -> str:
    """Return the key of a call of a registered function.

    Raises: UsageError where it is not registered, or an argument cannot stand in a key.
    """
    name = func if isinstance(func, str) else _name_of(func)
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise UsageError(
            f"no workload is registered as {name}",
            hint="put @auto_scheduler.register_workload above the function",
        )
    return json.dumps([name, *map(_plain, args)])


def _name_of(function: TeFunction) -> str:
    found = (n for n, f in WORKLOAD_FUNC_REGISTRY.items() if f is function)
    return next(found, function.__name__)


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    item = getattr(value, "item", None)
    if callable(item):  # a number of NumPy
        return item()
    raise UsageError(
        f"{value!r:.60} cannot be an argument of a workload",
        hint="arguments are numbers, text, True, False, None and lists of them",
    )


def workload_of(key: str) -> Workload:
    """Return the workload of a key, made when it is first asked for.

    Raises: UsageError where nothing is known under it, or the function makes no kernel of it.
    """
    if key not in _KNOWN:
        name, *args = decoded_key(key)
        function = WORKLOAD_FUNC_REGISTRY.get(str(name))
        if function is None:
            raise UsageError(
                f"no workload is known as {key:.120}",
                hint="register its function, or extract the tasks of its model first",
            )
        keep(te_workload(key, str(name), list(function(*args))))
    return _KNOWN[key]


def decoded_key(key: str) -> list[object]:
    """Return a name and arguments.

    Raises: UsageError where a key has none.
    """
    try:
        found = json.loads(key) if len(key) <= _MOST_KEY else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise UsageError(
            f"{key!r:.80} is no key of a workload", hint="a key is JSON text: '[\"name\", 1, 2]'"
        )
    return found


def keep(workload: Workload) -> Workload:
    """Let a workload be found by its key and by the name of its kernel."""
    _KNOWN[workload.key] = workload
    _BY_KERNEL[workload.name] = workload
    return workload


def workload_of_kernel(name: str) -> Workload | None:
    """Return the workload whose kernel has a name; None where none is known."""
    return _BY_KERNEL.get(name)


def known_workload(key: str) -> Workload | None:
    """Return the workload of a key if it is known, or can be made."""
    try:
        return workload_of(key)
    except UsageError:
        return None


def model_workload(kernel: Kernel, shapes: Sequence[Sequence[int]]) -> Workload:
    """Return the workload of a kernel of a model, which is known from now on."""
    key = json.dumps([kernel.name, *map(list, shapes)])
    return keep(Workload(key, kernel.function))


# -- tensors of users ------------------------------------------------------------------------------


def te_workload(key: str, name: str, tensors: Sequence[Tensor]) -> Workload:
    """Return the workload of the tensors that a user's function has made.

    Raises: UsageError where they are no tensors of known sizes, or none is computed.
    """
    _check(name, tensors)
    schedule = plain_schedule(tensors)
    text = operations_text(stage.op for stage in schedule.stages)
    order = [schedule.stages.index(schedule[t]) for t in tensors]
    digest = hashlib.sha256(f"{text}\n{order}".encode()).hexdigest()
    symbol = f"{name}_{digest[:12]}"

    def make(_knobs: object) -> Scheduled:
        return Scheduled(schedule.fresh(), tuple(tensors), symbol)

    return Workload(key, Template(symbol, make))


def plain_schedule(tensors: Sequence[Tensor]) -> Schedule:
    """Return a schedule of the tensors of a kernel without any step."""
    return create_schedule([t for t in tensors if not isinstance(t.op, PlaceholderOp)])


def _check(name: str, tensors: Sequence[Tensor]) -> None:
    given: Sequence[object] = tensors
    strange = [t for t in given if not isinstance(t, Tensor)]
    if strange or not tensors:
        raise UsageError(
            f"the workload {name} returns {strange[0]!r:.60}, which is no tensor"
            if strange
            else f"the workload {name} returns no tensors",
            hint="return the tensors of the kernel, inputs and outputs: [A, B, C]",
        )
    computed = [t for t in tensors if isinstance(t.op, ComputeOp)]
    if not computed:
        raise UsageError(
            f"the workload {name} computes nothing", hint="return the results, too: [A, B, C]"
        )
    for tensor in tensors:
        if any(int_value(d) is None for d in tensor.shape):
            raise UsageError(
                f"tensor {tensor.name} of the workload {name} has a size that is not known",
                hint="a workload is tuned for sizes that are numbers",
            )
