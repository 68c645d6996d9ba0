# SPDX-License-Identifier: Apache-2.0
"""The first k of rows, by every algorithm there is for them: order, ties, NaN, as machine code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.ops.schedules.compiled import check
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Var
from treadle.graph.types import TensorType
from treadle.ops.sort import TopkAttrs, topk


def ordered(row: list[float], largest: bool) -> list[int]:
    """Return positions in order, as Python's stable sort has it; NaN is the largest."""

    def key(position: int) -> tuple[bool, float]:
        value = row[position]
        is_nan = math.isnan(value)
        return is_nan, 0.0 if is_nan else value

    if not largest:
        return sorted(range(len(row)), key=key)
    return sorted(range(len(row)), key=lambda p: tuple(-float(x) for x in key(p)))


def ties(rows: int, extent: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    made = draw.integers(-3, 4, (rows, extent)).astype(np.float32)
    made[draw.random(made.shape) < 0.1] = np.nan
    made[draw.random(made.shape) < 0.1] = -np.inf
    return made


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("extent", "k"), [(1, 1), (9, 4), (33, 33), (200, 1)])
def test_the_reference_is_a_stable_sort(extent: int, k: int, largest: bool) -> None:
    x = ties(5, extent, seed=extent)
    values, positions = topk.reference(TopkAttrs(k, 1, largest), x)
    for row, found, taken in zip(x, positions, values, strict=True):
        assert found.tolist() == ordered(row.tolist(), largest)[:k]
        np.testing.assert_array_equal(taken, row[found])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("extent", "k"), [(40, 7), (40, 40), (1500, 1100), (1030, 1024)])
def test_kept_and_sorted_rows_are_as_the_reference(extent: int, k: int, largest: bool) -> None:
    """Most of a row are sorted, few of it are kept in order on the way along it."""
    check("topk", (3, extent), given={0: ties(3, extent, 1)}, k=k, axis=1, largest=largest)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis(axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 5, (4, 6, 5)).astype(np.float32)
    check("topk", x.shape, given={0: x}, k=3, axis=axis)


def test_rows_in_order_and_against_it() -> None:
    up = np.arange(300, dtype=np.float32)[None]
    for x in (up, up[:, ::-1].copy(), np.zeros_like(up)):
        check("topk", x.shape, given={0: x}, k=300, axis=1)
        check("topk", x.shape, given={0: x}, k=20, axis=1, largest=False)


@pytest.mark.parametrize("k", [-1, 6])
def test_more_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(TypeMismatch, match=f"k={k} elements cannot be taken"):
        topk(Var("x", TensorType((5,), "float32")), k=k)
