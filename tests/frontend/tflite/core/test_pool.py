# SPDX-License-Identifier: Apache-2.0
"""Pools and resizes against the reference interpreter."""

from __future__ import annotations

import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"])
@pytest.mark.parametrize(("padding", "shape"), [(0, (1, 4, 5, 3)), (1, (1, 3, 4, 3))])
def test_pools(op: str, padding: int, shape: tuple[int, ...]) -> None:
    g = Graph()
    options = {
        "padding": padding,
        "stride_w": 2,
        "stride_h": 2,
        "filter_width": 3,
        "filter_height": 3,
    }
    check(g.result(g.op(op, (g.input("x", (1, 7, 9, 3)),), shape, options=options)))


@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
@pytest.mark.parametrize("activation", [0, 1])
def test_quantised_pools(op: str, activation: int) -> None:
    g = Graph()
    options = {"padding": 0, "stride_w": 2, "stride_h": 2, "filter_width": 3, "filter_height": 2,
               "fused_activation_function": activation}  # fmt: skip
    x = g.input("x", (1, 8, 8, 3), "int8", Scale(0.1, 4))
    check(g.result(g.op(op, (x,), (1, 4, 4, 3), "int8", Scale(0.1, 4), options)))
