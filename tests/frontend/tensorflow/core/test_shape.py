# SPDX-License-Identifier: Apache-2.0
"""Shapes, and tensors made of numbers, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph, Kind, computed
from tests.frontend.tensorflow.oracle import check

INT = Kind("int32")


def test_shapes_change(tmp_path: Path) -> None:
    x = values(2, 1, 6)
    g = Graph()
    given = g.input("x", x.shape)
    outputs = [
        g.node("Reshape", given, g.constant([3, -1], "int32"), T=FLOAT, Tshape=INT),
        g.node("Squeeze", given, squeeze_dims=[1], T=FLOAT),
        g.node("ExpandDims", given, g.constant(-1, "int32"), T=FLOAT, Tdim=INT),
        g.node("BroadcastTo", given, g.constant([2, 4, 6], "int32"), T=FLOAT, Tidx=INT),
        g.node("Shape", given, T=FLOAT, out_type=INT),
        g.node("Size", given, T=FLOAT, out_type=INT),
        g.node("Rank", given, T=FLOAT),
    ]
    expected = [x.reshape(3, 4), x[:, 0], x[..., None], np.broadcast_to(x, (2, 4, 6)), [2, 1, 6],
                12, 3]  # fmt: skip
    check(g, tmp_path, {"x": x}, outputs, *expected)


def test_tensors_are_made(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", (3,), "int32")
    on, off = g.constant(1.0), g.constant(-1.0)
    bounds = [g.constant(v, "int32") for v in (2, 9, 3)]
    outputs = [
        g.node("Fill", g.constant([2, 3], "int32"), on, T=FLOAT, index_type=INT),
        g.node("Range", *bounds, Tidx=INT),
        g.node("OneHot", x, g.constant(4, "int32"), on, off, axis=-1, T=FLOAT, TI=INT),
    ]
    hot = np.where(np.array([[0], [3], [-1]]) == np.arange(4), 1, -1)
    given = {"x": np.array([0, 3, -1], "int32")}
    check(g, tmp_path, given, outputs, np.ones((2, 3)), [2, 5, 8], hot)


def test_shapes_of_unknown_sizes_stay_symbolic(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", (-1, 4))
    shape = g.node("Shape", x, T=FLOAT, out_type=INT)
    bounds = [g.constant([v], "int32") for v in (0, 1, 1)]
    batch = g.node("StridedSlice", shape, *bounds, T=INT, Index=INT, shrink_axis_mask=1)
    wanted = g.node("Pack", batch, g.constant(2, "int32"), g.constant(2, "int32"), N=3, T=INT)
    y = g.node("Reshape", x, wanted, T=FLOAT, Tshape=INT)
    for n in (1, 5):
        value = values(n, 4)
        (made,) = computed(g, tmp_path, {"x": value}, outputs=[y], dynamic=True)
        np.testing.assert_array_equal(made, value.reshape(n, 2, 2))
