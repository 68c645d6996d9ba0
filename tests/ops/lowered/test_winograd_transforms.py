# SPDX-License-Identifier: Apache-2.0
"""Matrices of Winograd's filtering, and the expressions that multiply by them."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.cost.filtering import filter_axes
from treadle.expr import nodes as ex
from treadle.expr.traversal import substitute
from treadle.ops.lowered.winograd_transforms import (
    POINTS,
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

BOTH_WAYS = [(m, r) for m in TILES for r in (2, 3, 4, 5, 7) if m + r - 1 <= max(POINTS)]


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


@pytest.mark.parametrize(("tile", "taps"), BOTH_WAYS)
def test_the_forms_of_filters_are_their_matrix(tile: int, taps: int) -> None:
    g = [ex.Var(f"g{i}", "float64") for i in range(taps)]
    np.testing.assert_array_equal(_matrix(filter_forms(g, tile), g), filter_matrix(tile, taps))


def test_one_tap_is_left_as_it_is() -> None:
    d = [ex.Var("d", "float64")]
    assert input_forms(d) == output_forms(d, 1) == filter_forms(d, 1) == d
    for matrix in (input_matrix(1, 1), output_matrix(1, 1), filter_matrix(1, 1)):
        np.testing.assert_array_equal(matrix, [[1.0]])


@pytest.mark.parametrize(("tile", "taps"), BOTH_WAYS)
def test_points_are_picked_for_small_errors(tile: int, taps: int) -> None:
    """Sums over 64 channels in float32, of inputs after a ReLU: 8 points have the largest."""
    rng = np.random.default_rng(1)
    d = np.maximum(rng.standard_normal((64, 64, tile + taps - 1)), 0)
    g = rng.standard_normal((16, 64, taps))
    exact = sum(np.einsum("oc,ctk->otk", g[..., r], d[..., r : r + tile]) for r in range(taps))
    forward, back = input_matrix(tile, taps), output_matrix(tile, taps)
    v = np.einsum("ip,ctp->cti", forward.astype("f4"), d.astype("f4"))
    u = np.einsum("ir,ocr->oci", filter_matrix(tile, taps), g).astype("f4")
    made = np.einsum("ki,oti->otk", back.astype("f4"), np.einsum("oci,cti->oti", u, v))
    assert np.abs(made - exact).max() <= 2.5e-6 * np.abs(exact).max()


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("kernel", "stride"), [((3, 3), 1), ((1, 3), 1), ((5, 1), 2), ((3, 3), 2)])
def test_plain_weights_are_those_that_are_transformed(
    tile: int, kernel: tuple[int, int], stride: int
) -> None:
    axes = filter_axes(tile, kernel, stride)
    w = np.random.default_rng(tile).standard_normal((2, 3, 2, *kernel, 4, 8)).astype(np.float32)
    made = at_points(axes, plain_weights(w))
    np.testing.assert_allclose(made, transform_weights(w, axes), rtol=1e-5, atol=1e-6)
