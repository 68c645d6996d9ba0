# SPDX-License-Identifier: Apache-2.0
"""The lines of Ansor's records, version 0.6 and before, as plain data that has been checked.

{"i": [[workload_key, target, [num_cores, vector_unit_bytes, cache_line_bytes,
 max_shared_memory_per_block, max_local_memory_per_block, max_threads_per_block,
 max_vthread_extent, warp_size], target_host, layout_rewrite_option, [input_names]], [[], [steps]]],
 "r": [[seconds, …], error_no, all_cost, timestamp], "v": "v0.6"}

Version 0.5 and before end the task after the hardware, or after the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from treadle.errors import ConfigError

VERSION = "v0.6"
_READ = ("v0.2", "v0.3", "v0.4", "v0.5", "v0.6")
_FIELDS = {"i", "r", "v"}
_FAILED_SECONDS = 1e10
"""What Ansor writes in place of a time where there is none."""
_MOST_FIGURES = 10_000
_MOST_HARDWARE = 16
_LAST_ERROR = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what was measured, and what it took.

    `hardware` are the eight numbers above, `rows` the steps as they stand there, `costs` the
    seconds of a call, none where `error_no` is not 0.
    """

    workload_key: str
    target: str
    hardware: tuple[int, ...]
    rows: tuple[object, ...]
    costs: tuple[float, ...]
    error_no: int = 0
    all_cost: float = 0.0
    timestamp: float = 0.0
    target_host: str = ""
    layout_rewrite: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the object of the line."""
        task = [self.workload_key, self.target, list(self.hardware), self.target_host,
                self.layout_rewrite, []]  # fmt: skip
        costs = list(self.costs) or [_FAILED_SECONDS]
        result = [costs, self.error_no, self.all_cost, self.timestamp]
        return {"i": [task, [[], list(self.rows)]], "r": result, "v": VERSION}


def is_line(data: Mapping[str, object]) -> bool:
    """Return whether an object is meant to be a line of Ansor."""
    return "i" in data and "r" in data


def line_of(data: Mapping[str, object]) -> Line:
    """Return what an object says; the steps are looked at where they are applied.

    Raises: ConfigError where it is no line of a version that is read.
    """
    if set(data) != _FIELDS:
        raise ConfigError('a line of Ansor has "i", "r" and "v", and nothing else')
    if data["v"] not in _READ:
        raise ConfigError(
            f"the version {str(data['v'])[:20]!r} is not read", hint=f"it is one of {_READ}"
        )
    task, state = _list(data["i"], "the input", 2, 2)
    names = _list(task, "the task", 2, 6)
    _, rows = _list(state, "the state", 2, 2)
    costs, error_no, all_cost, timestamp = _list(data["r"], "the result", 4, 4)
    hardware = _list(names[2], "the hardware", 0, _MOST_HARDWARE) if len(names) > 2 else []
    failed = _whole(error_no, _LAST_ERROR, "an error")
    figures = _list(costs, "the costs", 0, _MOST_FIGURES)
    return Line(
        workload_key=_text(names[0], "the workload"),
        target=_text(names[1], "the target"),
        hardware=tuple(_whole(n, 1 << 62, "a number of the hardware") for n in hardware),
        rows=tuple(_list(rows, "the steps", 0, 1 << 20)),
        costs=() if failed else tuple(_seconds(c) for c in figures),
        error_no=failed,
        all_cost=_number(all_cost, "the cost of a measurement"),
        timestamp=_number(timestamp, "the time of a measurement"),
        target_host=_text(names[3], "the host", may_be_empty=True) if len(names) > 3 else "",
        layout_rewrite=_whole(names[4], 3, "a layout option") if len(names) > 4 else 0,
    )


def _list(value: object, what: str, least: int, most: int) -> list[object]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ConfigError(f"{what} of a line is no list of {least} to {most} entries")
    return value


def _text(value: object, what: str, *, may_be_empty: bool = False) -> str:
    if value is None and may_be_empty:
        return ""
    if not isinstance(value, str) or (not value and not may_be_empty):
        raise ConfigError(f"{what} of a line is no text")
    return value


def _whole(value: object, most: int, what: str) -> int:
    if type(value) is not int or not -1 <= value <= most:
        raise ConfigError(f"{value!r:.40} is not {what}")
    return value


def _number(value: object, what: str) -> float:
    is_number = isinstance(value, (int, float)) and type(value) is not bool
    if not is_number or not math.isfinite(_float(value)):
        raise ConfigError(f"{what} is {value!r:.40}, no number")
    return _float(value)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # a number
    except OverflowError:
        return math.inf


def _seconds(value: object) -> float:
    found = _number(value, "a cost of a line")
    if found <= 0:
        raise ConfigError(f"a cost of a line is {found}, no time")
    return found
