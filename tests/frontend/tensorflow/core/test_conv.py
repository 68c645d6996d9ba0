# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools against sums over windows in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.models import Graph, Kind
from tests.frontend.tensorflow.oracle import check

RANDOM = np.random.default_rng(0)
FLOAT = Kind("float32")


def values(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def windows(x: np.ndarray, kernel: Sequence[int], stride: int, same: bool) -> np.ndarray:
    """Return [n, h, w, kernel h, kernel w, c] of images; padding is NaN."""
    spatial = x.shape[1:3]
    count, ends = [], []
    for d, k in zip(spatial, kernel, strict=True):
        count.append(-(-d // stride) if same else (d - k) // stride + 1)
        pad = max((count[-1] - 1) * stride + k - d, 0)
        ends.append((pad // 2, pad - pad // 2))
    wide = np.pad(x, [(0, 0), *ends, (0, 0)], constant_values=np.nan)
    rows = [
        [wide[:, i * stride : i * stride + kernel[0], j * stride : j * stride + kernel[1]]
         for j in range(count[1])]
        for i in range(count[0])
    ]  # fmt: skip
    return np.stack([np.stack(r, 1) for r in rows], 1)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_with_bias(padding: str, stride: int, tmp_path: Path) -> None:
    x, w, b = values(2, 8, 7, 3), values(3, 2, 3, 5), values(5)
    g = Graph()
    attributes = {"strides": [1, stride, stride, 1], "padding": padding, "T": FLOAT}
    y = g.node("Conv2D", g.input("x", x.shape), g.constant(w), **attributes)
    y = g.node("BiasAdd", y, g.constant(b), T=FLOAT)
    found = np.nan_to_num(windows(x, (3, 2), stride, padding == "SAME"))
    check(g, tmp_path, {"x": x}, [y], np.einsum("nhwijc,ijco->nhwo", found, w) + b, tolerance=1e-4)


def test_depthwise_convolutions_have_filters_per_channel(tmp_path: Path) -> None:
    x, w = values(1, 6, 6, 3), values(3, 3, 3, 2)
    g = Graph()
    attributes = {"strides": [1, 1, 1, 1], "padding": "SAME", "T": FLOAT}
    y = g.node("DepthwiseConv2dNative", g.input("x", x.shape), g.constant(w), **attributes)
    found = np.nan_to_num(windows(x, (3, 3), 1, True))
    expected = np.einsum("nhwijc,ijcm->nhwcm", found, w).reshape(1, 6, 6, 6)
    check(g, tmp_path, {"x": x}, [y], expected, tolerance=1e-4)


def test_explicit_padding_and_groups(tmp_path: Path) -> None:
    x, w = values(1, 5, 5, 4), values(3, 3, 2, 6)
    g = Graph()
    pads = [0, 0, 1, 2, 0, 1, 0, 0]
    y = g.node("Conv2D", g.input("x", x.shape), g.constant(w), strides=[1, 1, 1, 1], T=FLOAT,
               padding="EXPLICIT", explicit_paddings=pads)  # fmt: skip
    wide = np.pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)])
    parts = [
        np.einsum("nhwijc,ijco->nhwo", windows(wide[..., 2 * k : 2 * k + 2], (3, 3), 1, False),
                  w[..., 3 * k : 3 * k + 3])
        for k in range(2)
    ]  # fmt: skip
    check(g, tmp_path, {"x": x}, [y], np.concatenate(parts, -1), tolerance=1e-4)


@pytest.mark.parametrize(("padding", "size"), [("SAME", 8), ("SAME", 7), ("VALID", 9)])
def test_transposed_convolutions(padding: str, size: int, tmp_path: Path) -> None:
    x, w = values(1, 4, 4, 3), values(3, 3, 2, 3)
    g = Graph()
    shape = g.constant([1, size, size, 2], "int32")
    y = g.node("Conv2DBackpropInput", shape, g.constant(w), g.input("x", x.shape), T=FLOAT,
               strides=[1, 2, 2, 1], padding=padding)  # fmt: skip
    whole = np.zeros((1, 9, 9, 2), "float32")
    for i in range(4):
        for j in range(4):
            whole[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum(
                "nc,ijoc->nijo", x[:, i, j], w
            )
    first = (9 - size) // 2 if padding == "SAME" else 0
    expected = whole[:, first : first + size, first : first + size]
    check(g, tmp_path, {"x": x}, [y], expected, tolerance=1e-4)


def test_volumes(tmp_path: Path) -> None:
    x, w = values(1, 3, 4, 4, 2), values(1, 3, 3, 2, 3)
    g = Graph()
    y = g.node("Conv3D", g.input("x", x.shape), g.constant(w), strides=[1, 1, 1, 1, 1],
               padding="VALID", T=FLOAT)  # fmt: skip
    slices = [
        np.einsum("nhwijc,ijco->nhwo", windows(x[:, k], (3, 3), 1, False), w[0]) for k in range(3)
    ]
    check(g, tmp_path, {"x": x}, [y], np.stack(slices, 1), tolerance=1e-4)
