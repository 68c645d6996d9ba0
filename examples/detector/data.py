# SPDX-License-Identifier: Apache-2.0
"""Pictures of shapes on noisy ground, with the box and the name of each shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NAMES = ("circle", "square", "triangle")
SIDE = 64
CELLS = 8
"""Cells of the grid to a side: each finds at most one shape, whose middle lies in it."""

CELL = SIDE // CELLS
_SMALLEST, _LARGEST = 10, 24
_MOST = 4
_TRIES = 20


@dataclass(frozen=True)
class Scene:
    """A picture uint8[64, 64, 1], and per shape a box (top, left, bottom, right) and a label."""

    picture: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]


def scene(random: np.random.Generator) -> Scene:
    """Return one to four shapes that do not touch, brighter or darker than the ground."""
    ground = random.uniform(60, 190)
    pixels = np.full((SIDE, SIDE), ground) + random.normal(0, 8, (SIDE, SIDE))
    boxes: list[tuple[int, int, int, int]] = []
    labels: list[int] = []
    wanted = int(random.integers(1, _MOST + 1))
    for _ in range(_TRIES):
        size = int(random.integers(_SMALLEST, _LARGEST + 1))
        top, left = (int(v) for v in random.integers(0, SIDE - size, 2))
        box = (top, left, top + size, left + size)
        if len(boxes) == wanted or any(_touch(box, other) for other in boxes):
            continue
        label, shift = int(random.integers(len(NAMES))), random.choice([-1, 1]) * 50
        pixels[top : top + size, left : left + size] += shift * _mask(label, size)
        boxes.append(box)
        labels.append(label)
    picture = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return Scene(picture[..., None], np.array(boxes, np.float32), np.array(labels))


def _touch(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    return a[0] < b[2] + 2 and b[0] < a[2] + 2 and a[1] < b[3] + 2 and b[1] < a[3] + 2


def _mask(label: int, size: int) -> NDArray[np.bool_]:
    y, x = (np.arange(size) + 0.5) / size * 2 - 1, (np.arange(size) + 0.5) / size * 2 - 1
    if NAMES[label] == "circle":
        return np.asarray(y[:, None] ** 2 + x**2 <= 1)
    if NAMES[label] == "square":
        return np.ones((size, size), bool)
    return np.asarray(np.abs(x) <= (y[:, None] + 1) / 2)
