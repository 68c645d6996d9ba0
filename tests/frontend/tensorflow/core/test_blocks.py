# SPDX-License-Identifier: Apache-2.0
"""Blocks of pixels, diagonals and bands against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph, Kind
from tests.frontend.tensorflow.oracle import check

INT = Kind("int32")


def test_blocks_go_to_channels_and_back(tmp_path: Path) -> None:
    x = values(1, 4, 6, 3)
    g = Graph()
    deep = g.node("SpaceToDepth", g.input("x", x.shape), block_size=2, T=FLOAT)
    outputs = [deep, g.node("DepthToSpace", deep, block_size=2, T=FLOAT)]
    blocks = x.reshape(1, 2, 2, 3, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 3, 12)
    check(g, tmp_path, {"x": x}, outputs, blocks, x)


def test_blocks_go_to_the_batch_and_back(tmp_path: Path) -> None:
    x = values(2, 3, 4, 1)
    g = Graph()
    block, pads = g.constant([2, 2], "int32"), g.constant([[1, 0], [0, 0]], "int32")
    kinds = {"T": FLOAT, "Tblock_shape": INT}
    many = g.node("SpaceToBatchND", g.input("x", x.shape), block, pads, Tpaddings=INT, **kinds)
    outputs = [many, g.node("BatchToSpaceND", many, block, pads, Tcrops=INT, **kinds)]
    wide = np.pad(x, [(0, 0), (1, 0), (0, 0), (0, 0)])
    parts = [wide[:, i::2, j::2] for i in range(2) for j in range(2)]
    check(g, tmp_path, {"x": x}, outputs, np.concatenate(parts), x)


def test_diagonals_and_bands(tmp_path: Path) -> None:
    x, m = values(2, 3), values(2, 4, 5)
    g = Graph()
    band = [g.constant(v, "int64") for v in (1, -1)]
    outputs = [
        g.node("MatrixDiag", g.input("x", x.shape), T=FLOAT),
        g.node("MatrixBandPart", g.input("m", m.shape), *band, T=FLOAT, Tindex=Kind("int64")),
    ]
    expected = np.stack([np.diag(row) for row in x]), np.triu(m, -1)
    check(g, tmp_path, {"x": x, "m": m}, outputs, *expected)
