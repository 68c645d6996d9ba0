# SPDX-License-Identifier: Apache-2.0
"""Sketches that would become too much code are refused before they are built."""

from __future__ import annotations

import numpy as np

from tests.targets import AVX512
from tests.tune.test_sketch import space_of
from treadle.tune.sketch_cost import costs_of
from treadle.tune.sketch_limits import within_limits
from treadle.tune.sketch_plans import MOST_STATEMENTS
from treadle.tune.sketch_slots import drawn_rows


def test_too_much_code_is_refused_before_it_is_built() -> None:
    space = space_of("interleaved")
    for point in space.sample(30, np.random.default_rng(9)):
        made = space.choice(point)
        assert made is not None
    sketched = space.sketches[0]
    rows = drawn_rows(sketched.slots, 400, np.random.default_rng(10))
    valid = within_limits(sketched, rows, AVX512)
    assert 0 < valid.sum() < len(valid)
    written = costs_of(sketched, rows, AVX512).plans[-1].tiled
    assert written is not None
    assert (written.statements[valid] <= MOST_STATEMENTS).all()
