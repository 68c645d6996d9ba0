# SPDX-License-Identifier: Apache-2.0
"""The softmax of 16-bit integers is that of the reference interpreter in every element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


@pytest.mark.parametrize(("width", "scale"), [(1, 0.001), (2, 0.001), (10, 0.0005), (700, 0.0003)])
@pytest.mark.parametrize("beta", [1.0, 0.7])
def test_rows_of_16_bits(width: int, scale: float, beta: float) -> None:
    g = Graph()
    x = g.input("x", (40, width), "int16", Scale(scale))
    g.result(g.op("SOFTMAX", (x,), (40, width), "int16", Scale(2**-15), {"beta": beta}))
    random = np.random.default_rng(0)
    values = random.integers(-32768, 32767, (40, width), endpoint=True)
    rows = np.where(np.arange(40)[:, None] % 2, values, values // 16).astype("int16")
    check(g, steps=0, inputs={"x": rows})
