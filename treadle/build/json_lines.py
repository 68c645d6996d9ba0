# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines that others may have written: every line is checked before it is believed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import IO

from treadle.errors import ConfigError

LONGEST_LINE = 1 << 20
"""Bytes of a line."""
_LONGEST_NAME = 60
_MOST_FIGURES = 10_000


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long so much that this shows."""
    while line := file.readline(LONGEST_LINE + 1):
        yield line


def value_of(line: bytes) -> object:
    """Return what a line says.

    Raises: ConfigError where it is too long, not JSON, or has a key twice in an object.
    """
    if len(line) > LONGEST_LINE:
        raise ConfigError(f"a record is longer than {LONGEST_LINE} bytes")
    try:
        return json.loads(line.decode(), object_pairs_hook=_object)
    except UnicodeDecodeError:
        cause = "it is not UTF-8"
    except RecursionError:
        cause = "it is nested too deeply"
    except ValueError as error:
        cause = str(error)
    raise ConfigError(f"a record is not a line of JSON: {cause}")


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


# ---- fields of records ---------------------------------------------------------------------------


def seconds_of(data: object, hint: str) -> tuple[float, ...]:
    """Return a list of times. Raises: ConfigError where it is none."""
    is_list = isinstance(data, list) and len(data) <= _MOST_FIGURES
    if not is_list or not all(_is_time(value) for value in data):  # type: ignore[attr-defined]  # is_list
        raise ConfigError("the seconds of a record are no list of times", hint=hint)
    return tuple(map(float, data))  # type: ignore[call-overload]  # it has been checked


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and type(value) is not bool and 0 < value < math.inf


def flag_of(name: str, value: object, hint: str) -> bool:
    """Return true or false. Raises: ConfigError where it is neither."""
    if type(value) is not bool:
        raise ConfigError(f"{name} in a record is true or false", hint=hint)
    return value


def optional_text(data: dict[str, object], name: str, hint: str) -> str:
    """Return a text that may be missing, "" then. Raises: ConfigError where it is none."""
    return text_of(name, data[name], hint) if name in data else ""


def text_of(name: str, value: object, hint: str) -> str:
    """Return a text of a character at least. Raises: ConfigError where it is none."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"the {name} of a record is no text", hint=hint)
    return value
