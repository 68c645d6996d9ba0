# SPDX-License-Identifier: Apache-2.0
"""Records: choices kept for kernels, and what was measured of them, in a file of JSON lines.

A line is one object, for example

    {"version": 1, "kernel": "conv2d_nchwc_relu_0123456789ab", "target": "llvm -mcpu=znver5 …",
     "config": {"tile": [1, 14, 4]}, "seconds": [2.1e-4, 2.2e-4]}

`kernel` is the kernel's name, which holds a digest of its content: the same in every model. In
place of `config` a line may hold `steps`, a whole schedule. With `seconds` (a call, one figure per
repeat) or `error` it is a trial of a tuner; without, or with `chosen`, it is a decision. What
compilation takes for a kernel and target is the last decision, else the fastest trial. A line with
`call` in place of `kernel` is of a method (`method_records`): there only decisions count. So files
may be joined and appended to. A line that breaks off at the end of a file was being written when a
process died, and is passed over.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from treadle.build import record_database
from treadle.build.json_lines import (
    LONGEST_LINE,
    flag_of,
    is_torn,
    lines_of,
    optional_text,
    seconds_of,
    text_of,
    value_of,
)
from treadle.build.method_records import VERSION, MethodRecord, method_record, names_a_method
from treadle.errors import ConfigError, ScheduleError, UsageError
from treadle.files import replacing
from treadle.target.base import Target
from treadle.te.choice import Choice, choice_from_json, choice_to_json

_NEEDED = ("version", "kernel", "target")
_OPTIONAL = ("seconds", "error", "chosen", "space", "point", "compiler", "options", "workload")
_CHOICES = ("config", "steps")
_LONGEST_NAME = 60
_HINT = "records are what `treadle tune` and Records.write make; see docs/how-to/tune.md"


@dataclass(frozen=True, slots=True)
class Record:
    """What one kernel, by its name and the target as text, may be made by, and how fast it was.

    `seconds` are those of a call, one figure per repeat; `error` says why a trial has none.
    `space` and `point` are what the tuner needs to find a trial again: the kind of space and what
    the space says of the candidate. `compiler` and `options` are what the seconds hold for: the
    compiler's digest, and how they were measured. `workload` is the name of a user's template and a
    list of its arguments, where the kernel is of one. `at` is the place in a file, "" of none.
    """

    kernel: str
    target: str
    choice: Choice
    seconds: tuple[float, ...] = ()
    error: str = ""
    is_chosen: bool = False
    space: str = ""
    point: object = None
    compiler: str = ""
    options: str = ""
    workload: object = None
    at: str = field(default="", compare=False)

    @property
    def is_trial(self) -> bool:
        """True for a line that tells of a measurement, and decides nothing."""
        return bool(self.seconds or self.error) and not self.is_chosen

    @property
    def time(self) -> float:
        """The median of the seconds; infinite where there are none."""
        return statistics.median(self.seconds) if self.seconds else math.inf

    @property
    def key(self) -> tuple[str, str]:
        """Kernel and target: what a choice is made for."""
        return self.kernel, self.target

    def to_json(self) -> dict[str, object]:
        """Return what stands on its line."""
        found: dict[str, object] = dict(
            zip(_NEEDED, (VERSION, self.kernel, self.target), strict=True)
        )
        found |= choice_to_json(self.choice)
        extra = {
            "seconds": list(self.seconds), "error": self.error, "chosen": self.is_chosen,
            "space": self.space, "point": self.point, "compiler": self.compiler,
            "options": self.options, "workload": self.workload,
        }  # fmt: skip
        return found | {name: value for name, value in extra.items() if value}

    def line(self) -> bytes:
        """Return its line, the end included."""
        return json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False).encode() + b"\n"


class Records:
    """Records by kernel and target, in their order."""

    def __init__(self) -> None:
        self._decided: dict[tuple[str, str], Record] = {}
        self._trials: dict[tuple[str, str], list[Record]] = {}
        self._methods: dict[tuple[str, str], MethodRecord] = {}
        self._method_trials: dict[tuple[str, str], list[MethodRecord]] = {}

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Records:
        """Return the records of a file, or of the database that a URL names.

        Raises:
            UsageError: it cannot be read.
            ConfigError: a line is no record; the error names file, line and cause.
        """
        records = Records()
        for record in _read(path):
            records.add(record)
        return records

    def add(self, record: Record | MethodRecord) -> None:
        """Keep a record; a decision replaces an earlier one of its kernel or call, and target."""
        if isinstance(record, MethodRecord) and record.is_trial:
            self._method_trials.setdefault(record.key, []).append(record)
        elif isinstance(record, MethodRecord):
            self._methods.pop(record.key, None)
            self._methods[record.key] = record
        elif record.is_trial:
            self._trials.setdefault(record.key, []).append(record)
        else:
            self._decided.pop(record.key, None)
            self._decided[record.key] = record

    def over(self, other: Records) -> Records:
        """Return these records with those of others on what these say nothing of."""
        found = Records()
        known = {*self.kernels()}
        for record in other:
            if record.key not in known:
                found.add(record)
        for record in self:
            found.add(record)
        return found

    def put(self, kernel: str, target: Target, choice: Choice) -> None:
        """Decide what a kernel, by its name, is made by."""
        self.add(Record(kernel, str(target), choice))

    def put_method(self, call: str, target: Target, method: str) -> None:
        """Decide by which method calls of this text (`call_text`) are computed."""
        self.add(MethodRecord(call, str(target), method))

    def methods(self, target: Target | str) -> dict[str, MethodRecord]:
        """Return what is decided on methods for a target, by the texts of the calls."""
        return {call: r for (call, on), r in self._methods.items() if on == str(target)}

    def best(self, kernel: str, target: Target | str) -> Record | None:
        """Return the last decision on a kernel, else its fastest trial; None if there is neither.

        What was measured for another target never counts.
        """
        key = (kernel, str(target))
        if key in self._decided:
            return self._decided[key]
        trials = [t for t in self._trials.get(key, ()) if t.seconds]
        return min(trials, key=lambda t: t.time, default=None)

    def get(self, kernel: str, target: Target) -> Choice | None:
        """Return what a kernel is made by on a target, None if nothing is known of it."""
        found = self.best(kernel, target)
        return None if found is None else found.choice

    def trials(self, kernel: str, target: Target | str) -> list[Record]:
        """Return what was measured of a kernel, failures included, in order."""
        return list(self._trials.get((kernel, str(target)), ()))

    def kernels(self) -> list[tuple[str, str]]:
        """Return the kernels and targets there are records of."""
        return list(dict.fromkeys((*self._trials, *self._decided)))

    def method_records(self) -> list[MethodRecord]:
        """Return what is decided on methods, for all targets."""
        return list(self._methods.values())

    def calls(self) -> list[tuple[str, str]]:
        """Return the calls and targets of whose methods there are records."""
        return list(dict.fromkeys((*self._method_trials, *self._methods)))

    def method_trials(self, call: str, target: Target | str) -> list[MethodRecord]:
        """Return what was measured of the methods of a call, failures included, in order."""
        return list(self._method_trials.get((call, str(target)), ()))

    def __iter__(self) -> Iterator[Record | MethodRecord]:
        for trials in self._trials.values():
            yield from trials
        for tried in self._method_trials.values():
            yield from tried
        yield from self._decided.values()
        yield from self._methods.values()

    def __len__(self) -> int:
        trials = sum(map(len, self._trials.values()))
        trials += sum(map(len, self._method_trials.values()))
        return len(self._decided) + len(self._methods) + trials

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all records to a file, which appears when it is complete.

        Raises: UsageError where the system refuses to write.
        """
        with replacing(Path(path)) as file:
            for record in self:
                file.write(record.line())


def read_lines(path: str | os.PathLike[str], start: int = 0, first: int = 1) -> Iterator[Record]:
    """Yield the records of kernels in a file in order, those after the first `start` bytes.

    `first` is the number of the line that begins there, for errors.

    Raises: as `Records.read`.
    """
    found = _read(path, start, first)
    return (record for record in found if isinstance(record, Record))


def parsed_rows(rows: Iterable[record_database.Row], name: str) -> list[Record | MethodRecord]:
    """Return the records of the rows of a database, which is called `name`.

    Raises: ConfigError naming the row that is no record.
    """
    return [_parsed(line, f"{name}, row {number}") for number, line in rows]


def _read(
    path: str | os.PathLike[str], start: int = 0, first: int = 1
) -> Iterator[Record | MethodRecord]:
    if record_database.is_url(path):
        database = record_database.RecordDatabase.open(os.fspath(path))
        yield from parsed_rows(database.rows(), database.name)
        return
    try:
        with open(path, "rb") as file:
            file.seek(start)
            for number, line in enumerate(lines_of(file), start=first):
                at = f"{os.fspath(path)}, line {number}"
                if not line.strip() and len(line) <= LONGEST_LINE:
                    continue
                if is_torn(line):
                    return
                yield _parsed(line, at)
    except OSError as error:
        raise UsageError(
            f"the records {os.fspath(path)} cannot be read: {error.strerror}",
            hint="name a file that `treadle tune` or Records.write made",
        ) from None


def _parsed(line: bytes, at: str) -> Record | MethodRecord:
    """Return the record that a line holds.

    Raises: ConfigError where it is none, naming the place `at` and the cause.
    """
    try:
        return _record(value_of(line), at)
    except ConfigError as error:
        raise ConfigError(
            error.problem, at=error.located(at).at, hint=error.hint or _HINT
        ) from None


def _record(data: object, at: str) -> Record | MethodRecord:
    if not isinstance(data, dict):
        raise ConfigError("a record is an object", hint=_HINT)
    version = data.get("version")
    if type(version) is not int or version != VERSION:
        said = "has no version" if version is None else f"is of version {str(version)[:20]!r}"
        raise ConfigError(f"a record {said}", hint=f"this Treadle reads version {VERSION}")
    if names_a_method(data):
        return method_record(data, at)
    missing = [name for name in _NEEDED if name not in data]
    unknown = [name for name in data if name not in (*_NEEDED, *_CHOICES, *_OPTIONAL)]
    if missing or unknown:
        said = f"has no {missing[0]}" if missing else f"has a field {unknown[0][:_LONGEST_NAME]!r}"
        raise ConfigError(
            f"a record {said}", hint=f"its fields are {', '.join((*_NEEDED, *_CHOICES))}, …"
        )
    kernel, target = (text_of(name, data[name], _HINT) for name in ("kernel", "target"))
    return Record(
        kernel,
        target,
        _choice(data),
        seconds=seconds_of(data.get("seconds", []), _HINT),
        error=optional_text(data, "error", _HINT),
        is_chosen=flag_of("chosen", data.get("chosen", False), _HINT),
        space=optional_text(data, "space", _HINT),
        point=data.get("point"),
        compiler=optional_text(data, "compiler", _HINT),
        options=optional_text(data, "options", _HINT),
        workload=data.get("workload"),
        at=at,
    )


def _choice(data: dict[str, object]) -> Choice:
    """Return the choice of a line.

    Raises: ConfigError where there is none, or two.
    """
    given = [name for name in _CHOICES if name in data]
    if len(given) != 1:
        raise ConfigError(
            "a record has both config and steps" if given else "a record has no config",
            hint="it has the values of the knobs in config, or a whole schedule in steps",
        )
    try:
        return choice_from_json(data)
    except ScheduleError as error:
        raise ConfigError(error.problem, hint=error.hint) from None
