# SPDX-License-Identifier: Apache-2.0
"""Runs of users' templates: their names and arguments, and the choices that a run makes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle import te
from treadle.autotvm.lines import args_text
from treadle.build.kernel import Scheduled
from treadle.errors import ConfigError, UsageError
from treadle.expr.nodes import Const, int_value
from treadle.te.knobs import DEFAULTS, Config, Knobs
from treadle.te.schedule import Schedule
from treadle.tune.define import Definitions

Arg: TypeAlias = Any  # a number, a text, a tuple of these, or ("TENSOR", shape, dtype)
TemplateFn = Callable[..., Any]
"""Returns a schedule and the tensors that its kernel takes."""

TASK_TABLE: dict[str, TemplateFn] = {}
"""The templates by their names, as operators have a table."""

_TENSOR = "TENSOR"
_CONFIG: ContextVar[Definitions | None] = ContextVar("config of the template", default=None)


def get_config() -> Definitions:
    """Return what the template that runs defines its choices with.

    Raises: UsageError outside of a template.
    """
    found = _CONFIG.get()
    if found is None:
        raise UsageError(
            "no template is running", hint="get_config() stands in a function with @template"
        )
    return found


@contextmanager
def _running(config: Definitions) -> Iterator[None]:
    token = _CONFIG.set(config)
    try:
        yield
    finally:
        _CONFIG.reset(token)


@dataclass(frozen=True, slots=True)
class Run:
    """A schedule that a template has made, and what it has chosen."""

    scheduled: Scheduled
    config: Definitions


def run_template(name: str, args: Sequence[Arg], choices: Knobs | Config = DEFAULTS) -> Run:
    """Run a template with arguments, tensors as `serialize_args` describes them.

    Raises: UsageError where there is none of the name, or it returns something else than a
        schedule and tensors; ConfigError where `choices` do not fit; what the template raises.
    """
    function = template_of(name)
    knobs = Knobs(choices) if isinstance(choices, Config) else choices
    config = Definitions(knobs)
    with _running(config):
        made = function(*map(_deserialized, args))
    if isinstance(choices, Config):
        knobs.check_known()
    if not isinstance(made, (tuple, list)) or len(made) != 2 or not isinstance(made[0], Schedule):
        raise UsageError(
            f"the template {name!r} returns {type(made).__name__}",
            hint="it returns a schedule and a list of the tensors that the kernel takes",
        )
    schedule, tensors = made
    _check_tensors(name, schedule, tensors)
    return Run(Scheduled(schedule, tuple(tensors), kernel_name(name, args)), config)


def _check_tensors(name: str, schedule: Schedule, tensors: Sequence[object]) -> None:
    """Raise UsageError unless a kernel can take the tensors that a template returns."""
    is_any_made = False
    for tensor in tensors:
        if isinstance(tensor, te.Tensor) and tensor not in schedule:
            raise UsageError(
                f"tensor {tensor.name} of the template {name!r} is not in its schedule"
            )
        is_any_made = is_any_made or (isinstance(tensor, te.Tensor) and schedule[tensor].is_output)
    if not is_any_made:
        raise UsageError(
            f"what the template {name!r} computes is not among its tensors",
            hint="return the schedule, and its inputs and outputs: s, [A, B, C]",
        )


def template_of(name: str) -> TemplateFn:
    """Return the template of a name. Raises: UsageError where there is none."""
    if name not in TASK_TABLE:
        there_is = ", ".join(sorted(TASK_TABLE)) or "none"
        raise UsageError(f"there is no template {name!r:.80}", hint=f"there is {there_is}")
    return TASK_TABLE[name]


def kernel_name(name: str, args: Sequence[Arg]) -> str:
    """Return the name that Treadle's records know a template with arguments by."""
    digest = hashlib.sha256(f"{name} {args_text(args)}".encode()).hexdigest()
    label = re.sub(r"\W+", "_", name)
    return f"{label}_{digest[:12]}"


def serialize_args(args: Sequence[object]) -> tuple[Arg, ...]:
    """Return arguments of a template as plain data: a tensor as ("TENSOR", shape, dtype).

    Raises: UsageError where one cannot stand in a record.
    """
    return tuple(_serialized(arg) for arg in args)


def _serialized(arg: object) -> Arg:
    if isinstance(arg, te.Tensor):
        return (_TENSOR, tuple(_size(d) for d in arg.shape), arg.dtype)
    if isinstance(arg, Const):
        return arg.value
    if isinstance(arg, (tuple, list)):
        return tuple(_serialized(part) for part in arg)
    if arg is None or isinstance(arg, (bool, int, float, str)):
        return arg
    raise UsageError(
        f"{type(arg).__name__} cannot be an argument of a template",
        hint="arguments are tensors of te, numbers, texts, and lists of these",
    )


def _size(dim: object) -> int:
    size = int_value(dim)  # type: ignore[arg-type]  # of a tensor's shape
    if size is None:
        raise UsageError(f"the size {dim} is known at run time only", hint="give a number")
    return int(size)


def _deserialized(arg: Arg) -> object:
    if isinstance(arg, tuple) and len(arg) == 3 and arg[0] == _TENSOR:
        return te.placeholder(arg[1], arg[2])
    return arg


def args_of_json(data: Sequence[object]) -> tuple[Arg, ...]:
    """Return arguments as they stand in a record, lists as tuples.

    Raises: ConfigError where one is no argument of a template.
    """
    if any(isinstance(part, Mapping) for part in data):
        raise ConfigError("the arguments of a record hold an object")
    return tuple(args_of_json(part) if isinstance(part, list) else part for part in data)
