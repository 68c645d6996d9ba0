# SPDX-License-Identifier: Apache-2.0
"""Compiles the TFLite detector, finds shapes in pictures it never saw, and shows one of them.

python -m examples.detector.demo
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import treadle
from examples.detector import data

MODEL = Path(__file__).parent / "detector.tflite"
PICTURES = 200
LEAST_SCORE = 0.5
OVERLAP = 0.4
"""Of two boxes that overlap more, the one with the smaller score is dropped."""

_SHADES = " .:-=+*#%@"
_WIDTH = 64


@dataclass(frozen=True)
class Finding:
    """A shape that was found: its box (top, left, bottom, right) in pixels, name and score."""

    box: tuple[float, float, float, float]
    name: str
    score: float


class Detector:
    """The compiled detector: from a picture uint8[64, 64, 1] to the shapes in it."""

    def __init__(self, path: Path = MODEL) -> None:
        """Compile a TFLite file."""
        self._run = treadle.compile(path)
        (self._input,) = treadle.from_tflite(path).main.params

    def __call__(self, picture: NDArray[np.uint8]) -> list[Finding]:
        """Return what is in a picture, the surest first."""
        outputs = [np.asarray(v) for v in self._run.run({self._input.name: picture[None]})]
        grids = {v.shape[-1]: (v[0].astype(np.float32) + 128) / 256 for v in outputs}
        return found(grids[len(data.NAMES)], grids[4])


def found(scores: NDArray[np.float32], boxes: NDArray[np.float32]) -> list[Finding]:
    """Return the shapes in scores [8, 8, 3] and boxes [8, 8, 4], each of them once."""
    cells = np.argwhere(scores > LEAST_SCORE)
    order = sorted(cells.tolist(), key=lambda c: -scores[tuple(c)])
    kept: list[Finding] = []
    for y, x, label in order:
        middle = (np.array([y, x]) + boxes[y, x, :2]) * data.CELL
        half = boxes[y, x, 2:] * data.SIDE / 2
        low, high = (middle - half).tolist(), (middle + half).tolist()
        box = (low[0], low[1], high[0], high[1])
        if all(overlap(box, other.box) < OVERLAP for other in kept):
            kept.append(Finding(box, data.NAMES[label], float(scores[y, x, label])))
    return kept


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Return the area that two boxes share as a part of what they cover together."""
    sides = [max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), 0.0) for k in (0, 1)]
    shared = sides[0] * sides[1]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / max(sum(areas) - shared, 1e-6)


def right_of(findings: list[Finding], scene: data.Scene) -> int:
    """Return how many shapes of a scene were found: with their name, half overlapped."""
    return sum(
        any(f.name == data.NAMES[label] and overlap(f.box, tuple(box)) >= 0.5 for f in findings)
        for box, label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True)
    )


def drawn(picture: NDArray[np.uint8], findings: list[Finding]) -> str:
    """Return a picture as text, two rows of pixels to a line, with the first letter at each box."""
    levels = picture[::2, :, 0].astype(int) * (len(_SHADES) - 1) // 255
    rows = [[_SHADES[v] for v in row] for row in levels]
    for finding in findings:
        top, left, bottom, right = (round(v) for v in finding.box)
        for x in range(max(left, 0), min(right, _WIDTH)):
            for y in (max(top, 0), min(bottom, data.SIDE) - 1):
                rows[y // 2][x] = finding.name[0]
    return "\n".join("".join(row) for row in rows)


def main() -> None:
    """Compile, run, compare, show."""
    random = np.random.default_rng(1)
    detector, scenes = Detector(), [data.scene(random) for _ in range(PICTURES)]
    findings = [detector(scene.picture) for scene in scenes]
    right = sum(right_of(f, s) for f, s in zip(findings, scenes, strict=True))
    shapes, boxes = sum(len(s.labels) for s in scenes), sum(map(len, findings))
    print(drawn(scenes[0].picture, findings[0]))
    for finding in findings[0]:
        place = ", ".join(f"{v:.0f}" for v in finding.box)
        print(f"{finding.name:>8}  {finding.score:.2f}  at {place}")
    print(f"{right} of {shapes} shapes found in {PICTURES} pictures, by {boxes} boxes")


if __name__ == "__main__":
    main()
