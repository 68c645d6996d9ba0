# SPDX-License-Identifier: Apache-2.0
"""Records: configurations kept for kernels, in a file of JSON lines that compilation reads.

A line is one object, for example

    {"version": 1, "kernel": "conv2d_nchwc_relu_0123456789ab", "target": "llvm -mcpu=znver5 …",
     "config": {"tile": [1, 14, 4]}}

`kernel` is the kernel's name, which holds a digest of its content: the same in every model. Of
lines for the same kernel and target the last counts, so that files may be joined or appended to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from treadle.errors import ConfigError, UsageError
from treadle.files import replacing
from treadle.target.base import Target
from treadle.te.knobs import Config

VERSION = 1
"""Of the lines; a reader refuses what it does not know."""

_FIELDS = ("version", "kernel", "target", "config")
_LONGEST_LINE = 1 << 20
_LONGEST_NAME = 60
_HINT = "records are what Records.write makes; see docs/how-to/tune_by_hand.md"


@dataclass(frozen=True, slots=True)
class Record:
    """A configuration of one kernel, by its name and the target as text."""

    kernel: str
    target: str
    config: Config

    def to_json(self) -> dict[str, object]:
        """Return what stands on its line."""
        values = (VERSION, self.kernel, self.target, self.config.to_json())
        return dict(zip(_FIELDS, values, strict=True))


class Records:
    """Configurations by kernel and target."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Record] = {}

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Records:
        """Return the records of a file.

        Raises:
            UsageError: it cannot be read.
            ConfigError: a line is no record; the error names file, line and cause.
        """
        records = Records()
        try:
            with open(path, "rb") as file:
                for number, line in enumerate(_lines(file), start=1):
                    if line.strip() or len(line) > _LONGEST_LINE:
                        records.add(_parsed(line, f"{os.fspath(path)}, line {number}"))
        except OSError as error:
            raise UsageError(
                f"the records {os.fspath(path)} cannot be read: {error.strerror}",
                hint="name a file that Records.write made",
            ) from None
        return records

    def add(self, record: Record) -> None:
        """Keep a record; it replaces an earlier one of its kernel and target."""
        key = (record.kernel, record.target)
        self._found.pop(key, None)
        self._found[key] = record

    def put(self, kernel: str, target: Target, config: Config) -> None:
        """Keep a configuration of a kernel, by its name."""
        self.add(Record(kernel, str(target), config))

    def get(self, kernel: str, target: Target) -> Config | None:
        """Return the configuration kept for a kernel on a target, None if there is none."""
        found = self._found.get((kernel, str(target)))
        return None if found is None else found.config

    def __iter__(self) -> Iterator[Record]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all records to a file, which appears when it is complete.

        Raises: UsageError where the system refuses to write.
        """
        with replacing(Path(path)) as file:
            for record in self:
                file.write(json.dumps(record.to_json(), ensure_ascii=False).encode() + b"\n")


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long so much that this shows."""
    while line := file.readline(_LONGEST_LINE + 1):
        yield line


def _parsed(line: bytes, at: str) -> Record:
    """Return the record that a line holds.

    Raises: ConfigError where it is none, naming the place `at` and the cause.
    """
    try:
        if len(line) > _LONGEST_LINE:
            raise ConfigError(f"a record is longer than {_LONGEST_LINE} bytes")
        return _record(json.loads(line.decode(), object_pairs_hook=_object))
    except ConfigError as error:
        raise error.located(at) from None
    except UnicodeDecodeError:
        cause = "it is not UTF-8"
    except RecursionError:
        cause = "it is nested too deeply"
    except ValueError as error:
        cause = str(error)
    raise ConfigError(f"a record is not a line of JSON: {cause}", at=at, hint=_HINT)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object.

    Raises: ConfigError where it has a key twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice[:_LONGEST_NAME]!r} stands twice in an object")
    return found


def _record(data: object) -> Record:
    if not isinstance(data, dict):
        raise ConfigError("a record is an object", hint=_HINT)
    version = data.get("version")
    if type(version) is not int or version != VERSION:
        said = "has no version" if version is None else f"is of version {str(version)[:20]!r}"
        raise ConfigError(f"a record {said}", hint=f"this Treadle reads version {VERSION}")
    missing = [name for name in _FIELDS if name not in data]
    unknown = [name for name in data if name not in _FIELDS]
    if missing or unknown:
        said = f"has no {missing[0]}" if missing else f"has a field {unknown[0][:_LONGEST_NAME]!r}"
        raise ConfigError(f"a record {said}", hint=f"its fields are {', '.join(_FIELDS)}")
    kernel, target = (_text(name, data[name]) for name in ("kernel", "target"))
    return Record(kernel, target, Config.from_json(data["config"]))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"the {name} of a record is no text", hint=_HINT)
    return value
