# SPDX-License-Identifier: Apache-2.0
"""Selections whose size depends on data against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


def test_where() -> None:
    g = Graph()
    x = g.input("x", (4, 5), "bool")
    check(g.result(g.op("WHERE", (x,), (1, 2), "int64")))


def test_unique() -> None:
    g = Graph()
    x = g.input("x", (12,), "int32")
    both = g.multi(
        "UNIQUE", (x,), [((1,), "int32", None), ((12,), "int32", None)], {"idx_out_type": 2}
    )
    given = np.random.default_rng(0).integers(0, 5, 12, "int32")
    check(g.result(*both), inputs={"x": given})
