# SPDX-License-Identifier: Apache-2.0
"""Choices among overlapping boxes against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, model
from tests.frontend.tflite.oracle import check, computed, reference

pytestmark = pytest.mark.tflite

RANDOM = np.random.default_rng(0)
BOXES, CLASSES, MOST = 40, 3, 10


def boxes() -> np.ndarray:
    corner = RANDOM.uniform(0, 3, (BOXES, 2))
    return np.concatenate([corner, corner + RANDOM.uniform(0.5, 2, (BOXES, 2))], 1).astype(
        "float32"
    )


@pytest.mark.parametrize("op", ["NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"])
def test_suppression(op: str) -> None:
    g = Graph()
    ins = [g.input("boxes", (BOXES, 4)), g.input("scores", (BOXES,)), g.constant(MOST, "int32"),
           g.constant(0.4, "float32"), g.constant(0.3, "float32")]  # fmt: skip
    results = [((MOST,), "int32", None), ((), "int32", None)]
    if op.endswith("5"):
        ins.append(g.constant(0.0, "float32"))
        results.insert(1, ((MOST,), "float32", None))
    given = {"boxes": boxes(), "scores": RANDOM.random(BOXES, "float32")}
    check(g.result(*g.multi(op, ins, results)), inputs=given)


def custom_options(**values: float) -> bytes:
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            (builder.Float if isinstance(value, float) else builder.Int)(name, value)
    return bytes(builder.Finish())


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("background", [0, 1])
def test_detections(regular: bool, background: int) -> None:
    g = Graph()
    columns = CLASSES + background
    anchors = [RANDOM.uniform(0, 1, (BOXES, 2)), RANDOM.uniform(0.1, 0.5, (BOXES, 2))]
    ins = [g.input("boxes", (1, BOXES, 4)), g.input("scores", (1, BOXES, columns))]
    ins.append(g.constant(np.concatenate(anchors, 1), "float32"))
    results = [((1, MOST, 4), "float32", None), ((1, MOST), "float32", None),
               ((1, MOST), "float32", None), ((1,), "float32", None)]  # fmt: skip
    custom = custom_options(
        max_detections=MOST, max_classes_per_detection=1, detections_per_class=6,
        num_classes=CLASSES, use_regular_nms=int(regular), nms_score_threshold=0.4,
        nms_iou_threshold=0.3, y_scale=10.0, x_scale=10.0, h_scale=5.0, w_scale=5.0,
    )  # fmt: skip
    g.result(*g.multi("CUSTOM.TFLite_Detection_PostProcess", ins, results, custom=custom))
    given = {"boxes": RANDOM.normal(size=(1, BOXES, 4)).astype("float32"),
             "scores": RANDOM.random((1, BOXES, columns), "float32")}  # fmt: skip
    content = model(g)
    expected, made = reference(content, given), computed(content, given)
    count = int(expected[3][0])
    assert 0 < count <= MOST
    assert made[3][0] == count
    for a, b in zip(made[:3], expected[:3], strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a[:, :count], b[:, :count], rtol=1e-5, atol=1e-6)
        assert not a[:, count:].any()
