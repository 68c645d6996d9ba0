# SPDX-License-Identifier: Apache-2.0
"""Compares graphs with NumPy, and with TensorFlow too where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontend.tensorflow.models import Graph, computed


def has_tensorflow() -> bool:
    """True where TensorFlow is installed."""
    return importlib.util.find_spec("tensorflow") is not None


def reference(
    content: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]
) -> list[np.ndarray]:
    """Return the values of nodes of a GraphDef by TensorFlow."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    graph_def.ParseFromString(content)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            names = [o if ":" in o else f"{o}:0" for o in outputs]
            made = session.run(names, {f"{k}:0": v for k, v in inputs.items()})
    return [np.asarray(v) for v in made]


def check(
    graph: Graph,
    folder: Path,
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    *expected: Any,
    tolerance: float = 1e-5,
    **options: Any,
) -> None:
    """Compare outputs with what is expected, which TensorFlow must say too."""
    made = computed(graph, folder, inputs, outputs=outputs, **options)
    for value, wanted in zip(made, expected, strict=True):
        close(value, np.asarray(wanted), tolerance)
    if has_tensorflow():
        for value, wanted in zip(made, reference(graph.message(), inputs, outputs), strict=True):
            close(value, wanted, tolerance)
            assert value.dtype == wanted.dtype


def close(made: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    assert made.shape == wanted.shape
    np.testing.assert_allclose(
        made.astype("float64"), wanted.astype("float64"), rtol=tolerance, atol=tolerance
    )
