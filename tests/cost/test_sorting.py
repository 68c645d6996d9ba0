# SPDX-License-Identifier: Apache-2.0
"""Few elements of a long row are kept in order, many are sorted."""

from __future__ import annotations

import pytest

from treadle.cost.sorting import keeps_best

pytestmark = pytest.mark.tiny


def test_as_measured_on_zen_4() -> None:
    kept = [(1, 256), (64, 1024), (128, 4096), (256, 4096), (512, 16384), (1024, 65536)]
    sorted_ = [(256, 256), (512, 1024), (1024, 1024), (512, 4096), (2048, 4096), (2048, 16384)]
    assert all(keeps_best(k, n) for k, n in kept)
    assert not any(keeps_best(k, n) for k, n in sorted_)


def test_rows_of_any_length() -> None:
    assert keeps_best(100, None)
    assert not keeps_best(4000, None)
    assert not keeps_best(1, 0)
