# SPDX-License-Identifier: Apache-2.0
"""Matrices of Winograd's filtering, and the expressions that multiply by them."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.expr import nodes as ex
from treadle.expr.traversal import substitute
from treadle.ops.lowered.winograd_transforms import (
    TILES,
    at_points,
    filter_forms,
    filter_matrix,
    input_forms,
    input_matrix,
    output_forms,
    output_matrix,
)
from treadle.optimize.methods.winograd_weights import plain_weights, transform_weights

pytestmark = pytest.mark.tiny

BOTH_WAYS = [(tile, taps) for tile in TILES for taps in (2, 3)]


def _matrix(forms: list[ex.Expr], symbols: list[ex.Var]) -> np.ndarray:
    """The coefficients of linear forms: their values at the unit vectors."""
    columns = []
    for one in symbols:
        values: dict[ex.Expr, ex.Expr] = {
            s: ex.Const.of(float(s is one), "float64") for s in symbols
        }
        columns.append([_number(substitute(f, values)) for f in forms])
    return np.array(columns).T


def _number(e: ex.Expr) -> float:
    if isinstance(e, ex.Const):
        return float(e.value)
    if isinstance(e, ex.Call):
        a, b, c = map(_number, e.args)
        return a * b + c
    assert isinstance(e, ex.Binary)
    a, b = _number(e.a), _number(e.b)
    return {"add": a + b, "sub": a - b, "mul": a * b}[e.op]


@pytest.mark.parametrize(("tile", "taps"), BOTH_WAYS)
def test_the_forms_are_the_matrices(tile: int, taps: int) -> None:
    d = [ex.Var(f"d{i}", "float64") for i in range(tile + taps - 1)]
    np.testing.assert_array_equal(_matrix(input_forms(d), d), input_matrix(tile, taps))
    np.testing.assert_array_equal(_matrix(output_forms(d, tile), d), output_matrix(tile, taps))


@pytest.mark.parametrize(("tile", "taps"), BOTH_WAYS)
def test_the_matrices_filter_exactly(tile: int, taps: int) -> None:
    rng = np.random.default_rng(tile)
    d, g = rng.standard_normal(tile + taps - 1), rng.standard_normal(taps)
    weights, data = filter_matrix(tile, taps) @ g, input_matrix(tile, taps) @ d
    made = output_matrix(tile, taps) @ (weights * data)
    np.testing.assert_allclose(made, np.correlate(d, g, "valid"), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("tile", "taps"), BOTH_WAYS)
def test_constants_of_the_transforms_are_exact_in_float32(tile: int, taps: int) -> None:
    for matrix in (input_matrix(tile, taps), output_matrix(tile, taps)):
        np.testing.assert_array_equal(matrix.astype(np.float32), matrix)


@pytest.mark.parametrize("tile", TILES)
def test_the_forms_of_filters_are_their_matrix(tile: int) -> None:
    g = [ex.Var(f"g{i}", "float64") for i in range(3)]
    np.testing.assert_array_equal(_matrix(filter_forms(g, tile), g), filter_matrix(tile))


@pytest.mark.parametrize("tile", TILES)
def test_plain_weights_are_those_that_are_transformed(tile: int) -> None:
    w = np.random.default_rng(tile).standard_normal((2, 3, 2, 3, 3, 4, 8)).astype(np.float32)
    made = at_points(tile, plain_weights(w))
    np.testing.assert_allclose(made, transform_weights(w, tile), rtol=1e-6, atol=1e-7)
