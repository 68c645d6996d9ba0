# SPDX-License-Identifier: Apache-2.0
"""Features of sketches are numbers of a fixed form."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tune import sketch_graphs as graphs
from tests.tune.test_sketch import space_of
from treadle.tune.sketch_features import NAMES


@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_features_and_estimates_are_numbers_of_a_fixed_form(name: str) -> None:
    space = space_of(name)
    points = space.sample(50, np.random.default_rng(5))
    found = space.features(points)
    assert found.shape == (50, len(NAMES))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    estimates = space.estimate(points)
    assert estimates.shape == (50,)
    assert (estimates > 0).all()
    np.testing.assert_array_equal(space.features(points[7:9]), found[7:9])
    np.testing.assert_array_equal(space.estimate(points[7:9]), estimates[7:9])
