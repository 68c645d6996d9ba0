# SPDX-License-Identifier: Apache-2.0
"""Scattering, one update after the other, against loops in Python and as machine code."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tests.ops.schedules.compiled import check
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Var
from treadle.graph.types import TensorType
from treadle.ops.scatter import ScatterElementsAttrs, ScatterNdAttrs, scatter_elements, scatter_nd

MEETS: dict[str, Callable[[float, float], float]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return small whole numbers: any order of sums and products gives the same."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("reduction", MEETS)
@pytest.mark.parametrize("axis", [0, 1])
def test_elements_meet_what_is_there_one_by_one(axis: int, reduction: str) -> None:
    x, updates = numbers(4, 5), numbers(6, 5, seed=1) if axis == 0 else numbers(4, 7, seed=1)
    at = np.random.default_rng(2).integers(-x.shape[axis], x.shape[axis], updates.shape)
    expected = x.copy()
    for place in product(*map(range, updates.shape)):
        to = (at[place], place[1]) if axis == 0 else (place[0], at[place])
        expected[to] = MEETS[reduction](expected[to], updates[place])
    found = scatter_elements.reference(ScatterElementsAttrs(axis, reduction), x, at, updates)
    np.testing.assert_array_equal(found, expected)
    given = {0: x, 1: at, 2: updates}
    shapes = (x.shape, at.shape, updates.shape)
    check("scatter_elements", *shapes, given=given, axis=axis, reduction=reduction)


@pytest.mark.parametrize("reduction", MEETS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices_meet_what_is_there_one_by_one(depth: int, reduction: str) -> None:
    x = numbers(3, 4, 2)
    at = np.random.default_rng(3).integers(0, 2, (5, depth))
    updates = numbers(5, *x.shape[depth:], seed=4)
    expected = x.copy()
    for row, update in zip(at, updates, strict=True):
        where = tuple(row)
        old = np.atleast_1d(expected[where])
        met = [MEETS[reduction](a, b) for a, b in zip(old.flat, np.ravel(update), strict=True)]
        expected[where] = np.reshape(met, expected[where].shape)
    found = scatter_nd.reference(ScatterNdAttrs(reduction), x, at, updates)
    np.testing.assert_array_equal(found, expected)
    given = {0: x, 1: at, 2: updates}
    check("scatter_nd", x.shape, at.shape, updates.shape, given=given, reduction=reduction)


def test_an_unknown_reduction_is_refused() -> None:
    x, at = (Var(n, TensorType((3,), t)) for n, t in (("x", "float32"), ("i", "int64")))
    with pytest.raises(TypeMismatch, match="mean"):
        scatter_elements(x, at, x, axis=0, reduction="mean")
