# SPDX-License-Identifier: Apache-2.0
"""Records in the formats of other projects: JSON lines that become records, and the way back.

A format is one `RecordFormat`. What a line says in it may have no meaning here: such lines are left
out and told of. A line that is not of the format at all is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from treadle.build.json_lines import is_torn, lines_of, value_of
from treadle.build.method_records import MethodRecord
from treadle.build.records import Record
from treadle.errors import ConfigError, UsageError
from treadle.files import replacing

Object: TypeAlias = Mapping[str, object]


class NoMeaning(Exception):  # the message says why
    """A line or a record is well-formed, and the other side has nothing that it could be of."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The lines of one project.

    `is_line` says of an object whether it is meant to be one of them; `record` makes a record of
    it, `line` an object of a record. Both raise NoMeaning for what the other side does not have;
    `record` raises ConfigError for what is no line of the format.
    """

    name: str
    title: str
    is_line: Callable[[Object], bool]
    record: Callable[[Object], Record]
    line: Callable[[Record], Object]


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was left out: its place, and why."""

    at: str
    reason: str


@dataclass(slots=True)
class Imported:
    """The records of a file, and the lines of it that have no meaning here."""

    records: list[Record] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(slots=True)
class Exported:
    """The lines that records become, and the records that have no form there."""

    lines: list[Object] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def objects_of(path: str | os.PathLike[str]) -> Iterator[tuple[str, Object]]:
    """Yield the place and the object of every line of a file; empty lines are passed over.

    A last line that breaks off was being written when a process died, and is passed over.

    Raises:
        UsageError: the file cannot be read.
        ConfigError: a line is no JSON object; the error names its number.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(lines_of(file), start=1):
                at = f"{os.fspath(path)}, line {number}"
                if not line.strip():
                    continue
                if is_torn(line):
                    return
                try:
                    data = value_of(line)
                except ConfigError as error:
                    raise error.located(at) from None
                if not isinstance(data, dict):
                    raise ConfigError("a record is an object", at=at)
                yield at, data
    except OSError as error:
        raise UsageError(
            f"the records {os.fspath(path)} cannot be read: {error.strerror}",
            hint="name a file of JSON lines",
        ) from None


def import_records(path: str | os.PathLike[str], formats: Sequence[RecordFormat]) -> Imported:
    """Return the records that the lines of a file become, each in the format that it is of.

    Raises: as `objects_of`; ConfigError also where a line is of none of the formats, or not
        well-formed in its own.
    """
    found = Imported()
    for at, data in objects_of(path):
        form = next((f for f in formats if f.is_line(data)), None)
        if form is None:
            names = " or ".join(f.title for f in formats)
            raise ConfigError(f"a record is not one of {names}", at=at)
        try:
            found.records.append(replace(form.record(data), at=at))
        except NoMeaning as why:
            found.skipped.append(Skipped(at, str(why)))
        except ConfigError as error:
            raise error.located(at) from None
    return found


def export_records(records: Iterable[Record | MethodRecord], form: RecordFormat) -> Exported:
    """Return records as objects of a format."""
    found = Exported()
    for record in records:
        if isinstance(record, MethodRecord):
            found.skipped.append(Skipped(record.at, "a method of a call has no form there"))
            continue
        try:
            found.lines.append(form.line(record))
        except NoMeaning as why:
            found.skipped.append(Skipped(record.at or record.kernel, str(why)))
    return found


def write_lines(path: str | os.PathLike[str], lines: Iterable[Object]) -> None:
    """Write objects as JSON lines to a file, which appears when it is complete.

    Raises: UsageError where the system refuses to write.
    """
    with replacing(Path(path)) as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
