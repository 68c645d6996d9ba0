# SPDX-License-Identifier: Apache-2.0
"""Extents of resized images are computed as the standard does, in float32."""

from __future__ import annotations

from treadle.expr.nodes import Var as Symbol
from treadle.graph.types import as_dim
from treadle.ops.resize_coordinates import scaled_extent


def test_scaled_extents_are_those_of_float32() -> None:
    h = Symbol("h")
    assert scaled_extent(10, 0.7) == 7  # 6.99999988 is not a float32
    assert scaled_extent(9, 0.5) == 4
    assert scaled_extent(h, 2.0) is as_dim(h * 2)
    assert scaled_extent(h, 1.5) is as_dim(h * 3 // 2)
    assert scaled_extent(h, 0.7) is None
