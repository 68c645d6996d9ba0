# SPDX-License-Identifier: Apache-2.0
"""Lines of records that name the method of a call: how an operator is computed.

    {"version": 1, "call": "matmul(Tensor[(128, 768), float32], …) {}", "method": "panels",
     "target": "llvm -mcpu=znver5 …"}

`call` is the text of the call as `treadle explain --json` prints it, the key of `methods=`. With
`seconds` or `error` it is a trial of a tuner, which decides nothing: a method that was faster alone
may not be in the model. Without, or with `chosen`, it decides.
"""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, field

from treadle.build.json_lines import flag_of, optional_text, seconds_of, text_of
from treadle.errors import ConfigError

VERSION = 1
"""Of the lines of records; a reader refuses what it does not know."""

_NEEDED = ("version", "call", "method", "target")
_OPTIONAL = ("seconds", "error", "chosen", "compiler", "options", "layouts")
_LONGEST_NAME = 60
_HINT = "`treadle explain --json` prints calls"


@dataclass(frozen=True, slots=True)
class MethodRecord:
    """The method by which calls of this text are computed on a target, given as text.

    `seconds` are those of a call alone, one figure per repeat; `error` says why a trial has none.
    `compiler`, `options` and `layouts` are what they hold for: the compiler's digest, how they were
    measured, in which layouts the operand came and the result was left. `at` is the place in a
    file, "" of none.
    """

    call: str
    target: str
    method: str
    at: str = field(default="", compare=False)
    seconds: tuple[float, ...] = ()
    error: str = ""
    is_chosen: bool = False
    compiler: str = ""
    options: str = ""
    layouts: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Call and target: what a method is named for."""
        return self.call, self.target

    @property
    def is_trial(self) -> bool:
        """True for a line that tells of a measurement, and decides nothing."""
        return bool(self.seconds or self.error) and not self.is_chosen

    @property
    def is_of_tuner(self) -> bool:
        """True where a tuner has written it, which measures a call in some layouts."""
        return bool(self.layouts)

    @property
    def time(self) -> float:
        """The median of the seconds; infinite where there are none."""
        return statistics.median(self.seconds) if self.seconds else math.inf

    def line(self) -> bytes:
        """Return its line, the end included."""
        values = (VERSION, self.call, self.method, self.target)
        extra = {
            "seconds": list(self.seconds), "error": self.error, "chosen": self.is_chosen,
            "compiler": self.compiler, "options": self.options, "layouts": self.layouts,
        }  # fmt: skip
        found = dict(zip(_NEEDED, values, strict=True))
        found |= {name: value for name, value in extra.items() if value}
        return json.dumps(found, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def names_a_method(data: dict[str, object]) -> bool:
    """True for the object of a line that speaks of a call and not of a kernel."""
    return "call" in data and "kernel" not in data


def method_record(data: dict[str, object], at: str) -> MethodRecord:
    """Return what a line says, whose version has been looked at.

    Raises: ConfigError where a field is missing, unknown or no text.
    """
    missing = [name for name in _NEEDED if name not in data]
    unknown = [name for name in data if name not in (*_NEEDED, *_OPTIONAL)]
    if missing or unknown:
        said = f"has no {missing[0]}" if missing else f"has a field {unknown[0][:_LONGEST_NAME]!r}"
        raise ConfigError(
            f"the record of a call {said}", hint=f"its fields are {', '.join(_NEEDED)}, …"
        )
    call, method, target = (text_of(name, data[name], _HINT) for name in _NEEDED[1:])
    return MethodRecord(
        call,
        target,
        method,
        at,
        seconds=seconds_of(data.get("seconds", []), _HINT),
        error=optional_text(data, "error", _HINT),
        is_chosen=flag_of("chosen", data.get("chosen", False), _HINT),
        compiler=optional_text(data, "compiler", _HINT),
        options=optional_text(data, "options", _HINT),
        layouts=optional_text(data, "layouts", _HINT),
    )
