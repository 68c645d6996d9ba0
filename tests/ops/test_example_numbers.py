# SPDX-License-Identifier: Apache-2.0
"""Numbers of examples: in their range, all over it, and the same in every process."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.ops.example_numbers import integers, uniform

pytestmark = pytest.mark.tiny


def test_floats_fill_their_range_evenly() -> None:
    found = uniform((100, 100), -2, 6, seed=3)
    assert found.dtype == np.float64
    assert found.shape == (100, 100)
    assert found.min() >= -2
    assert found.max() < 6
    counts, _ = np.histogram(found, 8)
    assert abs(counts - 1250).max() < 150
    assert abs(np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1]) < 0.05


def test_integers_take_every_value_of_their_range() -> None:
    found = integers((40, 50), -3, 4)
    assert found.dtype == np.int64
    assert set(found.ravel()) == set(range(-3, 4))


def test_the_numbers_are_those_of_the_algorithm() -> None:
    """The first words of SplitMix64 from state 0, as it is published."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    wanted = [(word >> 11) / 2**53 for word in published]
    np.testing.assert_array_equal(uniform((3,), 0, 1), wanted)
    assert not np.array_equal(uniform((3,), 0, 1, seed=1), uniform((3,), 0, 1))


def test_nothing_is_an_array_too() -> None:
    assert uniform((0, 3), 0, 1).shape == (0, 3)
    assert integers((), 0, 5).shape == ()
