# SPDX-License-Identifier: Apache-2.0
"""AutoTVM's lines as records of Treadle's, and the way back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from treadle.autotvm.entity import ConfigEntity, plain_value
from treadle.autotvm.lines import Line, is_line, line_of
from treadle.autotvm.runs import TASK_TABLE, Arg, TemplateFn, args_of_json
from treadle.autotvm.task import Task
from treadle.build.records import Record
from treadle.errors import ConfigError, TargetError, TreadleError
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.choice import Script
from treadle.te.knobs import Config
from treadle.tune.define import Plain
from treadle.tune.foreign_records import NoMeaning, RecordFormat

_KERNEL = re.compile(r"\w+_[0-9a-f]{12}(_\d+)?")
"""The names of the kernels of models: a digest of what they compute."""
_UNKNOWN_ERROR = 8
_KEPT_TASKS = 64


def record_of_line(line: Line) -> Record:
    """Return the record that a line becomes.

    Raises: NoMeaning where its task, its target or what was chosen is none of Treadle's.
    """
    return _template_record(line) if line.task in TASK_TABLE else kernel_record(line)


def kernel_record(line: Line) -> Record:
    """Return the record that a line of the kernel of a model becomes.

    Raises: NoMeaning where it is of something else.
    """
    if not _KERNEL.fullmatch(line.task):
        raise NoMeaning(f"no template is named {line.task!r:.80}")
    values: dict[str, object] = {}
    for name, entity in line.config.entities:
        if not isinstance(entity, Plain):
            raise NoMeaning(f"{line.task} is a kernel of a model; its choices are of kind 'ot'")
        values[name] = plain_value(entity)
    return _record_with(line, line.task, _target_of(line), Config.of(values))


def _template_record(line: Line) -> Record:
    target = _target_of(line)
    try:
        task = _task(TASK_TABLE[line.task], line.task, args_of_json(line.args), target)
        config = task.config_space.config(line.config)
    except TreadleError as error:
        problem = error.problem
    except (TypeError, ValueError) as error:
        problem = str(error)
    else:
        workload = [task.name, json.loads(json.dumps(task.args))]
        return _record_with(line, task.kernel_name, target, config, workload)
    raise NoMeaning(f"it does not fit the template {line.task!r}: {problem}")


@lru_cache(maxsize=_KEPT_TASKS)
def _task(_: TemplateFn, name: str, args: tuple[Arg, ...], target: Target) -> Task:
    """Return a task; the lines of a file are of few, whose spaces are made once."""
    return Task(name, args, target)


def _target_of(line: Line) -> Target:
    try:
        return parse_target(line.target)
    except TargetError as error:
        raise NoMeaning(f"the target {line.target!r:.80} is not known: {error.problem}") from None


def _record_with(
    line: Line, kernel: str, target: Target, config: Config, workload: object = None
) -> Record:
    failure = "" if line.costs else f"error {line.error_no} of AutoTVM"
    return Record(
        kernel,
        str(target),
        config,
        line.costs,
        failure,
        space="template",
        point=config.to_json(),
        workload=workload,
    )


def line_of_record(record: Record) -> Mapping[str, object]:
    """Return the object of the line that a record becomes.

    Raises: NoMeaning where it has no time, holds a whole schedule, or is of a template that is not
        there.
    """
    if isinstance(record.choice, Script):
        raise NoMeaning("a whole schedule has no form there")
    if not record.seconds and not record.error:
        raise NoMeaning("a decision without a time has no form there")
    name, args, config = record.kernel, (), _plain(record.choice)
    if record.workload is not None:
        task = _task_of(record)
        name, args = task.name, task.args
        try:
            config = task.config_space.entity(task.config_space.checked(record.choice))
        except TreadleError as error:
            raise NoMeaning(f"it does not fit the template {name!r}: {error.problem}") from None
    error_no = 0 if record.seconds else _UNKNOWN_ERROR
    line = Line(record.target, name, args, config, record.seconds, error_no, 0.0, 0.0)
    return line.to_json()


def _plain(config: Config) -> ConfigEntity:
    return ConfigEntity(None, tuple((name, Plain(value)) for name, value in config.values))


def _task_of(record: Record) -> Task:
    """Return the task of the template that a record is of."""
    workload: Any = record.workload  # what stands in a file
    is_one = isinstance(workload, list) and len(workload) == 2 and isinstance(workload[1], list)
    if not is_one or not isinstance(workload[0], str):
        raise NoMeaning("its workload is not the name of a template and a list of arguments")
    name, args = workload
    if name not in TASK_TABLE:
        raise NoMeaning(f"no template is named {name!r:.80}")
    try:
        return _task(TASK_TABLE[name], name, args_of_json(args), parse_target(record.target))
    except (ConfigError, TargetError) as error:
        raise NoMeaning(error.problem) from None


def _record(data: Mapping[str, object]) -> Record:
    return record_of_line(line_of(data))


AUTOTVM = RecordFormat("autotvm", "AutoTVM", is_line, _record, line_of_record)
"""The format `autotvm` of `treadle records import` and `export`."""
