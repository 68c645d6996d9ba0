# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression against its definition, box by box, and as machine code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.schedules.compiled import check
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Var
from treadle.graph.types import TensorType
from treadle.ops.nms import NonMaxSuppressionAttrs, non_max_suppression


def common(p: np.ndarray, q: np.ndarray) -> float:
    """Return the area of two boxes of opposite corners over that of both together."""
    low, high = np.minimum(p[:2], p[2:]), np.maximum(p[:2], p[2:])
    first, last = np.minimum(q[:2], q[2:]), np.maximum(q[:2], q[2:])
    sides = np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
    area = float(np.prod(sides))
    whole = float(np.prod(high - low) + np.prod(last - first)) - area
    return area / whole if area > 0 else 0.0


def defined(
    boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, lowest: float
) -> list[tuple[int, int, int]]:
    """Return (batch, class, box) of what stays: by score, none over a better one that stays."""
    rows = []
    for batch, classes in enumerate(scores):
        for class_, values in enumerate(classes):
            kept: list[int] = []
            for box in sorted(range(len(values)), key=lambda k: -values[k]):
                over = any(common(boxes[batch, box], boxes[batch, k]) > overlap for k in kept)
                if len(kept) < limit and values[box] > lowest and not over:
                    kept.append(box)
            rows += [(batch, class_, box) for box in kept]
    return rows


def operands(seed: int, limit: int, overlap: float, lowest: float) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    boxes = draw.random((2, 24, 4)).astype(np.float32)
    scores = draw.integers(0, 8, (2, 3, 24)).astype(np.float32) / 8  # many equal ones
    numbers = (np.array(limit), np.float32(overlap), np.float32(lowest))
    return [boxes, scores, *map(np.asarray, numbers)]


@pytest.mark.parametrize(
    ("limit", "overlap", "lowest"), [(24, 0.3, 0.0), (3, 0.1, 0.4), (24, 1.0, -1.0), (0, 0.5, 0.0)]
)
@pytest.mark.parametrize("seed", range(3))
def test_what_stays_is_what_the_definition_says(
    seed: int, limit: int, overlap: float, lowest: float
) -> None:
    given = operands(seed, limit, overlap, lowest)
    rows, count = non_max_suppression.reference(NonMaxSuppressionAttrs(limit), *given)
    expected = defined(given[0], given[1], limit, overlap, lowest)
    assert [tuple(r) for r in rows[: int(count)].tolist()] == expected


@pytest.mark.parametrize("limit", [1, 24])
def test_machine_code_keeps_the_same(limit: int) -> None:
    given = operands(7, limit, 0.25, 0.2)
    shapes = [x.shape for x in given]
    attrs = {"room": limit}
    check("non_max_suppression", *shapes, given=dict(enumerate(given)), **attrs)


def test_other_shapes_are_refused() -> None:
    boxes, scores = (TensorType(s, "float32") for s in ((1, 5, 3), (1, 2, 5)))
    numbers = [TensorType((), t) for t in ("int64", "float32", "float32")]
    with pytest.raises(TypeMismatch, match="boxes are float32"):
        non_max_suppression(*(Var("x", t) for t in (boxes, scores, *numbers)), room=5)
