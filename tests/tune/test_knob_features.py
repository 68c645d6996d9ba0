# SPDX-License-Identifier: Apache-2.0
"""The columns that a cost model learns from have names."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tune.test_paths import learned
from treadle.tune.knob_features import KnobColumns

pytestmark = pytest.mark.tiny


def test_every_column_has_a_name() -> None:
    paths = learned({"count": 1}, {"count": 4})
    columns = KnobColumns(paths.knobs, paths.values)
    walk = paths.draw(20, np.random.default_rng(0))
    rows = columns.rows(paths.values, paths.by_knob(walk.rows), paths.excess_by_knob(walk))
    assert rows.shape == (20, len(columns.names))
    assert columns.names[:4] == ["count.0", "count.cost", "place.0", "place.cost"]
    counts = [paths.values[c][1] for c in walk.rows[:, 0].tolist()]
    assert rows[:, 0] == pytest.approx([np.log2(1 + int(c)) for c in counts])  # type: ignore[arg-type]
