# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines that others may have written: every line is checked before it is believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

from treadle.errors import ConfigError

LONGEST_LINE = 1 << 20
"""Bytes of a line."""
_LONGEST_NAME = 60


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
