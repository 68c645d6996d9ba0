# SPDX-License-Identifier: Apache-2.0
"""Contexts that say which configurations are applied: by templates, and by `treadle.compile`.

They nest: what the inner one does not know, the one around it is asked for. Each thread has its
own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from statistics import fmean
from typing import Any, TypeAlias

from treadle.autotvm.entity import ConfigEntity
from treadle.autotvm.lines import Line, args_text, is_line, line_of
from treadle.autotvm.measure import MeasureInput, MeasureResult
from treadle.autotvm.record import line_of_measurement
from treadle.autotvm.record_format import kernel_record
from treadle.autotvm.runs import TASK_TABLE
from treadle.autotvm.task import Task
from treadle.build.record_context import applied
from treadle.build.record_database import is_url
from treadle.build.records import Records
from treadle.errors import ConfigError, TargetError
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.define import Plain
from treadle.tune.foreign_records import NoMeaning, objects_of

Measurements: TypeAlias = Iterable[tuple[MeasureInput, MeasureResult]]
Source: TypeAlias = str | os.PathLike[str] | Records | Measurements
Workload = tuple[str, str]


class DispatchContext:
    """A block in which configurations are applied; this one knows none."""

    def __init__(self) -> None:
        self._outer: DispatchContext | None = None
        self._stack = ExitStack()

    @property
    def hides(self) -> bool:
        """Whether what contexts around it know does not count."""
        return False

    def records(self) -> Records | None:
        """Return what compilations in the block read, too; None hides the records around it."""
        return Records()

    def find(self, task: Task) -> Config | None:
        """Return the configuration of a task that this context knows."""
        return None

    def config_of(self, task: Task) -> Config:
        """Return the configuration of a task; the defaults where none is known."""
        found = self.find(task)
        if found is not None:
            return found
        return DEFAULTS if self._outer is None or self.hides else self._outer.config_of(task)

    def find_kernel(self, target: Target, workload: Sequence[Any]) -> ConfigEntity | None:
        """Return the configuration of a kernel of a model that this context knows."""
        return None

    def query(self, target: str | Target, workload: Sequence[Any]) -> ConfigEntity:
        """Return the configuration of a `task.workload`; the defaults where none is known.

        Raises: ConfigError where what is known does not fit the template.

        >>> print(autotvm.apply_history_best("tuning.log").query(task.target, task.workload))
        """
        machine = parse_target(target) if isinstance(target, str) else target
        if workload[0] in TASK_TABLE:
            task = Task(str(workload[0]), workload[1:], machine)
            space = task.config_space
            return space.entity(space.checked(self.config_of(task)))
        found = self.find_kernel(machine, workload)
        if found is not None:
            return found
        if self._outer is None or self.hides:
            return ConfigEntity(None, ())
        return self._outer.query(machine, workload)

    def __enter__(self) -> DispatchContext:
        self._outer = _CURRENT.get()
        stack = ExitStack()
        stack.enter_context(applied(self.records()))
        token = _CURRENT.set(self)
        stack.callback(_CURRENT.reset, token)
        self._stack = stack
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._outer = None


_CURRENT: ContextVar[DispatchContext | None] = ContextVar("dispatch context", default=None)


def best_config(task: Task) -> Config:
    """Return what the contexts around say of a task; the defaults where they know nothing.

    Raises: ConfigError where what they know does not fit the template.
    """
    current = _CURRENT.get()
    return DEFAULTS if current is None else current.config_of(task)


class FallbackContext(DispatchContext):
    """A block in which everything runs by its defaults, whatever the blocks around it say."""

    @property
    def hides(self) -> bool:
        """True."""
        return True

    def records(self) -> Records | None:
        """Return None: what is around the block does not count."""
        return None


class ApplyHistoryBest(DispatchContext):
    """A block in which the fastest measured configuration of every task is applied.

    `records` is a file of AutoTVM's lines or of Treadle's records, the URL of a database, a list of
    such, `Records`, or measurements as `load_from_file` gives them. More can be read with `load`.

    Raises: UsageError where a file cannot be read; ConfigError naming the line that is no record.

    >>> with autotvm.apply_history_best("tuning.log"):
    ...     exe = treadle.compile(model)
    """

    def __init__(self, records: Source | Iterable[str | os.PathLike[str]] | None) -> None:
        super().__init__()
        self._records = Records()
        self._best: dict[tuple[str, Workload], tuple[float, Line]] = {}
        if records is not None:
            self.load(records)

    def load(self, records: Source | Iterable[str | os.PathLike[str]]) -> None:
        """Take note of more records. Raises: as the class."""
        if isinstance(records, (str, os.PathLike)):
            self._load_file(records)
        elif isinstance(records, Records):
            for record in records:
                self._records.add(record)
        else:
            for one in records:
                if isinstance(one, (str, os.PathLike)):
                    self._load_file(one)
                else:
                    self._add(line_of_measurement(*one))

    def _load_file(self, path: str | os.PathLike[str]) -> None:
        first = None if is_url(path) else next((data for _, data in objects_of(path)), None)
        if is_url(path) or (first is not None and not is_line(first)):
            self.load(Records.read(path))
            return
        for at, data in objects_of(path):
            try:
                self._add(line_of(data))
            except ConfigError as error:
                raise error.located(at) from None

    def _add(self, line: Line) -> None:
        """Take note of a line; one of a target or of a kernel that is not Treadle's is left out."""
        if not line.costs:
            return
        try:
            target = str(parse_target(line.target))
        except TargetError:
            return
        key = (target, line.key)
        seconds = fmean(line.costs)
        if key not in self._best or seconds < self._best[key][0]:
            self._best[key] = (seconds, line)

    def records(self) -> Records | None:
        """Return what compilations in the block read: that which is of kernels of models."""
        found = Records()
        for _, line in self._best.values():
            try:
                found.add(kernel_record(line))
            except (NoMeaning, ConfigError):
                continue
        return self._records.over(found)

    def find(self, task: Task) -> Config | None:
        """Return the fastest configuration of a task, None where none was measured.

        Raises: ConfigError where it does not fit the template.
        """
        known = self._best.get((str(task.target), task.key))
        if known is not None:
            return task.config_space.config(known[1].config)
        choice = self._records.get(task.kernel_name, task.target)
        return choice if isinstance(choice, Config) else None

    def find_kernel(self, target: Target, workload: Sequence[Any]) -> ConfigEntity | None:
        """Return the fastest configuration of a kernel of a model, None where none was measured."""
        name = str(workload[0])
        known = self._best.get((str(target), (name, args_text(workload[1:]))))
        if known is not None:
            return known[1].config
        choice = self._records.get(name, target)
        if not isinstance(choice, Config):
            return None
        return ConfigEntity(None, tuple((knob, Plain(value)) for knob, value in choice.values))


apply_history_best = ApplyHistoryBest
"""v0.8's name of the context."""
