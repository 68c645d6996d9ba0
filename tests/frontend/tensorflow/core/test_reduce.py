# SPDX-License-Identifier: Apache-2.0
"""Reductions against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph, Kind
from tests.frontend.tensorflow.oracle import check

X = values(3, 4, 5)
INT = Kind("int32")
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "Mean": np.mean, "Sum": np.sum, "Prod": np.prod, "Max": np.max, "Min": np.min,
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("axes", "kept"), [([1, -1], True), ([0], False)])
def test_reductions(op: str, axes: list[int], kept: bool, tmp_path: Path) -> None:
    g = Graph()
    y = g.node(op, g.input("x", X.shape), g.constant(axes, "int32"), keep_dims=kept, T=FLOAT,
               Tidx=INT)  # fmt: skip
    check(g, tmp_path, {"x": X}, [y], REDUCTIONS[op](X, tuple(axes), keepdims=kept), tolerance=1e-4)


def test_whole_images_are_reduced(tmp_path: Path) -> None:
    x, w = values(2, 4, 4, 3), values(1, 1, 3, 6)
    g = Graph()
    y = g.node("Conv2D", g.input("x", x.shape), g.constant(w), strides=[1, 1, 1, 1],
               padding="SAME", T=FLOAT)  # fmt: skip
    y = g.node("Mean", y, g.constant([1, 2], "int32"), T=FLOAT, Tidx=INT)
    check(g, tmp_path, {"x": x}, [y], (x @ w[0, 0]).mean((1, 2)), tolerance=1e-4)


def test_places_orders_and_running_sums(tmp_path: Path) -> None:
    g = Graph()
    x, axis = g.input("x", X.shape), g.constant(1, "int32")
    best = g.node("TopKV2", x, g.constant(2, "int32"), T=FLOAT)
    outputs = [
        g.node("ArgMax", x, axis, T=FLOAT, output_type=INT),
        best,
        f"{best}:1",
        g.node("Cumsum", x, axis, exclusive=True, reverse=True, T=FLOAT),
    ]
    order = np.argsort(-X, -1)[..., :2]
    behind = np.flip(np.cumsum(np.flip(X, 1), 1), 1) - X
    expected = [X.argmax(1), np.take_along_axis(X, order, -1), order, behind]
    check(g, tmp_path, {"x": X}, outputs, *expected, tolerance=1e-4)
