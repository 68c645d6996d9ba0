# SPDX-License-Identifier: Apache-2.0
"""A search that a cost model guides."""

from __future__ import annotations

import numpy as np

from tests.tune.spaces import measured, seconds, tiled_space
from tests.tune.test_search import NEEDS_XGBOOST
from treadle.tune.cost_model import Scorer, TreeModel
from treadle.tune.guided import Evolutionary, Generation
from treadle.tune.search import Search


@NEEDS_XGBOOST
def test_generations_are_told_and_learning_need_not_wait_for_a_proposal() -> None:
    told: list[Generation] = []
    space, model = tiled_space(), TreeModel()
    strategy = Evolutionary(
        Scorer(space, model), population=64, generations=3, on_generation=told.append
    )
    search = Search(space, np.random.default_rng(0), strategy)
    measured(search, space, 40, time=seconds)
    first = [g.number for g in told[:4]]
    assert first == [0, 1, 2, 3]
    assert [g.is_last for g in told[:4]] == [False, False, False, True]
    assert (told[0].size, told[0].changed, told[0].unchanged) == (64, 0, 0)
    last = told[3]
    assert 0 < last.changed <= 64
    assert last.changed + last.unchanged in range(62, 65)  # rounded down twice
    assert list(last.scores) == sorted(last.scores, reverse=True)
    before = model.predict(space.features(space.start()))
    known = space.sample(24, np.random.default_rng(1))
    search.tell(known, [1e-3 * (k + 1) for k in range(len(known))])
    search.learn()
    assert not np.array_equal(before, model.predict(space.features(space.start())))
