# SPDX-License-Identifier: Apache-2.0
"""AutoTVM's lines as records of Treadle's, and the way back."""

from __future__ import annotations

import re
from collections.abc import Mapping

from treadle.autotvm.entity import ConfigEntity, plain_value
from treadle.autotvm.lines import Line, is_line, line_of
from treadle.build.records import Record
from treadle.errors import TargetError
from treadle.target.parse import parse_target
from treadle.te.choice import Script
from treadle.te.knobs import Config
from treadle.tune.define import Plain
from treadle.tune.foreign_records import NoMeaning, RecordFormat

_KERNEL = re.compile(r"\w+_[0-9a-f]{12}(_\d+)?")
"""The names of the kernels of models: a digest of what they compute."""


def record_of_line(line: Line) -> Record:
    """Return the record that a line becomes.

    Raises: NoMeaning where its task or target is none of Treadle's.
    """
    if not _KERNEL.fullmatch(line.task):
        raise NoMeaning(f"no template is named {line.task!r:.80}")
    values: dict[str, object] = {}
    for name, entity in line.config.entities:
        if not isinstance(entity, Plain):
            raise NoMeaning(f"{line.task} is a kernel of a model; its knobs are of kind 'ot'")
        values[name] = plain_value(entity)
    return record_with(line, line.task, Config.of(values))


def record_with(line: Line, kernel: str, config: Config) -> Record:
    """Return the record of a kernel with the target and the times of a line."""
    try:
        target = str(parse_target(line.target))
    except TargetError as error:
        raise NoMeaning(f"the target {line.target!r:.80} is not known: {error.problem}") from None
    failure = "" if line.costs else f"error {line.error_no} of AutoTVM"
    return Record(
        kernel, target, config, line.costs, failure, space="template", point=config.to_json()
    )


def line_of_record(record: Record) -> Mapping[str, object]:
    """Return the object of the line that a record becomes.

    Raises: NoMeaning where it has no time, or holds a whole schedule.
    """
    if isinstance(record.choice, Script):
        raise NoMeaning("a whole schedule has no form there")
    if not record.seconds and not record.error:
        raise NoMeaning("a decision without a time has no form there")
    entities = tuple((name, Plain(value)) for name, value in record.choice.values)
    config = ConfigEntity(None, entities)
    error_no = 0 if record.seconds else 8
    line = Line(record.target, record.kernel, (), config, record.seconds, error_no, 0.0, 0.0)
    return line.to_json()


def _record(data: Mapping[str, object]) -> Record:
    return record_of_line(line_of(data))


AUTOTVM = RecordFormat("autotvm", "AutoTVM", is_line, _record, line_of_record)
"""The format `autotvm` of `treadle records import` and `export`."""
