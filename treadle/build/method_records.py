# SPDX-License-Identifier: Apache-2.0
"""Lines of records that name the method of a call: how an operator is computed.

    {"version": 1, "call": "matmul(Tensor[(128, 768), float32], …) {}", "method": "panels",
     "target": "llvm -mcpu=znver5 …"}

`call` is the text of the call as `treadle explain --json` prints it, the key of `methods=`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from treadle.errors import ConfigError

VERSION = 1
"""Of the lines of records; a reader refuses what it does not know."""

_NEEDED = ("version", "call", "method", "target")
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class MethodRecord:
    """The method by which calls of this text are computed on a target, given as text.

    `at` is the place in a file, "" of none.
    """

    call: str
    target: str
    method: str
    at: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Call and target: what a method is named for."""
        return self.call, self.target

    @property
    def is_trial(self) -> bool:
        """False: it decides."""
        return False

    def line(self) -> bytes:
        """Return its line, the end included."""
        values = (VERSION, self.call, self.method, self.target)
        found = dict(zip(_NEEDED, values, strict=True))
        return json.dumps(found, ensure_ascii=False).encode() + b"\n"


def names_a_method(data: dict[str, object]) -> bool:
    """True for the object of a line that speaks of a call and not of a kernel."""
    return "call" in data and "kernel" not in data


def method_record(data: dict[str, object], at: str) -> MethodRecord:
    """Return what a line says, whose version has been looked at.

    Raises: ConfigError where a field is missing, unknown or no text.
    """
    missing = [name for name in _NEEDED if name not in data]
    unknown = [name for name in data if name not in _NEEDED]
    if missing or unknown:
        said = f"has no {missing[0]}" if missing else f"has a field {unknown[0][:_LONGEST_NAME]!r}"
        raise ConfigError(
            f"the record of a call {said}", hint=f"its fields are {', '.join(_NEEDED)}"
        )
    call, method, target = (_text(name, data[name]) for name in _NEEDED[1:])
    return MethodRecord(call, target, method, at)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(
            f"the {name} of a record is no text", hint="`treadle explain --json` prints calls"
        )
    return value
