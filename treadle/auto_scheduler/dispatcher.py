# SPDX-License-Identifier: Apache-2.0
"""Compilation by the best of a log: a block in which `treadle.compile` reads it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice

from treadle.auto_scheduler.log import Name, record_of, records_of
from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.search_task import SearchTask
from treadle.auto_scheduler.state import MeasureInput, State
from treadle.auto_scheduler.workload import known_workload
from treadle.build.record_context import applied
from treadle.build.records import Records
from treadle.target.base import Target
from treadle.target.parse import parse_target


class ApplyHistoryBest:
    """Lets compilations in a `with` block take the best that a log has of each kernel.

    In place of a log, `records` may be pairs as `load_records` gives them; `n_lines` of it count.
    A record of another kernel or another target never counts, with `include_compatible` neither;
    `coverage` of what is compiled says which kernels have none, and what is nearest.

    Raises: as `log.read_log`.

    >>> with auto_scheduler.ApplyHistoryBest("log.jsonl"):
    ...     exe = treadle.compile("model.onnx")
    """

    def __init__(
        self,
        records: Name | Iterable[tuple[MeasureInput, MeasureResult]],
        n_lines: int | None = None,
        include_compatible: bool = False,
    ) -> None:
        if isinstance(records, (str, os.PathLike)):
            self.records = records_of(records, n_lines)
        else:
            self.records = Records()
            for one, result in islice(records, n_lines):
                self.records.add(record_of(one, result))
        self._stack = ExitStack()

    def __enter__(self) -> ApplyHistoryBest:
        self._stack.enter_context(applied(self.records))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def query(self, target: str | Target, workload_key: str) -> State | None:
        """Return the best of a workload for a target; None where there is none."""
        machine = parse_target(target) if isinstance(target, str) else target
        workload = known_workload(workload_key)
        record = None if workload is None else self.records.best(workload.name, machine)
        if record is None:
            return None
        task = SearchTask(workload_key=workload_key, target=machine)
        return State(task, record.choice, record.point)
