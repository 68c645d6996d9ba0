# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines that others may have written: every line is checked before it is believed."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import IO

from treadle.errors import ConfigError

LONGEST_LINE = 1 << 20
"""Bytes of a line."""
_LONGEST_NAME = 60
_MOST_FIGURES = 10_000
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character, which JSON lets stand alone and UTF-8 does not."""


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long so much that this shows."""
    while line := file.readline(LONGEST_LINE + 1):
        yield line


def is_torn(line: bytes) -> bool:
    """Return whether the last line of a file is only the beginning of one.

    A process that dies while it writes leaves such a line, a machine that does NULs in its place.
    """
    if line.endswith(b"\n") or len(line) > LONGEST_LINE:
        return False
    text = line.strip(b"\0 \t\r")
    if not text.startswith(b"{"):
        return not text
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        return True
    return False


def value_of(line: bytes) -> object:
    """Return what a line says: something that can be written as a line again.

    Raises: ConfigError where it is too long, not JSON, has a key twice in an object, a number that
        is none or infinite, or half a character.
    """
    if len(line) > LONGEST_LINE:
        raise ConfigError(f"a record is longer than {LONGEST_LINE} bytes")
    try:
        text = line.decode()
        found: object = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number
        )
        if _HALF.search(text):
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError:
        cause = "it holds half a character"
    except UnicodeDecodeError:
        cause = "it is not UTF-8"
    except RecursionError:
        cause = "it is nested too deeply"
    except ValueError as error:
        cause = str(error)
    raise ConfigError(f"a record is not a line of JSON: {cause}")


def _constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:_LONGEST_NAME]} is too large a number")
    return found


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
    is_number = isinstance(value, (int, float)) and type(value) is not bool
    return is_number and 0 < value <= sys.float_info.max  # type: ignore[operator]  # is_number


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
