# SPDX-License-Identifier: Apache-2.0
"""A space of sketches is what a search may ask of one: drawn from, varied, stored, described."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from tests.targets import AVX2, AVX512
from tests.tune import sketch_graphs as graphs
from treadle.tune import sketch
from treadle.tune.sketch import SketchPoint, SketchSpace
from treadle.tune.sketch_slots import drawn_rows
from treadle.tune.space import SearchSpace


def space_of(name: str) -> SketchSpace:
    return SketchSpace(graphs.GRAPHS[name]().schedule(), AVX512)


def test_it_is_a_search_space() -> None:
    space: SearchSpace[SketchPoint] = space_of("matmul")
    assert space.kind == "sketch"


def test_the_size_counts_what_iterating_gives() -> None:
    space = SketchSpace(graphs.column_sums(8, 20).schedule(), AVX512)
    points = list(space)
    assert len(points) == len(set(points))
    assert 0 < len(points) <= space.size
    drawn = space.sample(200, np.random.default_rng(0))
    assert set(drawn) <= set(points)


def test_a_large_space_is_iterated_lazily() -> None:
    space = SketchSpace(graphs.matmul(512, 512, 512).schedule(), AVX512)
    assert space.size > 10**6
    first = list(islice(space, 5))
    assert first == list(islice(space, 5))


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_points_go_through_json(name: str) -> None:
    space = space_of(name)
    for point in space.sample(20, np.random.default_rng(1)):
        data = json.loads(json.dumps(space.to_json(point)))
        assert space.from_json(data) == point
        assert space_of(name).from_json(data) == point


def test_what_is_no_point_of_the_space_is_none() -> None:
    space = space_of("matmul")
    good = json.loads(json.dumps(space.to_json(space.start()[0])))
    assert space.from_json(good) is not None
    tile, choice = next(iter(good["tiles"])), next(iter(good["choices"]))
    bad: list[object] = [
        None, 3, "x", [], {}, {"sketch": 0}, {**good, "sketch": 99}, {**good, "sketch": -1},
        {**good, "sketch": True}, {**good, "sketch": "0"}, {**good, "tiles": {}},
        {**good, "tiles": []}, {**good, "more": 1}, {**good, "choices": None},
        {**good, "tiles": {**good["tiles"], tile: [0, 0, 0]}},
        {**good, "tiles": {**good["tiles"], tile: [10**30]}},
        {**good, "tiles": {**good["tiles"], tile: [[1], [1], [1]]}},
        {**good, "tiles": {**good["tiles"], tile: {"a": 1}}},
        {**good, "tiles": {**good["tiles"], tile: [True, 1, 1]}},
        {**good, "tiles": {**good["tiles"], "__class__": [1]}},
        {**good, "choices": {**good["choices"], choice: [1]}},
        {**good, "choices": {**good["choices"], choice: "os.system"}},
        {**good, "choices": {**good["choices"], choice: 1e300}},
    ]  # fmt: skip
    assert [d for d in bad if space.from_json(d) is not None] == []


def test_a_point_that_breaks_a_limit_is_none() -> None:
    space = SketchSpace(graphs.matmul(512, 512, 512).schedule(), AVX512)
    data = json.loads(json.dumps(space.to_json(space.start()[0])))
    data["tiles"]["3.tile0"] = [1, 1, 32]
    data["tiles"]["3.tile1"] = [1, 1, 128]
    data["choices"]["3.unroll"] = 1
    assert space.from_json(data) is None  # 256 vectors of accumulators, written out


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_children_are_other_points_of_the_space(name: str) -> None:
    space, random = space_of(name), np.random.default_rng(2)
    parents = space.sample(60, random)
    children = space.mutate(parents, random)
    assert len(children) == len(parents)
    assert sum(a != b for a, b in zip(parents, children, strict=True)) > 50
    pairs = space.cross(parents, children[::-1], random)
    for child in (*children, *pairs):
        assert space.from_json(json.loads(json.dumps(space.to_json(child)))) == child


def test_a_mutation_changes_few_choices() -> None:
    space, random = space_of("matmul"), np.random.default_rng(3)
    parents = space.sample(50, random)
    for parent, child in zip(parents, space.mutate(parents, random), strict=True):
        assert sum(a != b for a, b in zip(parent.places, child.places, strict=True)) <= 2


def test_a_cross_has_choices_of_both() -> None:
    space, random = space_of("matmul"), np.random.default_rng(4)
    first, second = space.sample(40, random), space.sample(40, random)
    for a, b, child in zip(first, second, space.cross(first, second, random), strict=True):
        assert all(c in pair for c, *pair in zip(child.places, a.places, b.places, strict=True))


def test_no_candidates_have_no_features() -> None:
    space = space_of("matmul")
    assert len(space.features([])) == 0
    assert len(space.estimate([])) == 0


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_the_first_points_are_the_best_by_the_model(name: str) -> None:
    space = space_of(name)
    start = space.start()
    assert start == space_of(name).start()
    assert 0 < len(start) == len(set(start)) <= 16
    drawn = space.estimate(space.sample(200, np.random.default_rng(6)))
    assert space.estimate(start)[0] <= np.quantile(drawn, 0.05)


def test_what_starts_uses_the_registers_and_vectors_of_the_machine() -> None:
    for target in (AVX512, AVX2):
        space = SketchSpace(graphs.matmul(512, 512, 512).schedule(), target)
        start = space.start()[0]
        data = json.loads(json.dumps(space.to_json(start)))
        rows, columns = data["tiles"]["3.tile0"][-1], data["tiles"]["3.tile1"][-1]
        assert columns % target.lanes(32) == 0
        held = rows * columns // target.lanes(32)
        assert target.vector_registers // 2 <= held <= target.vector_registers
        assert data["choices"]["3.vectorize"] == 1


def test_the_model_prefers_vectors_and_registers() -> None:
    space = SketchSpace(graphs.matmul(512, 512, 512).schedule(), AVX512)
    data = json.loads(json.dumps(space.to_json(space.start()[0])))

    def cycles(**changes: int) -> float:
        choices = {**data["choices"], **{f"3.{k}": v for k, v in changes.items()}}
        point = space.from_json({**data, "choices": choices})
        assert point is not None
        return float(space.estimate([point])[0])

    assert cycles(unroll=1) < cycles(unroll=0)
    assert cycles(vectorize=1, unroll=0) < cycles(vectorize=0, unroll=0) / 4
    assert cycles(parallel=2) < cycles(parallel=0)


def test_the_numbers_of_a_candidate_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    space, random = space_of("winograd"), np.random.default_rng(8)
    points = space.mutate(space.sample(40, random), random)
    estimates = space.estimate(points)

    def again(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(sketch, "costs_of", again)
    assert len(space.features(points)) == len(points)
    np.testing.assert_array_equal(space.estimate(points), estimates)


def test_stages_are_mostly_drawn_in_loops_of_others() -> None:
    space = space_of("softmax")
    for sketched in space.sketches:
        rows = drawn_rows(sketched.slots, 400, np.random.default_rng(11))
        places = [k for k, s in enumerate(sketched.slots) if s.is_place]
        assert places
        assert np.mean((rows[:, places] > 0).all(axis=1)) > 0.6
