# SPDX-License-Identifier: Apache-2.0
"""The lines of AutoTVM's records, version 0.2, as plain data that has been checked.

{"input": [target, task_name, args, kwargs], "config": {"index": 7, "code_hash": null,
 "entity": [["tile_x", "sp", [-1, 8]], …]}, "result": [[seconds, …], error_no, all_cost,
 timestamp], "version": 0.2, "tvm_version": "0.8.0"}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.autotvm.entity import ConfigEntity
from treadle.errors import ConfigError

VERSION = 0.2
TVM_VERSION = "0.8.0"
"""What the lines say: that of the users whose tools read them."""

FAILED_SECONDS = 1e9
"""The only time of a candidate that has failed."""

_FIELDS = ("input", "config", "result")
_MOST_FIGURES = 10_000
_UNKNOWN_ERROR = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what was measured and what it took.

    `args` are JSON: `["TENSOR", shape, dtype]` for a tensor. `costs` are seconds of a call; empty
    where `error_no` is not 0.
    """

    target: str
    task: str
    args: tuple[object, ...]
    config: ConfigEntity
    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float

    @property
    def key(self) -> tuple[str, str]:
        """The name of the task, and its arguments as text."""
        return self.task, args_text(self.args)

    def to_json(self) -> dict[str, object]:
        """Return the object of the line."""
        return {
            "input": [self.target, self.task, list(self.args), {}],
            "config": self.config.to_json_dict(),
            "result": [
                list(self.costs) or [FAILED_SECONDS], self.error_no, self.all_cost, self.timestamp
            ],
            "version": VERSION,
            "tvm_version": TVM_VERSION,
        }  # fmt: skip


def args_text(args: Sequence[object]) -> str:
    """Return arguments as text: equal for equal arguments."""
    return json.dumps(args)


def is_line(data: Mapping[str, object]) -> bool:
    """Return whether an object is meant to be a line of AutoTVM's."""
    return "input" in data and "config" in data


def line_of(data: Mapping[str, object]) -> Line:
    """Return what the object of a line says.

    Raises: ConfigError where it is none of version 0.2.
    """
    missing = [name for name in _FIELDS if name not in data]
    if missing:
        raise ConfigError(f"a record of AutoTVM has no {missing[0]}")
    if data.get("version") != VERSION:
        raise ConfigError(
            f"a record of AutoTVM is of version {str(data.get('version'))[:20]!r}",
            hint=f"version {VERSION} is read, which v0.8 writes",
        )
    target, task, args = _input(data["input"])
    config = ConfigEntity.from_json_dict(data["config"])
    costs, error_no, all_cost, timestamp = _result(data["result"])
    return Line(target, task, args, config, costs, error_no, all_cost, timestamp)


def _input(data: object) -> tuple[str, str, tuple[object, ...]]:
    if not isinstance(data, list) or len(data) != 4:
        raise ConfigError("the input of a record is target, task, arguments and keywords")
    target, task, args, kwargs = data
    if not isinstance(target, str) or not isinstance(task, str) or not task:
        raise ConfigError("the target and the task of a record are texts")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ConfigError("the arguments of a record are a list and an object")
    if kwargs:
        raise ConfigError("a record has arguments by keyword", hint="v0.8 never writes such")
    return target, task, tuple(args)


def _result(data: object) -> tuple[tuple[float, ...], int, float, float]:
    if not isinstance(data, list) or len(data) != 4 or not isinstance(data[0], list):
        raise ConfigError("the result of a record is costs, error, all cost and time")
    costs, error_no, all_cost, timestamp = data
    numbers = (*costs, all_cost, timestamp)
    if type(error_no) is not int or len(costs) > _MOST_FIGURES or not all(map(_is_time, numbers)):
        raise ConfigError("the result of a record has something else than times")
    failed = error_no != 0 or not costs or min(costs) >= FAILED_SECONDS or min(costs) <= 0
    if failed:
        return (), error_no or _UNKNOWN_ERROR, float(all_cost), float(timestamp)
    return tuple(map(float, costs)), 0, float(all_cost), float(timestamp)


def _is_time(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and type(value) is not bool
    return is_number and 0 <= value <= sys.float_info.max  # type: ignore[operator]  # is_number
