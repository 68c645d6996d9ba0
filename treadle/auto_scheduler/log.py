# SPDX-License-Identifier: Apache-2.0
"""Logs: files of records that tuning appends to, and that all of this package reads.

A log is a file of Treadle's records, or the URL of a database of them, which
`treadle.compile(records=)` reads as well. Files of Ansor's lines are read where the workloads are
known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.record_format import ANSOR
from treadle.auto_scheduler.record_lines import is_line
from treadle.auto_scheduler.state import MeasureInput
from treadle.build.method_records import MethodRecord
from treadle.build.record_database import is_url
from treadle.build.records import Record, Records, read_lines
from treadle.errors import UsageError
from treadle.target.base import Target
from treadle.tune.foreign_records import Imported, import_records, objects_of
from treadle.tune.record_store import open_store

Name = str | os.PathLike[str]


def holds_ansor_lines(path: Name) -> bool:
    """Return whether the first line of a file is one of Ansor's; of no file it is not.

    Raises: ConfigError where the first line is no JSON object.
    """
    if not Path(path).exists():
        return False
    return any(is_line(data) for _, data in islice(objects_of(path), 1))


def read_log(path: Name) -> Imported:
    """Return the records of a log; of Ansor's lines also which have no meaning here, and why.

    Raises:
        UsageError: the file cannot be read.
        ConfigError: a line is no record; the error names file, line and cause.
    """
    if holds_ansor_lines(path):
        return import_records(path, [ANSOR])
    return Imported([r for r in Records.read(path) if isinstance(r, Record)])


def known_of(path: Name) -> list[Record]:
    """Return the records of a log to go on from: none where there is no such log yet.

    Raises: as `read_log`.
    """
    if is_url(path):
        open_store(path).close()  # which makes the table where there is none
    elif not Path(path).exists():
        return []
    return read_log(path).records


def records_of(path: Name, n_lines: int | None = None) -> Records:
    """Return what a log says of kernels and methods, or the first lines of it, for compilation.

    Raises: as `read_log`.
    """
    is_ansor = holds_ansor_lines(path)
    if n_lines is None and not is_ansor:
        return Records.read(path)
    found = Records()
    read = import_records(path, [ANSOR]).records if is_ansor else read_lines(path)
    for record in islice(read, n_lines):
        found.add(record)
    return found


def best_record(path: Name, kernel: str, target: Target | str) -> Record | None:
    """Return what a log decides of a kernel, else its fastest trial; None where there is neither.

    Raises: as `read_log`.
    """
    return records_of(path).best(kernel, target)


class RecordToFile:
    """Appends what is measured to a log; a callback of `TuningOptions`.

    Each record is whole or not there, whoever else writes to the file and whenever a process ends.

    Raises: UsageError where the file cannot be written, or holds lines of Ansor.
    """

    def __init__(self, filename: Name) -> None:
        if holds_ansor_lines(filename):
            raise UsageError(
                f"{os.fspath(filename)} holds records of Ansor, which Treadle reads and does not "
                "append to",
                hint="name another file, and give this one as load_log_file",
            )
        self.filename = os.fspath(filename)
        open_store(filename).close()  # which makes it, or says why not

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Append candidates that were measured elsewhere; tuning itself appends each at once."""
        for one, result in zip(inputs, results, strict=True):
            self.append(record_of(one, result))

    def append(self, record: Record | MethodRecord) -> None:
        """Append a record.

        Raises: UsageError where there is no room; the file is as it was then.
        """
        with closing(open_store(self.filename)) as file:
            file.append(record)


def record_of(one: MeasureInput, result: MeasureResult) -> Record:
    """Return what was measured of a candidate as a record."""
    return Record(
        one.task.name,
        str(one.task.target),
        one.state.choice,
        tuple(result.costs),
        result.error_msg or ("" if result.costs else "unknown error"),
        space="sketch",
        point=one.state.point,
    )


class Log:
    """What a run of the tuner reads and appends to, as the tuner sees it."""

    def __init__(self, read: Sequence[Name], written: Sequence[RecordToFile]) -> None:
        """`read` are logs to go on from; those that are `written` are gone on from, too."""
        self._read = [p for p in read if not any(_same(p, w.filename) for w in written)]
        self._written = written

    def read_new(self) -> list[Record]:
        """Return all records there are."""
        found = [r for path in self._read for r in known_of(path)]
        return found + [
            r for w in self._written for r in Records.read(w.filename) if isinstance(r, Record)
        ]

    def append(self, record: Record | MethodRecord) -> None:
        """Write a record to every file.

        Raises: UsageError where there is no room.
        """
        for callback in self._written:
            callback.append(record)

    def close(self) -> None:
        """Do nothing: files are their callbacks'."""


def _same(a: Name, b: Name) -> bool:
    return os.path.realpath(a) == os.path.realpath(b)
