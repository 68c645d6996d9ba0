# SPDX-License-Identifier: Apache-2.0
"""Activations with parameters, softmax and normalisations against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, model
from tests.frontend.tflite.oracle import check, computed

pytestmark = pytest.mark.tflite

RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-4, 4, shape).astype("float32")


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu(approximate: bool) -> None:
    g = Graph()
    options = {"approximate": approximate}
    check(g.result(g.op("GELU", (g.input("x", (3, 5)),), (3, 5), options=options)), tolerance=1e-4)


def test_prelu_and_leaky_relu() -> None:
    g = Graph()
    x = g.input("x", (2, 4, 4, 3))
    slopes = g.constant(values(1, 1, 3))
    made = g.op("PRELU", (x, slopes), (2, 4, 4, 3))
    check(g.result(made, g.op("LEAKY_RELU", (x,), (2, 4, 4, 3), options={"alpha": 0.2})))


def test_softmax() -> None:
    g = Graph()
    x = g.input("x", (3, 7))
    made = g.op("SOFTMAX", (x,), (3, 7), options={"beta": 1.5})
    check(g.result(made, g.op("LOG_SOFTMAX", (x,), (3, 7))))


def test_normalised_rows() -> None:
    g = Graph()
    x = g.input("x", (1, 3, 4, 10))
    check(g.result(g.op("L2_NORMALIZATION", (x,), (1, 3, 4, 10), options={})))


def test_response_of_neighbours() -> None:
    """As tf.nn.lrn has it; the reference kernel leaves the last neighbour out."""
    g = Graph()
    x = g.input("x", (1, 2, 2, 10))
    options = {"radius": 2, "bias": 1.0, "alpha": 0.1, "beta": 0.75}
    g.result(g.op("LOCAL_RESPONSE_NORMALIZATION", (x,), (1, 2, 2, 10), options=options))
    given = values(1, 2, 2, 10)
    (made,) = computed(model(g), {"x": given})
    squares = np.pad(given**2, [(0, 0)] * 3 + [(2, 2)])
    total = sum(squares[..., k : k + 10] for k in range(5))
    np.testing.assert_allclose(made, given / (1 + 0.1 * total) ** 0.75, rtol=1e-5)
