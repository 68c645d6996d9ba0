# SPDX-License-Identifier: Apache-2.0
"""Knobs, configurations, and the space of a template that asks for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

import pytest

from treadle.errors import ConfigError, ScheduleError
from treadle.te.knobs import DEFAULTS, Config, Knobs, Space, value_text

pytestmark = pytest.mark.tiny


@dataclass(frozen=True)
class Tile:
    rows: int
    vectors: int


TILES = [Tile(r, v) for v in (1, 2) for r in (1, 2, 3)]


def area(tile: Tile) -> tuple[float, int]:
    """Two tiles of six are the best; the second entry prefers the taller one."""
    return abs(4.0 - tile.rows * tile.vectors), -tile.rows


def template(knobs: Knobs) -> tuple[Tile, int, bool]:
    """The candidates of the band depend on the tile."""
    tile = knobs.pick("tile", TILES, cost=area)
    band = knobs.pick("band", range(1, tile.rows + 1), cost=lambda b: -b)
    return tile, band, knobs.flag("unroll", tile.vectors > 1)


def test_the_cheapest_candidate_is_picked_as_min_does() -> None:
    knobs = Knobs()
    assert template(knobs) == (min(TILES, key=area), 2, True)
    tile, band, unroll = knobs.made
    assert (tile.name, tile.value, tile.cost) == ("tile", (2, 2), 0.0)
    assert tile.candidates[tile.next_best or 0] == (3, 1)  # of those at cost 1 the first
    assert (tile.parts, band.parts) == (("rows", "vectors"), ())
    assert (band.candidates, band.costs, band.next_best) == ((1, 2), (-1.0, -2.0), 0)
    assert (unroll.candidates, unroll.costs, unroll.cost) == ((True, False), (), None)
    assert all(k.is_default for k in knobs.made)
    assert Knobs().pick("first", "abc", cost=lambda _: 0) == "a"


def test_a_rule_decides_where_no_model_does() -> None:
    assert Knobs().option("ahead", 5, (0, 10, 5)) == 5
    knobs = Knobs(Config.of({"ahead": 10}))
    assert knobs.option("ahead", 5, (0, 10, 5)) == 10
    (knob,) = knobs.made
    assert (knob.candidates, knob.costs, knob.best, knob.chosen) == ((5, 0, 10), (), 0, 2)
    assert knob.next_best == 0


def test_a_configuration_decides() -> None:
    knobs = Knobs(Config.of({"tile": [3, 1], "unroll": True}))
    assert template(knobs) == (Tile(3, 1), 3, True)
    assert [k.is_default for k in knobs.made] == [False, True, False]
    assert str(knobs.config) == "tile = 3 × 1, band = 3, unroll = yes"
    knobs.check_known()


def test_a_value_that_is_no_candidate_is_refused() -> None:
    for config, said in (
        ({"tile": (9, 9)}, "9 × 9 is no candidate of knob tile\n  hint  there is 1 × 1, 2 × 1, 3"),
        ({"tile": (2, 1), "band": 3}, "3 is no candidate of knob band\n  hint  there is 1, 2"),
        ({"unroll": 1}, "1 is no candidate of knob unroll\n  hint  there is yes, no"),
        ({"band": True}, "yes is no candidate of knob band"),
    ):
        with pytest.raises(ConfigError) as caught:
            template(Knobs(Config.of(config)))
        assert str(caught.value).startswith(said)


def test_long_lists_of_candidates_are_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        Knobs(Config.of({"k": 99})).pick("k", range(20), cost=float)
    assert caught.value.hint == "there is 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"


def test_a_knob_that_nobody_asks_for_is_refused() -> None:
    knobs = Knobs(Config.of({"tyle": 1}))
    template(knobs)
    with pytest.raises(ConfigError) as caught:
        knobs.check_known()
    assert str(caught.value) == "there is no knob tyle\n  hint  did you mean tile?"
    with pytest.raises(ConfigError, match="there is no knob x\n  hint  there is none"):
        Knobs(Config.of({"x": 1})).check_known()


def test_names_are_of_one_choice_or_in_a_space_of_their_own() -> None:
    knobs = Knobs(Config.of({"add_2.wide": 1, "add.deep.wide": 0}))
    knobs.pick("tile", TILES, cost=area)
    with pytest.raises(ScheduleError, match="asks for knob tile twice"):
        knobs.pick("tile", TILES, cost=area)
    picks = [knobs.within("add") for _ in range(2)]
    picks[1:1] = [picks[0].within("deep")]
    assert [p.pick("wide", range(3), cost=lambda c: abs(c - 2)) for p in picks] == [2, 0, 1]
    assert [k.name for k in knobs.made] == ["tile", "add.wide", "add.deep.wide", "add_2.wide"]
    knobs.check_known()


def test_a_template_without_candidates_is_told() -> None:
    with pytest.raises(ScheduleError, match="knob tile has no candidates"):
        Knobs().pick("tile", [], cost=area)
    with pytest.raises(ScheduleError, match="cannot be a candidate of a knob"):
        Knobs().pick("tile", [None], cost=lambda _: 0)


def test_the_space_of_a_template_is_listed_and_counted() -> None:
    space = Space(template)
    found = list(space)
    default = Knobs()
    template(default)
    assert found[0] == default.config
    expected = {
        (("tile", (t.rows, t.vectors)), ("band", b), ("unroll", u))
        for t in TILES
        for b in range(1, t.rows + 1)
        for u in (True, False)
    }
    assert {c.values for c in found} == expected
    assert len(found) == len(expected) == 24
    assert space.size == 6 * 2 * 2  # along the default path


def test_what_a_template_refuses_is_not_listed() -> None:
    def refusing(knobs: Knobs) -> None:
        rows = knobs.option("rows", 1, (2, 3))
        if rows == 3:
            raise ScheduleError("three rows are too many")
        columns = knobs.option("columns", 1, (2, 4))
        if rows * columns > 4:
            raise ConfigError("too many registers")

    found = [tuple(value for _, value in c.values) for c in Space(refusing)]
    assert found == [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)]


def test_sampled_configurations_are_of_the_space() -> None:
    space, random = Space(template), Random(1)
    every = set(space)
    drawn = {space.sample(random) for _ in range(200)}
    assert drawn <= every
    assert len(drawn) > len(every) // 2
    for config in drawn:
        assert [(k.name, k.value) for k in space.knobs(config)] == list(config.values)


def test_configurations_are_json_both_ways() -> None:
    config = Config.of({"tile": (1, (14, 4)), "band": 7, "unroll": False, "way": "near", "f": 0.5})
    text = json.dumps(config.to_json())
    assert text == '{"tile": [1, [14, 4]], "band": 7, "unroll": false, "way": "near", "f": 0.5}'
    assert Config.from_json(json.loads(text)) == config
    assert Config.from_json({}) == DEFAULTS
    assert str(DEFAULTS) == "defaults"
    assert config.changed("band", 1).get("band") == 1
    assert config.changed("more", [2]).get("more") == (2,)
    assert config.get("nothing") is None
    assert value_text((1, (14, 4))) == "1 × (14 × 4)"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([1], "a configuration is an object of knobs and values, not [1]"),
        ({"": 1}, '"" is not the name of a knob'),
        ({"a\n": 1}, '"a\\n" is not the name of a knob'),
        ({"x" * 201: 1}, f'"{"x" * 59}… is not the name of a knob'),
        ({"a": None}, "null is no value of knob a"),
        ({"a": {"b": 1}}, '{"b": 1} is no value of knob a'),
        ({"a": [1, None]}, "null is no value of knob a"),
        ({"a": [[[[[1]]]]]}, "[1] is no value of knob a"),
        ({"a": float("nan")}, "NaN is no value of knob a"),
        ({"a": float("inf")}, "Infinity is no value of knob a"),
        ({"a": 1 << 70}, f"{1 << 70} is no value of knob a"),
        ({"a": "x" * 300}, f'"{"x" * 59}… is no value of knob a'),
        ({str(k): 1 for k in range(10_001)}, "a configuration of 10001 knobs is too large"),
    ],
)
def test_what_is_no_configuration_is_refused(data: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_json(data)
    assert caught.value.problem == said


def test_a_configuration_names_a_knob_once() -> None:
    with pytest.raises(ConfigError, match="knob 'a' stands twice"):
        Config((("a", 1), ("a", 2)))
