# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Graph, Kind, computed
from tests.frontend.tensorflow.oracle import check
from treadle.errors import ModelError

X = values(3, 4, 5)
INT = Kind("int32")


def _ints(g: Graph, *numbers: Any) -> list[str]:
    return [g.constant(n, "int32") for n in numbers]


CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Callable[[Any], Any]]] = {
    "transpose": ("Transpose", ([2, 0, 1],), {"Tperm": INT}, lambda x: x.transpose(2, 0, 1)),
    "slice": ("Slice", ([1, 0, 2], [2, -1, 3]), {"Index": INT}, lambda x: x[1:3, :, 2:5]),
    "pad": ("Pad", ([[1, 0], [0, 2], [0, 0]],), {"Tpaddings": INT},
            lambda x: np.pad(x, [(1, 0), (0, 2), (0, 0)])),
    "reflect": ("MirrorPad", ([[0, 0], [2, 1], [0, 0]],), {"mode": "REFLECT", "Tpaddings": INT},
                lambda x: np.pad(x, [(0, 0), (2, 1), (0, 0)], "reflect")),
    "symmetric": ("MirrorPad", ([[0, 0], [2, 1], [1, 5]],), {"mode": "SYMMETRIC",
                  "Tpaddings": INT}, lambda x: np.pad(x, [(0, 0), (2, 1), (1, 5)], "symmetric")),
    "tile": ("Tile", ([2, 1, 3],), {"Tmultiples": INT}, lambda x: np.tile(x, (2, 1, 3))),
    "gather": ("GatherV2", ([[3, 0], [1, 1]], 1), {"Tindices": INT, "Taxis": INT},
               lambda x: x[:, [[3, 0], [1, 1]]]),
    "gather per batch": ("GatherV2", ([[1, 0], [2, 3], [0, 0]], 1), {"Tindices": INT, "Taxis": INT,
                         "batch_dims": 1},
                         lambda x: np.stack([x[k, i] for k, i in
                                             enumerate([[1, 0], [2, 3], [0, 0]])])),
    "gather nd": ("GatherNd", ([[2, 1], [0, 3]],), {"Tindices": INT, "Tparams": FLOAT},
                  lambda x: x[[2, 0], [1, 3]]),
    "reverse": ("ReverseV2", ([0, -1],), {"Tidx": INT}, lambda x: x[::-1, :, ::-1]),
    "roll": ("Roll", ([1, -2], [0, 2]), {"Tshift": INT, "Taxis": INT},
             lambda x: np.roll(x, (1, -2), (0, 2))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_result(name: str, tmp_path: Path) -> None:
    op, numbers, attributes, expected = CASES[name]
    g = Graph()
    kind = {} if op in ("GatherNd",) else {"Tparams" if op == "GatherV2" else "T": FLOAT}
    y = g.node(op, g.input("x", X.shape), *_ints(g, *numbers), **kind, **attributes)
    check(g, tmp_path, {"x": X}, [y], expected(X))


@pytest.mark.parametrize(
    ("bounds", "masks", "expected"),
    [
        (([0, 1, 0], [2, 3, 5], [1, 1, 2]), {}, lambda x: x[0:2, 1:3, 0:5:2]),
        (([1], [2], [1]), {"shrink_axis_mask": 1}, lambda x: x[1]),
        (([-1, 0], [0, 0], [1, 1]), {"ellipsis_mask": 2, "shrink_axis_mask": 1}, lambda x: x[-1]),
        (([0, 0, -1], [0, 0, 0], [1, 1, -1]), {"begin_mask": 4, "end_mask": 4, "ellipsis_mask": 1,
         "new_axis_mask": 2}, lambda x: x[..., np.newaxis, ::-1]),
        (([0, 3], [9, 0], [1, -1]), {"begin_mask": 1}, lambda x: x[:9, 3:0:-1]),
    ],
)  # fmt: skip
def test_strided_slices(
    bounds: Any, masks: dict[str, int], expected: Callable[[Any], Any], tmp_path: Path
) -> None:
    g = Graph()
    y = g.node("StridedSlice", g.input("x", X.shape), *_ints(g, *bounds), T=FLOAT, Index=INT,
               **masks)  # fmt: skip
    check(g, tmp_path, {"x": X}, [y], expected(X))


def test_parts_and_wholes(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", X.shape)
    axis = g.constant(1, "int32")
    halves = g.node("Split", axis, x, num_split=2, T=FLOAT)
    sizes, last = _ints(g, [1, -1, 2], 2)
    parts = g.node("SplitV", x, sizes, last, num_split=3, T=FLOAT, Tlen=INT)
    rows = g.node("Unpack", x, num=3, axis=0, T=FLOAT)
    outputs = [
        f"{halves}:1",
        f"{parts}:1",
        f"{rows}:2",
        g.node("ConcatV2", f"{halves}:1", halves, axis, N=2, T=FLOAT, Tidx=INT),
        g.node("Pack", f"{rows}:2", rows, N=2, axis=-1, T=FLOAT),
    ]
    expected = [X[:, 2:], X[:, :, 1:3], X[2], np.concatenate([X[:, 2:], X[:, :2]], 1),
                np.stack([X[2], X[0]], -1)]  # fmt: skip
    check(g, tmp_path, {"x": X}, outputs, *expected)


def test_scattered_updates(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", X.shape)
    at, shape = _ints(g, [[0], [0]], [2, 4, 5])
    rows = g.node("Slice", x, *_ints(g, [1, 0, 0], [2, 4, 5]), T=FLOAT, Index=INT)
    outputs = [
        g.node("ScatterNd", at, rows, shape, T=FLOAT, Tindices=INT),
        g.node("TensorScatterAdd", x, at, rows, T=FLOAT, Tindices=INT),
    ]
    total = X[1] + X[2]
    expected = np.stack([total, np.zeros_like(total)]), np.stack([X[0] + total, X[1], X[2]])
    check(g, tmp_path, {"x": X}, outputs, *expected)


def test_reversed_sequences(tmp_path: Path) -> None:
    g = Graph()
    lengths = g.constant([2, 4, 1], "int32")
    y = g.node("ReverseSequence", g.input("x", X.shape), lengths, seq_dim=1, batch_dim=0, T=FLOAT,
               Tlen=INT)  # fmt: skip
    expected = X.copy()
    for k, n in enumerate([2, 4, 1]):
        expected[k, :n] = X[k, :n][::-1]
    check(g, tmp_path, {"x": X}, [y], expected)


def test_an_index_outside_is_refused(tmp_path: Path) -> None:
    g = Graph()
    g.node("GatherV2", g.input("x", X.shape), *_ints(g, [9], 0), Tparams=FLOAT)
    with pytest.raises(ModelError, match="the index 9 of GatherV2 is outside axis 0"):
        computed(g, tmp_path, {"x": X})
