# SPDX-License-Identifier: Apache-2.0
"""Rounding to few bits against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.models import Graph
from tests.frontend.tensorflow.oracle import check


@pytest.mark.parametrize(("bits", "narrow"), [(8, False), (4, True)])
def test_rounding_to_steps_of_a_range(bits: int, narrow: bool, tmp_path: Path) -> None:
    x = np.linspace(-4, 4, 41, dtype="float32").reshape(1, 41)
    low, high, first, last = -1.3, 2.4, int(narrow), (1 << bits) - 1
    g = Graph()
    y = g.node("FakeQuantWithMinMaxVars", g.input("x", x.shape), g.constant(low), g.constant(high),
               num_bits=bits, narrow_range=narrow)  # fmt: skip
    step = (high - low) / (last - first)
    zero = np.floor(first - low / step + 0.5)
    down, up = (first - zero) * step, (last - zero) * step
    expected = np.floor((np.clip(x, down, up) - down) / step + 0.5) * step + down
    check(g, tmp_path, {"x": x}, [y], expected)
