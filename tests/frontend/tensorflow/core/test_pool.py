# SPDX-License-Identifier: Apache-2.0
"""Pools against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.core.test_conv import FLOAT, values, windows
from tests.frontend.tensorflow.models import Graph
from tests.frontend.tensorflow.oracle import check


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pools_do_not_count_padding(padding: str, tmp_path: Path) -> None:
    x = values(2, 7, 6, 3)
    g = Graph()
    image = g.input("x", x.shape)
    attributes = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": padding, "T": FLOAT}
    outputs = [g.node(op, image, **attributes) for op in ("MaxPool", "AvgPool")]
    found = windows(x, (3, 3), 2, padding == "SAME")
    expected = np.nanmax(found, (3, 4)), np.nanmean(found, (3, 4))
    check(g, tmp_path, {"x": x}, outputs, *expected)
