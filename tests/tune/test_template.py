# SPDX-License-Identifier: Apache-2.0
"""Template spaces: configurations of knobs as candidates, whole populations at once."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from tests.optimize.cases import function, var
from tests.targets import AVX512
from tests.tune.spaces import seconds, small, tiled, tiled_space
from treadle.build.kernel import Kernel
from treadle.errors import ScheduleError
from treadle.graph.nodes import Call, Function
from treadle.ops.matmul import matmul
from treadle.te.knobs import Config, Knobs, Space
from treadle.tune.search import make_search
from treadle.tune.template import Point, TemplateSpace

pytestmark = pytest.mark.tiny


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def values(space: TemplateSpace, point: Point) -> dict[str, object]:
    data = space.to_json(point)
    assert isinstance(data, dict)
    return data


def test_the_default_is_first_and_then_what_the_models_like() -> None:
    space = tiled_space()
    start = space.start()
    default, *others = start
    assert space.choice(default) == Config(tuple((k.name, k.value) for k in Space(tiled).knobs()))
    assert len(set(start)) == len(start) >= 14
    assert all(space.choice(p) is not None for p in start)
    changed = [sum(a != b for a, b in zip(values(space, default).items(), values(space, p).items(),
                                          strict=False)) for p in others]  # fmt: skip
    assert changed[0] >= 1
    for knob in Space(tiled).knobs():
        found = {str(values(space, p).get(knob.name)) for p in start}
        assert len(found) > 1, f"{knob.name} is the same in all"
    assert max(space.estimate(start)) < np.median(space.estimate(space.sample(200, rng())))


def test_a_candidate_names_all_knobs_and_is_what_the_template_makes() -> None:
    space = tiled_space()
    for point in space.sample(50, rng()):
        config = space.choice(point)
        if config is None:
            continue
        assert config == Config(tuple((k.name, k.value) for k in Space(tiled).knobs(config)))
        assert space.to_json(point) == config.to_json()


def test_no_configuration_is_given_to_two_candidates() -> None:
    space = tiled_space()
    points = list(dict.fromkeys(space.sample(400, rng())))
    configs = Counter(c for p in points if (c := space.choice(p)) is not None)
    assert max(configs.values()) == 1
    assert len(configs) > 0.9 * len(points)  # some had values that are not allowed there


def test_what_was_learned_makes_more_candidates_right() -> None:
    shares = []
    for runs in (0, 300):
        space = tiled_space()
        for point in space.sample(runs, rng()):
            space.choice(point)
        children = space.mutate(space.sample(100, rng(1)), rng(2))
        shares.append(sum(space.choice(p) is not None and space.to_json(p) == _named(space, p)
                          for p in children))  # fmt: skip
    assert shares[1] > shares[0] + 20


def _named(space: TemplateSpace, point: Point) -> object:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in space._named(point).items()}


def test_a_mutation_changes_something_and_little() -> None:
    space = tiled_space()
    parents = space.sample(300, rng())
    children = space.mutate(parents, rng(1))
    assert sum(a != b for a, b in zip(parents, children, strict=True)) > 280
    names = ("tile", "order", "unroll")
    pairs = [(values(space, a), values(space, b)) for a, b in zip(parents, children, strict=True)]
    assert all(sum(a[n] != b[n] for n in names) <= 2 for a, b in pairs)


def test_a_child_has_the_choices_of_its_parents() -> None:
    space = tiled_space()
    first, second = space.sample(100, rng()), space.sample(100, rng(1))
    for child, a, b in zip(space.cross(first, second, rng(2)), first, second, strict=True):
        ours = values(space, child)
        for name in ("tile", "order", "unroll"):
            assert ours[name] in (values(space, a)[name], values(space, b)[name])


def test_features_tell_candidates_apart_in_columns_that_stay() -> None:
    space = tiled_space()
    space.start()
    points = space.sample(200, rng())
    before = space.features(points)
    assert before.shape == (200, before.shape[1])
    assert before.dtype == np.float32
    assert np.isfinite(before).all()
    rows = Counter(row.tobytes() for row in before)
    assert len(rows) == len(set(points))
    for point in space.sample(100, rng(1)):
        space.choice(point)
    assert space.features(points).shape == before.shape
    assert space.features([]).shape == (0, before.shape[1])


def test_the_estimate_is_the_product_of_what_the_knobs_say() -> None:
    space = tiled_space()
    default = space.start()[0]
    worse = space.from_json({"tile": [1, 1]})
    assert worse is not None
    one, other = space.estimate([default, worse])
    assert one == pytest.approx(1.0)
    assert other == pytest.approx(1.0 + np.log2(12), rel=1e-5)
    slower = space.from_json({"unroll": False})
    assert slower is not None
    assert space.estimate([slower])[0] == pytest.approx(1.02, rel=1e-5)


def test_every_configuration_comes_once_in_the_order_of_the_space() -> None:
    space = TemplateSpace(Space(small))
    points = list(space)
    assert [space.choice(p) for p in points] == list(Space(small))
    assert len(set(points)) == 10
    assert space.size == 8  # as far as the default path shows it
    assert list(space) == points


def test_json_makes_the_same_candidate() -> None:
    space = tiled_space()
    for point in space.start():
        text = json.dumps(space.to_json(point))
        assert space.from_json(json.loads(text)) == point
    other = tiled_space()
    again = other.from_json(json.loads(json.dumps(space.to_json(space.start()[5]))))
    assert again is not None
    assert other.choice(again) == space.choice(space.start()[5])


HOSTILE = (
    None,
    [],
    "tile",
    3,
    {"tile": [3, 3, 3]},
    {"tile": "12"},
    {"tile": {"rows": 3}},
    {"tile": [[[[[[[1]]]]]]]},
    {"tiles": [1, 1]},
    {"unroll": 1},
    {"unroll": None},
    {"band": float("nan")},
    {"band": 1e400},
    {"band": 10**40},
    {"": 1},
    {"x" * 5000: 1},
    {"join": True, "tile": [8, 2]},
    {str(i): 1 for i in range(20_000)},
)


@pytest.mark.parametrize("data", HOSTILE, ids=lambda d: str(d)[:20])
def test_what_is_no_candidate_is_none(data: object) -> None:
    assert tiled_space().from_json(data) is None


def test_a_template_that_refuses_gives_no_candidate() -> None:
    def fussy(knobs: Knobs) -> None:
        rows = knobs.option("rows", 1, (2, 3))
        if knobs.option("columns", 1, (2, 3)) * rows > 6:
            raise ScheduleError("too large")

    space = TemplateSpace(Space(fussy))
    points = list(dict.fromkeys(space.sample(200, rng())))
    assert len(points) == 9
    found = [space.choice(p) for p in points]
    assert found.count(None) == 1
    (refused,) = (p for p, config in zip(points, found, strict=True) if config is None)
    assert space.to_json(refused) == {"rows": 3, "columns": 3}


def test_a_template_without_knobs_has_one_candidate() -> None:
    space = TemplateSpace(Space(lambda knobs: None))
    assert space.size == 1
    (point,) = space.start()
    assert space.choice(point) == Config()
    assert set(space.sample(5, rng())) == {point}
    assert space.mutate([point], rng()) == [point]
    assert space.cross([point], [point], rng()) == [point]
    assert space.features([point]).shape[0] == 1
    assert space.from_json({}) == point


def test_a_template_that_is_not_the_same_twice_is_refused() -> None:
    count = iter(range(2, 100))

    def moody(knobs: Knobs) -> None:
        knobs.option("rows", 1, range(next(count)))

    space = TemplateSpace(Space(moody))
    with pytest.raises(ScheduleError, match="after the same choices"):
        space.start()


def product(rows: int, columns: int, depth: int) -> Function:
    params = [var("x", rows, depth), var("y", depth, columns)]
    call = matmul(*params)
    assert isinstance(call, Call)
    return function(call, params=params)


def test_all_candidates_of_a_real_template_are_configurations_of_it() -> None:
    kernel = Kernel(product(48, 64, 32), AVX512)
    space = TemplateSpace(kernel.space)
    assert space.size == kernel.space.size > 1
    start = space.start()
    assert space.choice(start[0]) == Config(tuple((k.name, k.value) for k in kernel.knobs))
    points = dict.fromkeys([*start, *space.mutate(start, rng()), *space.sample(10, rng())])
    configs = [c for p in points if (c := space.choice(p)) is not None]
    assert len(configs) > len(start)
    for config in configs:
        kernel.configure(config)
        assert Config(tuple((k.name, k.value) for k in kernel.knobs)) == config


def test_what_takes_least_is_in_the_space() -> None:
    space = tiled_space()
    best = space.from_json({"tile": [8, 3], "band": 32, "order": "both", "ahead": 1,
                            "unroll": False})  # fmt: skip
    assert best is not None
    config = space.choice(best)
    assert config is not None
    assert seconds(config) == pytest.approx(1e-3)


def test_without_models_of_costs_nothing_says_what_to_try_first() -> None:
    def plain(knobs: Knobs) -> None:
        knobs.option("rows", 1, (2, 4, 8))
        knobs.flag("wide", False)

    space = TemplateSpace(Space(plain))
    assert [space.to_json(p) for p in space.start()] == [{"rows": 1, "wide": False}]
    points = space.sample(50, np.random.default_rng(0))
    assert np.isnan(space.estimate(points)).all()
    search = make_search("evolutionary", space, np.random.default_rng(0))
    values = [space.to_json(p) for p in search.propose(8)]
    assert len({str(v) for v in values}) == 8
