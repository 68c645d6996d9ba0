# SPDX-License-Identifier: Apache-2.0
"""What a schedule is made by: values for the knobs of its template, or the steps themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from treadle.errors import ScheduleError
from treadle.te.knobs import Config
from treadle.te.steps import Step, steps_from_json, steps_to_json


@dataclass(frozen=True, slots=True)
class Script:
    """All steps of a schedule, in place of a template: those of a sketch or of a person."""

    steps: tuple[Step, ...]

    def to_json(self) -> object:
        """Return plain data for a JSON file."""
        return json.loads(steps_to_json(self.steps))

    @staticmethod
    def from_json(data: object) -> Script:
        """Return the script that `to_json` made `data` of.

        Raises: ScheduleError where it is none.
        """
        try:
            text = json.dumps(data)
        except (TypeError, ValueError, RecursionError):
            raise ScheduleError("the steps are not JSON") from None
        return Script(steps_from_json(text))

    def __str__(self) -> str:
        return f"{len(self.steps)} steps"


Choice: TypeAlias = Config | Script


def choice_to_json(choice: Choice) -> dict[str, object]:
    """Return a choice as data that says which of the two kinds it is."""
    return {"steps" if isinstance(choice, Script) else "config": choice.to_json()}


def choice_from_json(data: Mapping[str, object]) -> Choice:
    """Return the choice that `choice_to_json` made `data` of.

    Raises: ConfigError or ScheduleError where it is none of its kind.
    """
    return Script.from_json(data["steps"]) if "steps" in data else Config.from_json(data["config"])
