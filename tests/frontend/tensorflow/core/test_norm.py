# SPDX-License-Identifier: Apache-2.0
"""Normalisations against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph, computed
from tests.frontend.tensorflow.oracle import check
from treadle.errors import ModelError


def test_batch_norm_by_statistics_and_softmax(tmp_path: Path) -> None:
    x, scale, shift, mean = values(2, 4, 4, 3), values(3), values(3), values(3)
    variance = np.abs(values(3)) + 0.5
    g = Graph()
    image = g.input("x", x.shape)
    vectors = [g.constant(v) for v in (scale, shift, mean, variance)]
    normal = g.node("FusedBatchNormV3", image, *vectors, is_training=False, epsilon=0.01, T=FLOAT,
                    U=FLOAT)  # fmt: skip
    outputs = [normal, g.node("Softmax", image, T=FLOAT), g.node("LogSoftmax", image, T=FLOAT)]
    power = np.exp(x - x.max(-1, keepdims=True))
    soft = power / power.sum(-1, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 0.01) * scale + shift
    check(g, tmp_path, {"x": x}, outputs, expected, soft, np.log(soft), tolerance=1e-4)


def test_statistics_of_the_batch_are_refused(tmp_path: Path) -> None:
    g = Graph()
    vectors = [g.constant(values(3)) for _ in range(4)]
    g.node("FusedBatchNormV3", g.input("x", (1, 2, 2, 3)), *vectors, is_training=True, T=FLOAT)
    with pytest.raises(ModelError, match="statistics of its own batch"):
        computed(g, tmp_path, {})


def test_response_of_neighbours(tmp_path: Path) -> None:
    x = values(1, 2, 2, 7)
    g = Graph()
    y = g.node("LRN", g.input("x", x.shape), depth_radius=2, bias=1.5, alpha=0.2, beta=0.75,
               T=FLOAT)  # fmt: skip
    wide = np.pad(x**2, [(0, 0)] * 3 + [(2, 2)])
    total = sum(wide[..., k : k + 7] for k in range(5))
    check(g, tmp_path, {"x": x}, [y], x / (1.5 + 0.2 * total) ** 0.75, tolerance=1e-4)
