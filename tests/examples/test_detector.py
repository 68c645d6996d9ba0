# SPDX-License-Identifier: Apache-2.0
"""The detector example: its pictures, the committed model, and the demonstration."""

from __future__ import annotations

import numpy as np
import pytest

from examples.detector import data, demo

RANDOM_PICTURES = 60


def scenes(count: int) -> list[data.Scene]:
    random = np.random.default_rng(7)
    return [data.scene(random) for _ in range(count)]


def test_shapes_lie_inside_of_their_pictures_and_apart() -> None:
    for scene in scenes(20):
        assert scene.picture.shape == (data.SIDE, data.SIDE, 1)
        assert len(scene.boxes) == len(scene.labels) >= 1
        assert scene.boxes.min() >= 0
        assert scene.boxes.max() <= data.SIDE
        for k, box in enumerate(scene.boxes.tolist()):
            others = scene.boxes.tolist()[k + 1 :]
            assert all(demo.overlap(tuple(box), tuple(other)) == 0 for other in others)


def test_committed_model_finds_shapes_it_never_saw() -> None:
    detector, tried = demo.Detector(), scenes(RANDOM_PICTURES)
    findings = [detector(s.picture) for s in tried]
    shapes = sum(len(s.labels) for s in tried)
    right = sum(demo.right_of(f, s) for f, s in zip(findings, tried, strict=True))
    assert right >= 0.9 * shapes
    assert sum(map(len, findings)) <= 1.1 * shapes


@pytest.mark.tflite
def test_committed_model_is_the_interpreters() -> None:
    from tests.frontend.tflite.oracle import computed, reference

    content = demo.MODEL.read_bytes()
    name = demo.treadle.from_tflite(demo.MODEL).main.params[0].name
    for scene in scenes(8):
        inputs = {name: scene.picture[None]}
        for a, b in zip(computed(content, inputs), reference(content, inputs), strict=True):
            np.testing.assert_array_equal(a, b)


def test_demonstration_shows_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    demo.main()
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].endswith("boxes")
    assert len(shown) > data.SIDE // 2


def test_boxes_that_overlap_are_found_once() -> None:
    scores, boxes = np.zeros((8, 8, 3), np.float32), np.zeros((8, 8, 4), np.float32)
    scores[2, 2, 1], scores[2, 3, 1], scores[6, 6, 0] = 0.9, 0.8, 0.7
    boxes[2, 2], boxes[2, 3], boxes[6, 6] = (0.5, 0.9, 0.3, 0.3), (0.5, 0.1, 0.3, 0.3), 0.2
    assert [f.name for f in demo.found(scores, boxes)] == ["square", "circle"]
