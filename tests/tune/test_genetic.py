# SPDX-License-Identifier: Apache-2.0
"""Generations of a search by mutation and crossover."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tune.spaces import tiled_space
from treadle.tune.genetic import Genetic
from treadle.tune.history import History
from treadle.tune.template import Point

pytestmark = pytest.mark.tiny


def test_generations_have_the_latest_and_an_elite_as_parents() -> None:
    space = tiled_space()
    random = np.random.default_rng(0)
    history: History[Point] = History(space, random)
    points = list(dict.fromkeys(space.sample(60, random)))[:30]
    for k, point in enumerate(points):
        history.record(point, 1.0 + k)  # the first is the fastest
    genetic: Genetic[Point] = Genetic(population=5, elite=2)
    assert genetic._parents(history) == [*points[:2], *points[-5:]]
    assert Genetic(population=5)._parents(history) == points[:5]
