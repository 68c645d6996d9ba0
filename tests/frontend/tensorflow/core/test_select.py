# SPDX-License-Identifier: Apache-2.0
"""Choices whose number depends on data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.frontend.tensorflow.core.test_conv import FLOAT
from tests.frontend.tensorflow.models import Graph, Kind
from tests.frontend.tensorflow.oracle import check

BOXES = np.array([[0, 0, 2, 2], [0, 0, 2, 2.1], [3, 3, 5, 5], [9, 9, 10, 10]], "float32")
SCORES = np.array([0.6, 0.9, 0.7, 0.1], "float32")


def test_places_of_what_is_not_zero(tmp_path: Path) -> None:
    x = np.array([[0, 3, 0], [4, 0, 5]], "float32")
    g = Graph()
    y = g.node("Where", g.input("x", x.shape), T=FLOAT)
    check(g, tmp_path, {"x": x}, [y], [[0, 1], [1, 0], [1, 2]])


def test_distinct_elements(tmp_path: Path) -> None:
    x = np.array([5, 2, 5, 7, 2], "int32")
    g = Graph()
    y = g.node("Unique", g.input("x", x.shape, "int32"), T=Kind("int32"), out_idx=Kind("int32"))
    check(g, tmp_path, {"x": x}, [y, f"{y}:1"], [5, 2, 7], [0, 1, 0, 2, 1])


def test_the_best_of_overlapping_boxes(tmp_path: Path) -> None:
    g = Graph()
    boxes, scores = g.input("boxes", BOXES.shape), g.input("scores", SCORES.shape)
    limits = [g.constant(3, "int32"), g.constant(0.5), g.constant(0.3)]
    kinds = {"T": FLOAT, "T_threshold": FLOAT}
    few = g.node("NonMaxSuppressionV3", boxes, scores, *limits, **kinds)
    padded = g.node("NonMaxSuppressionV4", boxes, scores, *limits, pad_to_max_output_size=True,
                    **kinds)  # fmt: skip
    given = {"boxes": BOXES, "scores": SCORES}
    check(g, tmp_path, given, [few, padded, f"{padded}:1"], [1, 2], [1, 2, 0], 2)
