# SPDX-License-Identifier: Apache-2.0
"""Where a tuner keeps its records: a file, or the table of a database that many machines share."""

from __future__ import annotations

import os
from typing import Protocol

from treadle.build.method_records import MethodRecord
from treadle.build.record_database import RecordDatabase, is_url
from treadle.build.records import Record, parsed_rows
from treadle.tune.record_file import RecordFile


class RecordStore(Protocol):
    """Takes records one by one, from any number of processes at the same time."""

    def close(self) -> None:
        """Let go of it."""

    def read_new(self) -> list[Record]:
        """Return the records of kernels appended since the last call, by whoever did it.

        Raises: ConfigError naming what is no record; UsageError where it cannot be read.
        """

    def append(self, record: Record | MethodRecord) -> None:
        """Write one record at the end, whole or not at all.

        Raises: UsageError where it cannot be written.
        """


class RecordTable:
    """A store of records in a database."""

    def __init__(self, url: str) -> None:
        """Open the table, or make it.

        Raises: as `RecordDatabase.open`.
        """
        self._database = RecordDatabase.open(url, make=True)
        self._seen = 0

    def close(self) -> None:
        """Do nothing: no connection outlives a call."""

    def read_new(self) -> list[Record]:
        """Return the records of kernels in the rows after those that were read."""
        rows = self._database.rows(self._seen)
        found = parsed_rows(rows, self._database.name)
        self._seen = rows[-1][0] if rows else self._seen
        return [record for record in found if isinstance(record, Record)]

    def append(self, record: Record | MethodRecord) -> None:
        """Write a row."""
        self._database.append([record.line()])


def open_store(where: str | os.PathLike[str]) -> RecordStore:
    """Open a file or a database of records for appending; it is made where there is none.

    Raises: UsageError where it cannot be opened.
    """
    return RecordTable(os.fspath(where)) if is_url(where) else RecordFile(where)
