# SPDX-License-Identifier: Apache-2.0
"""In which loops stages are computed, and how much of them, follows from a candidate."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.targets import AVX512
from tests.tune import sketch_graphs as graphs
from treadle.build.kernel import Kernel, Scheduled
from treadle.tune.sketch import SketchPoint, SketchSpace
from treadle.tune.sketch_places import Places
from treadle.tune.sketch_plans import Tiled


def space_of(graph: graphs.Graph) -> SketchSpace:
    return SketchSpace(graph.schedule(), AVX512)


def point(space: SketchSpace, tiles: dict[str, list[int]], **choices: int) -> SketchPoint:
    """Return a point with some values, all else as it is usual."""
    sketch = space.sketches[0]
    data: dict[str, dict[str, object]] = {"tiles": {}, "choices": {}}
    for slot in sketch.slots:
        value = slot.values[max(0, slot.usual)]
        if slot.is_tile:
            data["tiles"][slot.key] = tiles.get(slot.key, [*slot.values[0]])
        else:
            data["choices"][slot.key] = choices.get(slot.key.replace(".", "_"), value[0])
    found = space.from_json(json.loads(json.dumps({"sketch": 0, **data})))
    assert found is not None
    return found


def places(space: SketchSpace, one: SketchPoint) -> Places:
    sketch = space.sketches[one.sketch]
    return Places(sketch, sketch.values(np.array([one.places])), 1)


def sizes(where: Places) -> list[list[int]]:
    return [region[:, 0].astype(int).tolist() for region in where.regions]


def test_at_root_all_of_a_stage_is_computed_once() -> None:
    space = space_of(graphs.winograd())
    where = places(space, point(space, {}))
    assert [int(h[0]) for h in where.host] == [-1, -1, -1]
    assert [float(t[0]) for t in where.times] == [1.0, 1.0, 1.0]
    assert sizes(where)[1][:3] == [4, 9, 32]
    assert sizes(where)[2] == [4, 9, 16]


def test_in_a_loop_what_its_iterations_need_is_computed() -> None:
    space = space_of(graphs.winograd())
    tiles = {"4.tile0": [1, 3], "4.tile2": [1, 1]}  # three tiles of places, one vector of filters
    where = places(space, point(space, tiles, **{"5_inside": 1}))
    assert [int(h[0]) for h in where.host] == [-1, 0, -1]
    assert sizes(where)[1][:3] == [4, 3, 16]
    assert float(where.times[1][0]) == 6.0


def test_a_stage_may_be_further_out_than_what_reads_it() -> None:
    space = space_of(graphs.winograd())
    tiles = {"4.tile0": [3, 1], "4.tile2": [1, 2]}
    where = places(space, point(space, tiles, **{"5_inside": 3, "1_inside": 4}))
    assert [int(h[0]) for h in where.host] == [-1, 0, 0]
    assert [int(p[0]) for p in where.place] == [0, 3, 1]
    assert sizes(where)[1][:3] == [4, 1, 16]  # of one tile and vector
    assert sizes(where)[2] == [4, 3, 16]  # of all tiles of a task, all channels
    assert [float(t[0]) for t in where.times] == [1.0, 18.0, 3.0]


def test_a_choice_that_cannot_hold_changes_nothing() -> None:
    space = space_of(graphs.winograd())
    where = places(space, point(space, {}, **{"1_inside": 5}))  # what reads it is in no loop
    assert int(where.host[2][0]) == -1


@pytest.mark.parametrize("graph_name", ["winograd", "interleaved", "softmax"])
def test_regions_are_the_buffers_of_the_loops(graph_name: str) -> None:
    graph = graphs.GRAPHS[graph_name]()
    space = space_of(graph)
    for one in space.sample(6, np.random.default_rng(4)):
        where, sketch = places(space, one), space.sketches[one.sketch]
        choice = space.choice(one)
        assert choice is not None
        made = graph.schedule().replay(choice.steps)
        names = {s.number: s.name for s in made.stages}
        text = Kernel(Scheduled(made, [*graph.inputs, graph.result], "k"), AVX512).loop_text()
        for k, plan in enumerate(sketch.plans):
            if where.host[k][0] < 0:
                continue
            found = re.findall(
                rf"\b{re.escape(names[plan.owner])}(?:_\d+)?: float32\[(.*?)\]", text
            )
            most = max(int(np.prod([int(n) for n in f.split(", ")])) for f in found)
            data = where.regions[k][: where.nests[k].data, 0]
            if isinstance(plan, Tiled):  # lanes of partial sums are no axis of the result
                data = data[[p >= 0 for p in plan.places]]
            size = int(np.prod(data))
            assert most <= size <= 2 * most, (names[plan.owner], found, size)
