# SPDX-License-Identifier: Apache-2.0
"""Builders: code of candidates, and words for those that cannot be built."""

from __future__ import annotations

import pytest

from tests.tune.tasks import product_task
from treadle.te.choice import Choice, Script, choice_from_json, choice_to_json
from treadle.te.knobs import DEFAULTS, Config
from treadle.te.steps import Step
from treadle.tune.builder import Builders, Built

CHOICES: tuple[Choice, ...] = (
    DEFAULTS,
    Config.of({"rows": 8, "lanes": True}),
    Script((Step(2, "vectorize", (1,)),)),
)


def all_built(builders: Builders, count: int) -> dict[int, Built]:
    found: dict[int, Built] = {}
    while len(found) < count:
        found |= {built.ticket: built for built in builders.results(1.0)}
    return found


def test_candidates_are_built_in_other_processes() -> None:
    bad: tuple[Choice, ...] = (
        Config.of({"rows": 3}),
        Config.of({"broken": True}),
        Script((Step(9, "vectorize", (1,)),)),
    )
    with Builders([product_task()], 2) as builders:
        for ticket, choice in enumerate((*CHOICES, *bad)):
            builders.add(ticket, 0, choice)
        found = all_built(builders, 6)
        assert builders.pending == 0
    for ticket in range(3):
        made = found[ticket]
        assert made.error == ""
        assert made.object is not None
        assert made.object.code[:4] == b"\x7fELF"
        assert made.seconds > 0
    assert "3 is no candidate of knob rows" in found[3].error
    assert "broken" not in found[4].error
    assert found[4].object is None
    assert "there is no stage 9" in found[5].error


def test_a_build_that_takes_too_long_is_given_up() -> None:
    with Builders([product_task()], 1, seconds=0.0) as builders:
        builders.add(1, 0, DEFAULTS)
        (built,) = all_built(builders, 1).values()
        assert built.error == "the build takes longer than 0 s"
        builders.seconds = 60.0
        builders.add(2, 0, DEFAULTS)
        assert all_built(builders, 1)[2].error == ""


def test_builders_stand_still_while_something_is_measured() -> None:
    with Builders([product_task()], 1) as builders:
        builders.add(1, 0, DEFAULTS)
        builders.pause()
        assert list(builders.results(0.5)) == []
        builders.resume()
        assert all_built(builders, 1)[1].error == ""


@pytest.mark.tiny
@pytest.mark.parametrize("choice", CHOICES)
def test_choices_travel_as_data(choice: Choice) -> None:
    assert choice_from_json(choice_to_json(choice)) == choice
