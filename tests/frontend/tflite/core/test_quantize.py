# SPDX-License-Identifier: Apache-2.0
"""Conversions between reals and integers against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantise_and_back(dtype: str) -> None:
    g = Graph()
    x = g.input("x", (200,))
    q = g.op("QUANTIZE", (x,), (200,), dtype, Scale(0.037, 0 if dtype == "int16" else 11))
    check(g.result(q, g.op("DEQUANTIZE", (q,), (200,))))


def test_middles_are_rounded_away_from_zero() -> None:
    g = Graph()
    x = g.input("x", (6,))
    given = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], "float32")
    (made,) = check(
        g.result(g.op("QUANTIZE", (x,), (6,), "int8", Scale(1.0))), inputs={"x": given}, steps=0
    )
    assert made.tolist() == [1, 2, 3, -1, -2, -3]


def test_from_one_scale_to_another() -> None:
    g = Graph()
    x = g.input("x", (2, 100), "int8", Scale(0.05, 3))
    check(g.result(g.op("QUANTIZE", (x,), (2, 100), "uint8", Scale(0.07, 120))))


def test_rounding_as_if_quantised() -> None:
    g = Graph()
    options = {"min": -1.5, "max": 2.0, "num_bits": 8, "narrow_range": False}
    check(g.result(g.op("FAKE_QUANT", (g.input("x", (200,)),), (200,), options=options)))
