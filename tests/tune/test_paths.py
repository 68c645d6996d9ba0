# SPDX-License-Identifier: Apache-2.0
"""The known part of a tree of choices: what is nearest, what costs say, where walks go."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tune.spaces import small
from treadle.te.knobs import Config, Knob, Space
from treadle.tune.paths import UNKNOWN_EXCESS, Paths, excess_of, nearest

pytestmark = pytest.mark.tiny


def test_the_nearest_value_is_of_the_closest_numbers() -> None:
    assert nearest(6, (1, 4, 8, 64)) == 2
    assert nearest((1, 12, 2), ((1, 14, 2), (2, 7, 2), (4, 3, 2))) == 0
    assert nearest((4, 4), ((4,), (4, 4, 4), (1, 1))) == 2
    assert nearest("both", ("inner", "both")) == 1
    assert nearest("none", ("inner", "both")) == 0
    assert nearest(True, (1, True)) == 1  # exactly that, where there is one
    assert nearest(1, (True, 1)) == 1


def knob(costs: tuple[float, ...], best: int = 0) -> Knob:
    return Knob("k", tuple(range(len(costs) or 3)), costs, best, best)


def test_costs_count_over_the_least() -> None:
    assert excess_of(knob((10.0, 20.0, 10.0))) == pytest.approx((0.0, np.log(2), 0.0))
    assert excess_of(knob((), best=1)) == (UNKNOWN_EXCESS, 0.0, UNKNOWN_EXCESS)


def test_costs_that_are_no_amounts_say_an_order() -> None:
    assert excess_of(knob((-3.0, -1.0, -2.0))) == pytest.approx((0.0, np.log(2), np.log(1.5)))
    assert excess_of(knob((0.0, 0.0))) == (0.0, 0.0)
    assert excess_of(knob((1.0, float("inf"), 4.0))) == pytest.approx((0.0, np.log(4), np.log(4)))
    assert np.isfinite(excess_of(knob((float("inf"), float("inf"))))).all()


def learned(*configs: dict[str, object]) -> Paths:
    """Return what runs of `small` show: "place" has as many candidates as "count" says."""
    paths = Paths()
    for config in configs:
        paths.learn(Space(small).knobs(Config.of(config)))
    return paths


def walked(paths: Paths, **wanted: object) -> list[object]:
    row = np.full((1, len(paths.knobs)), -1)
    for column, name in enumerate(paths.knobs):
        if name in wanted:
            choice = paths.choice_id(name, wanted[name])  # type: ignore[arg-type]  # plain values
            assert choice is not None
            row[0, column] = choice
    (found,) = paths.follow(row).rows
    return [paths.values[c][1] for c in found.tolist()]


def test_an_unknown_path_goes_on_as_its_nearest_sibling() -> None:
    paths = learned({"count": 1}, {"count": 4})
    assert walked(paths, count=3, place=3) == [3, 3]  # as after 4, until a run shows it
    assert walked(paths, count=1, place=3) == [1, 0]  # there is one place only
    paths.learn(Space(small).knobs(Config.of({"count": 3})))
    assert walked(paths, count=3, place=3) == [3, 2]
    assert walked(paths) == [2, 0]  # the default of each


def test_draws_follow_what_is_known() -> None:
    paths = learned({"count": 1}, {"count": 2}, {"count": 3}, {"count": 4})
    drawn = paths.draw(400, np.random.default_rng(0)).rows
    pairs = {tuple(paths.values[c][1] for c in row) for row in drawn.tolist()}
    assert pairs == {(c, p) for c in range(1, 5) for p in range(c)}
