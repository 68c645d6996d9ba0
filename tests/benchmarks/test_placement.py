# SPDX-License-Identifier: Apache-2.0
"""What stays with a process is told from what passes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.placement import Spread

pytestmark = pytest.mark.tiny


def test_a_process_that_is_slower_throughout_is_found() -> None:
    random = np.random.default_rng(0)
    clock = random.uniform(1.0, 1.3, (30, 1))  # of the machine, the same for all
    own = np.array([1.0, 0.99, 1.03, 1.0, 1.0])
    found = Spread.of(clock * own * random.uniform(0.998, 1.002, (30, 5)))
    np.testing.assert_allclose(found.ratios, own, atol=3e-3)
    assert found.correlation > 0.9


def test_noise_does_not_stay() -> None:
    found = Spread.of(np.random.default_rng(1).uniform(0.9, 1.1, (40, 8)))
    assert abs(found.correlation) < 0.7
