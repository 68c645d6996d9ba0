# SPDX-License-Identifier: Apache-2.0
"""Image scaling against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph
from tests.frontend.tensorflow.oracle import check


def places(size: int, wanted: int, corners: bool, half: bool) -> np.ndarray:
    if corners:
        return np.arange(wanted) * ((size - 1) / (wanted - 1))
    at = np.arange(wanted) * (size / wanted)
    return at + 0.5 * size / wanted - 0.5 if half else at


def linear(x: np.ndarray, axis: int, at: np.ndarray) -> np.ndarray:
    low = np.clip(np.floor(at).astype(int), 0, x.shape[axis] - 1)
    high = np.clip(np.floor(at).astype(int) + 1, 0, x.shape[axis] - 1)
    share = (at - np.floor(at)).reshape([-1 if k == axis else 1 for k in range(4)])
    share = np.where(np.reshape(at < 0, share.shape), 0, share)
    return np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share


@pytest.mark.parametrize(("corners", "half"), [(False, True), (False, False), (True, False)])
def test_bilinear(corners: bool, half: bool, tmp_path: Path) -> None:
    x = values(1, 4, 5, 3)
    g = Graph()
    y = g.node("ResizeBilinear", g.input("x", x.shape), g.constant([7, 3], "int32"), T=FLOAT,
               align_corners=corners, half_pixel_centers=half)  # fmt: skip
    expected = linear(linear(x, 1, places(4, 7, corners, half)), 2, places(5, 3, corners, half))
    check(g, tmp_path, {"x": x}, [y], expected)


@pytest.mark.parametrize("half", [True, False])
def test_nearest(half: bool, tmp_path: Path) -> None:
    x = values(1, 4, 5, 3)
    g = Graph()
    y = g.node("ResizeNearestNeighbor", g.input("x", x.shape), g.constant([8, 3], "int32"),
               T=FLOAT, half_pixel_centers=half)  # fmt: skip
    rows, columns = (
        np.floor(np.arange(n) * (d / n) + (0.5 * d / n if half else 0)).astype(int)
        for d, n in ((4, 8), (5, 3))
    )
    check(g, tmp_path, {"x": x}, [y], x[:, rows][:, :, columns])
