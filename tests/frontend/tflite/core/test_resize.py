# SPDX-License-Identifier: Apache-2.0
"""Image scaling against the reference interpreter."""

from __future__ import annotations

import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite

SIZES = [(8, 10), (3, 4), (7, 15)]


@pytest.mark.parametrize("op", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("way", ["", "align_corners", "half_pixel_centers"])
@pytest.mark.parametrize("size", SIZES)
def test_resizes(op: str, way: str, size: tuple[int, int]) -> None:
    g = Graph()
    x = g.input("x", (1, 4, 5, 3))
    options = {way: True} if way else {}
    made = g.op(op, (x, g.constant(size, "int32")), (1, *size, 3), options=options)
    check(g.result(made))


@pytest.mark.parametrize("op", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_quantised_resizes(op: str) -> None:
    g = Graph()
    x = g.input("x", (1, 4, 5, 3), "int8", Scale(0.1, 4))
    options = {"half_pixel_centers": True}
    made = g.op(
        op, (x, g.constant([8, 10], "int32")), (1, 8, 10, 3), "int8", Scale(0.1, 4), options
    )
    check(g.result(made))
