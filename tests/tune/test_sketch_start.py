# SPDX-License-Identifier: Apache-2.0
"""What is tried first: the best of many kinds by the analytic model, evolved and not only drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets import AVX512
from tests.tune import sketch_graphs as graphs
from treadle.tune.sketch import SketchPoint, SketchSpace
from treadle.tune.sketch_start import first_candidates


def space_of(graph: graphs.Graph) -> SketchSpace:
    return SketchSpace(graph.schedule(), AVX512)


@pytest.mark.parametrize("name", ["matmul_bias_relu", "winograd"])
def test_the_first_is_better_than_thousands_that_are_drawn(name: str) -> None:
    space = space_of(graphs.GRAPHS[name]())
    drawn = space.estimate(space.sample(2000, np.random.default_rng(3)))
    assert space.estimate(space.start())[0] < drawn.min()


def test_none_is_as_good_as_another_by_the_model() -> None:
    space = space_of(graphs.GRAPHS["winograd"]())
    estimates = space.estimate(space.start())
    assert len(estimates) == 16
    assert len(np.unique(estimates)) == len(estimates)


def test_tiles_in_registers_come_in_turn() -> None:
    space = space_of(graphs.matmul(256, 256, 256))
    start = space.start()

    def tile(point: SketchPoint) -> tuple[int, ...]:
        sketch = space.sketches[point.sketch]
        return tuple(sketch.slots[k].values[point.places[k]][-1] for k in sketch.register_slots)

    assert len({tile(p) for p in start}) >= len(start) // 2


def test_few_kinds_are_filled_up_with_others() -> None:
    space = space_of(graphs.matmul(64, 64, 64))
    found = first_candidates(space, lambda p: (p.sketch, p.sketch), 8)
    assert len(found) == len(set(found)) == 8
    assert space.estimate(found)[0] == space.estimate(found).min()
