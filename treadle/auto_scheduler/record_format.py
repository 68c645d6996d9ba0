# SPDX-License-Identifier: Apache-2.0
"""Ansor's lines as records of Treadle's, and the way back.

Steps name stages and loops by their places, so a line says something only with the computation it
is of: the workload must be known, as a registered function or from the tasks of a model.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.auto_scheduler.hardware import HardwareParams
from treadle.auto_scheduler.outcome import error_no_of, error_of
from treadle.auto_scheduler.record_lines import Line, is_line, line_of
from treadle.auto_scheduler.step_reader import script_steps
from treadle.auto_scheduler.steps import ansor_steps
from treadle.auto_scheduler.workload import Workload, known_workload, workload_of_kernel
from treadle.build.kernel import Kernel, Scheduled
from treadle.build.records import Record
from treadle.errors import ConfigError, ScheduleError, TargetError
from treadle.expr.nodes import Var
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.choice import Script
from treadle.te.operations import Operation
from treadle.tune.foreign_records import NoMeaning, RecordFormat


def record_of_line(line: Line) -> Record:
    """Return the record that a line becomes.

    Raises:
        NoMeaning: its workload or target is not known, or a step does what there is not here.
        ConfigError: a step is none.
    """
    workload = known_workload(line.workload_key)
    if workload is None:
        raise NoMeaning(f"no workload is known as {line.workload_key:.80}")
    target = _target(line.target)
    scheduled = workload.scheduled(target)
    steps = script_steps(scheduled.schedule, outputs_of(scheduled), line.rows)
    error = "" if line.costs else error_of(line.error_no)
    return Record(workload.name, str(target), Script(steps), line.costs, error, space="sketch")


def line_of_record(record: Record) -> Line:
    """Return the line that a record becomes.

    Raises: NoMeaning where the workload of its kernel is not known, it has no time, or Ansor has no
        step for one of its schedule.
    """
    workload = workload_of_kernel(record.kernel)
    if workload is None:
        raise NoMeaning(f"the computation of kernel {record.kernel} is not known")
    if not record.seconds and not record.error:
        raise NoMeaning("a decision without a time has no form there")
    target = _target(record.target)
    scheduled = workload.scheduled(target)
    return Line(
        workload_key=workload.key,
        target=record.target,
        hardware=HardwareParams.of(target).numbers(),
        rows=tuple(_rows(workload, scheduled, target, record)),
        costs=record.seconds,
        error_no=error_no_of(record.error),
    )


def _rows(
    workload: Workload, scheduled: Scheduled, target: Target, record: Record
) -> list[list[object]]:
    try:
        if isinstance(record.choice, Script):
            steps = record.choice.steps
        else:
            cases = Kernel(workload.work, target, record.choice).scheduled
            if len(cases) != 1:
                raise NoMeaning("its schedule has cases of symbolic sizes")
            steps = tuple(cases[0].schedule.steps)
        return ansor_steps(scheduled.schedule, outputs_of(scheduled), steps)
    except (ConfigError, ScheduleError) as error:
        raise NoMeaning(f"its choice does not fit the kernel: {error.problem}") from None


def outputs_of(scheduled: Scheduled) -> list[Operation]:
    """Return the operations of the tensors that a kernel takes, in the order of its arguments."""
    return [a.op for a in scheduled.args if not isinstance(a, Var)]


def _target(text: str) -> Target:
    words = [w for w in text.split() if not w.startswith(("-link-params=", "-keys="))]
    try:
        target = parse_target(" ".join(words))
    except TargetError as error:
        raise NoMeaning(f"the target {text:.80} is not known: {error.problem}") from None
    if target.family != "cpu":
        raise NoMeaning(f"there are no sketches for {target.kind}")
    return target


def _record(data: Mapping[str, object]) -> Record:
    return record_of_line(line_of(data))


def _object(record: Record) -> Mapping[str, object]:
    return line_of_record(record).to_json()


ANSOR = RecordFormat("ansor", "Ansor", is_line, _record, _object)
"""The format `ansor` of `treadle records import` and `export`."""
