# SPDX-License-Identifier: Apache-2.0
"""Records of measurements as lines of text, and files of them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from statistics import fmean

from treadle.autotvm.lines import Line, is_line, line_of
from treadle.autotvm.measure import MeasureInput, MeasureResult
from treadle.autotvm.runs import args_of_json
from treadle.autotvm.task import Task
from treadle.build.json_lines import value_of
from treadle.errors import ConfigError, TargetError, UsageError
from treadle.target.parse import parse_target
from treadle.tune.foreign_records import objects_of, write_lines


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """Return a measurement as a line of AutoTVM's, version 0.2, without its end.

    Raises: UsageError for a protocol other than "json".
    """
    if protocol != "json":
        raise UsageError(f"there is no protocol {protocol!r}", hint='records are written as "json"')
    return json.dumps(line_of_measurement(inp, result).to_json())


def line_of_measurement(inp: MeasureInput, result: MeasureResult) -> Line:
    """Return a measurement as a line."""
    costs = () if result.error_no else tuple(map(float, result.costs))
    return Line(
        str(inp.target), inp.task.name, inp.task.args, inp.config, costs, int(result.error_no),
        result.all_cost, result.timestamp,
    )  # fmt: skip


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult]:
    """Return the measurement of a line.

    Its task has a name and arguments; the template need not be there.

    Raises: ConfigError where it is no line of AutoTVM's; UsageError for a protocol other than
        "json"; TargetError where its target is not known.
    """
    if protocol != "json":
        raise UsageError(f"there is no protocol {protocol!r}", hint='records are read as "json"')
    data = value_of(row.encode())
    if not isinstance(data, dict) or not is_line(data):
        raise ConfigError("a record is not one of AutoTVM")
    return measurement_of(line_of(data))


def measurement_of(line: Line) -> tuple[MeasureInput, MeasureResult]:
    """Return the measurement of a line. Raises: TargetError where its target is not known."""
    target = parse_target(line.target)
    task = Task(line.task, args_of_json(line.args), target)
    costs = line.costs or (f"error {line.error_no}",)
    result = MeasureResult(costs, line.error_no, line.all_cost, line.timestamp)
    return MeasureInput(target, task, line.config), result


def lines_of_file(path: str | os.PathLike[str]) -> Iterator[tuple[str, Line]]:
    """Yield the place and the content of every line of a file.

    Raises: UsageError where it cannot be read; ConfigError naming the line that is none.
    """
    for at, data in objects_of(path):
        try:
            if not is_line(data):
                raise ConfigError("a record is not one of AutoTVM")
            yield at, line_of(data)
        except ConfigError as error:
            raise error.located(at) from None


def load_from_file(
    filename: str | os.PathLike[str],
) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Yield the measurements of a file; those for a target that is not known are left out.

    Raises: as `lines_of_file`.
    """
    for _, line in lines_of_file(filename):
        try:
            found = measurement_of(line)
        except TargetError:
            continue
        yield found


def pick_best(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str]) -> None:
    """Write the fastest line of each task and target of a file to another file.

    Raises: as `lines_of_file`; UsageError where the system refuses to write.
    """
    best: dict[tuple[str, str, str], Line] = {}
    for _, line in lines_of_file(in_file):
        key = (line.target, *line.key)
        if line.costs and (key not in best or _seconds(line) < _seconds(best[key])):
            best[key] = line
    write_lines(out_file, (line.to_json() for line in best.values()))


def _seconds(line: Line) -> float:
    return fmean(line.costs) if line.costs else math.inf
