# SPDX-License-Identifier: Apache-2.0
"""What logs say was measured, as pairs of a candidate and what it took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.auto_scheduler.log import Name, RecordToFile, read_log
from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.search_task import SearchTask
from treadle.auto_scheduler.state import MeasureInput, State
from treadle.auto_scheduler.workload import workload_of_kernel
from treadle.build.records import Record
from treadle.target.base import Target
from treadle.target.parse import parse_target


def save_records(
    filename: Name, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]
) -> None:
    """Append what was measured of candidates to a file of records.

    Raises: as `RecordToFile`.
    """
    RecordToFile(filename).callback(None, list(inputs), list(results))


class RecordReader:
    """The lines of a log as pairs of what was measured and what it took.

    Those of workloads that are not known here are passed over, and decisions, which tell of no
    measurement.
    """

    def __init__(self, filename: Name) -> None:
        self.filename = filename

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        tasks: dict[tuple[str, str], SearchTask | None] = {}
        for record in read_log(self.filename).records:
            if record.key not in tasks:
                tasks[record.key] = task_of_record(record)
            task = tasks[record.key]
            if task is not None and record.is_trial:
                state = State(task, record.choice, record.point)
                yield MeasureInput(task, state), MeasureResult.of(record)

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Return the pairs as two lists, without the first `skip_lines`, at most `max_lines`."""
        pairs = list(self)[skip_lines:]
        kept = pairs if max_lines is None or max_lines < 0 else pairs[:max_lines]
        return [p[0] for p in kept], [p[1] for p in kept]


def load_records(filename: Name) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Yield what a log says was measured: see `RecordReader`."""
    return iter(RecordReader(filename))


def load_best_record(
    filename: Name,
    workload_key: str | None = None,
    target: str | Target | None = None,
    include_compatible: bool = False,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """Return the fastest trial of a log, of a workload and a target where they are given.

    (None, None) where there is none. A record of another target never counts, with
    `include_compatible` neither.

    Raises: as `read_log`.
    """
    wanted = None
    if target is not None:
        wanted = str(parse_target(target) if isinstance(target, str) else target)
    best: tuple[MeasureInput | None, MeasureResult | None] = (None, None)
    for one, result in load_records(filename):
        is_wanted = (workload_key in (None, one.task.workload_key)) and (
            wanted in (None, str(one.task.target))
        )
        if is_wanted and result.costs and (best[1] is None or result.mean < best[1].mean):
            best = one, result
    return best


def task_of_record(record: Record) -> SearchTask | None:
    """Return the task that a record is of; None where its workload is not known here."""
    workload = workload_of_kernel(record.kernel)
    if workload is None:
        return None
    return SearchTask(workload_key=workload.key, target=record.target)
