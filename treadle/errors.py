# SPDX-License-Identifier: Apache-2.0
"""The exception tree: every error says what is wrong, where, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_PART = 4000
"""Characters of a problem, a place or a hint: names and shapes of a model may be of any length."""


def _cut(text: str) -> str:
    """Return a text without its middle where it is too long to be read."""
    if len(text) <= LONGEST_PART:
        return text
    half = LONGEST_PART // 2
    return f"{text[:half]} … ({len(text) - 2 * half} characters left out) … {text[-half:]}"


def name_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the hint for a name that is not known: the one most like it, else `otherwise`."""
    from difflib import get_close_matches  # half a megabyte, for a wrong name alone

    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else otherwise


class TreadleError(Exception):
    """A mistake the user can act on: the problem, the place, and the next step.

    `problem` is one or more lines in the present tense with the offending values in it; `at` names
    the place (model file, node name, operator, index; or script line); `hint` is the next action.
    """

    def __init__(self, problem: str, *, at: str = "", hint: str = "") -> None:
        self.problem = _cut(problem)
        self.at = _cut(at)
        self.hint = _cut(hint)
        super().__init__(str(self))

    def located(self, at: str) -> TreadleError:
        """Return this error with `at` put in front of the place it already names."""
        place = f"{at}, {self.at}" if self.at else at
        return type(self)(self.problem, at=place, hint=self.hint)

    def __str__(self) -> str:
        lines = [self.problem]
        if self.at:
            lines.append(f"  at    {self.at}")
        if self.hint:
            lines.append(f"  hint  {self.hint}")
        return "\n".join(lines)


class SettingError(TreadleError):
    """A TREADLE_* variable or a setting has a value it cannot have."""


class TypeMismatch(TreadleError):
    """Shapes, dtypes or attributes of an operator do not fit together."""


class ModelError(TreadleError):
    """A model file cannot be read, or breaks the rules of its format."""

    def completed(self, at: str, hint: str) -> ModelError:
        """Return this error with a place and a hint where it has none."""
        return type(self)(self.problem, at=self.at or at, hint=self.hint or hint)


class UnsupportedOperators(ModelError):
    """A model uses operators Treadle has no conversion for; all are listed, with counts."""


class ScheduleError(TreadleError):
    """A schedule step does not fit the stage or axis it names."""


class ConfigError(TreadleError):
    """A configuration or a record of one does not fit the knobs of its kernel, or is none."""


class TargetError(TreadleError):
    """A target string, CPU name or feature is not known."""


class ChoiceError(TreadleError):
    """A choice that was made beforehand, such as a record's, does not fit what it is given for."""


class ToolchainError(TreadleError):
    """A linker or compiler is missing or fails."""


class DeviceError(TreadleError):
    """A GPU, its driver or its compiler is missing, refuses something, or fails."""


class ArtifactError(TreadleError):
    """A saved artifact is damaged, unsafe, or made for another machine."""


class InputError(TreadleError):
    """An input given to a compiled model has the wrong name, rank, dtype or shape."""


class SizesError(InputError):
    """A program for any sizes cannot run at those of its inputs; one compiled for them can."""


class UsageError(TreadleError):
    """A command line or a call of the public API cannot be understood."""


class RpcError(TreadleError):
    """A device or a tracker cannot be reached, refuses a request, or ends a session."""


class InternalError(TreadleError):
    """A broken invariant of the compiler itself: names the pass and how to report it."""
