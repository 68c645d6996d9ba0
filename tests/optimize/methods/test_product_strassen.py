# SPDX-License-Identifier: Apache-2.0
"""Tests of where Strassen's algorithm is chosen, and of how exact its products are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.optimize.cases import function, laid_out_for, var
from tests.optimize.methods.asked import Asked, asked
from tests.targets import AVX2 as NARROW
from tests.targets import NEON
from tests.targets import ZEN4 as TARGET
from treadle.build.compile import compile_model
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Module, Var
from treadle.graph.text import call_text
from treadle.ops import elementwise as ew
from treadle.ops.lowered.matmul_strassen import dense_strassen, strassen_blocks
from treadle.ops.matmul import matmul
from treadle.optimize.channel_order import pack_panels
from treadle.optimize.methods.product import extra_bytes
from treadle.optimize.methods.strassen_weights import (
    are_rows_even,
    column_units,
    divided,
    has_equal_columns,
    pack_strassen,
)
from treadle.settings import use
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.target.parse import parse_target

LARGE = (1, 128, 3072, 768)
"""Matrices, rows, columns, steps."""
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _weights_may_grow() -> Iterator[None]:
    with use(weight_growth=4):
        yield


def weights(k: int, n: int) -> np.ndarray:
    return (RNG.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)


def product_of(x: np.ndarray, w: np.ndarray, width: int, *, at_runtime: bool = False) -> np.ndarray:
    """Return x w by the operators' references."""
    packed = Constant.of(pack_panels(w, width, 2) if at_runtime else pack_strassen(w, width))
    a = var("x", *x.shape)
    rows = x.shape[-2]
    half = -(-rows // 2)
    how = {"m": rows, "n": w.shape[1], "half": half, "plain_weights": at_runtime}
    made = dense_strassen(strassen_blocks(a, half=half), packed, **how)
    return run(function(made, params=[a]), {"x": x})[0]


# ---- what is computed ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 7, 8])
@pytest.mark.parametrize("columns", [1, 15, 16, 33])
def test_packed_sums_give_the_product(rows: int, columns: int) -> None:
    x, w = RNG.standard_normal((3, rows, 10)).astype(np.float32), weights(10, columns)
    made = product_of(x, w, 8)
    np.testing.assert_allclose(made, x @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(product_of(x, w, 8, at_runtime=True), made)


def _departure(x: np.ndarray, w: np.ndarray) -> float:
    """Return the largest error of the compiled product, in bounds of the elements it adds."""
    a = var("x", *x.shape)
    call = matmul(a, Constant.of(w))
    compiled = compile_model(
        Module(function(call, params=[a])), methods={call_text(call): "strassen"}
    )
    assert any("dense_strassen" in k.name for k in compiled.kernels)
    (made,) = compiled.run([x])
    wide, heavy = x.astype(np.float64), w.astype(np.float64)
    bound = 2.0**-24 * (4 + x.shape[-1] / 64) * (np.abs(wide) @ np.abs(heavy))
    return float(np.max(np.abs(np.asarray(made) - wide @ heavy) / (bound + 1e-30)))


def test_elements_are_within_the_bound_of_a_plain_product() -> None:
    x = RNG.standard_normal((128, 768)).astype(np.float32)
    assert _departure(x, weights(768, 1536)) < 1


def test_small_rows_keep_their_digits_beside_large_ones() -> None:
    x = RNG.standard_normal((128, 768)).astype(np.float32)
    x *= np.where(np.arange(128) < 64, 1e6, 1e-6).astype(np.float32)[:, None]
    assert _departure(x, weights(768, 1536)) < 1


def test_rows_of_zeros_and_of_the_smallest_values() -> None:
    x = RNG.standard_normal((8, 40)).astype(np.float32)
    x[1], x[2], x[6] = 0, 1e-42, 3e38
    w = weights(40, 32) / 64
    exact = x.astype(np.float64) @ w.astype(np.float64)
    made = product_of(x, w, 16)
    np.testing.assert_array_equal(made[1], 0)
    largest = np.abs(exact).max(1, keepdims=True)
    assert np.all(np.abs(made - exact) <= 1e-5 * largest + 1e-44)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_that_is_not_finite_spoils_no_other(value: float) -> None:
    x = RNG.standard_normal((129, 64)).astype(np.float32)
    x[3, 5] = value
    a, packed = var("x", 129, 64), Constant.of(pack_strassen(weights(64, 64), 32))
    made = dense_strassen(strassen_blocks(a, half=65), packed, m=129, n=64, half=65)
    (result,) = compile_model(Module(function(made, params=[a]))).run([x])
    spoiled = np.isnan(np.asarray(result))
    assert spoiled[3].all()
    assert not np.delete(spoiled, 3, axis=0).any()


# ---- where it is chosen --------------------------------------------------------------------------


def asked_of(shape: tuple[int, int, int, int], w: np.ndarray | None = None) -> Asked:
    matrices, rows, columns, steps = shape
    x = var("x", matrices, rows, steps)
    return asked(matmul(x, Constant.of(weights(steps, columns) if w is None else w)), TARGET)


@pytest.mark.parametrize(
    "shape",
    [
        LARGE,
        (1, 128, 768, 3072),
        (1, 197, 2304, 768),
        (8, 128, 3072, 768),
        (1, 10_000, 1024, 1024),
        (1, 64, 3072, 768),
    ],
)
def test_large_products_run_by_it(shape: tuple[int, int, int, int]) -> None:
    found = asked_of(shape)
    assert found.choice in ("strassen", "strassen-runtime")
    width = found.call_of(dense_strassen).args[1].type.static_shape[-1]  # type: ignore[union-attr]
    assert width % TARGET.lanes() == 0


@pytest.mark.parametrize(
    "shape",
    [
        (1, 128, 3072, 767),
        (1, 1, 3072, 768),
        (1, 16, 3072, 768),
        (1, 24, 3072, 768),
        (1, 128, 64, 64),
        (1, 64, 256, 256),
    ],
)
def test_others_run_directly(shape: tuple[int, int, int, int]) -> None:
    assert asked_of(shape).choice == "panels"


def test_it_can_be_forbidden() -> None:
    with use(winograd=False):
        for name in ("strassen", "strassen-runtime"):
            assert asked_of(LARGE).against(name) == "it is switched off"


@pytest.mark.parametrize("target", [TARGET, NARROW, NEON])
def test_a_run_makes_sums_for_many_rows_where_weights_may_not_grow(target: Target) -> None:
    w = Constant.of(weights(768, 3072))
    with use(weight_growth=0):
        for rows, wanted in ((16, "panels"), (1500, "strassen-runtime")):
            assert asked(matmul(var("x", rows, 768), w), target).choice == wanted


def test_sums_that_leave_the_cache_are_not_made_by_a_run() -> None:
    x, w = var("x", 1500, 1 << 15), weights(1 << 15, 128)
    found = asked(matmul(x, Constant.of(w)), TARGET)
    assert found.against("strassen-runtime") == "the sums of a panel do not fit a core's cache"


def test_weights_that_a_run_adds_up_are_as_large_as_the_model_s() -> None:
    x, w = var("x", 784, 768), weights(768, 3072)
    with use(weight_growth=0):
        found = asked(matmul(x, Constant.of(w)), TARGET)
    call = found.call_of(dense_strassen)
    assert call is not None
    assert call.args[1].type.nbytes == w.nbytes  # type: ignore[union-attr]


def test_sums_are_the_same_whoever_makes_them() -> None:
    x, w = RNG.standard_normal((300, 96)).astype(np.float32), weights(96, 200)
    w[:, 3] *= 1e-6  # units of columns
    a = var("x", *x.shape)
    made = []
    for at_runtime in (False, True):
        units = column_units(w)
        assert units is not None
        plain = pack_panels(divided(w, units), 16, 2)
        packed = Constant.of(plain if at_runtime else pack_strassen(w, 16, units))
        sums = strassen_blocks(a, half=150)
        how = {"m": 300, "n": 200, "half": 150, "plain_weights": at_runtime}
        result = dense_strassen(sums, packed, **how)
        made += compile_model(Module(function(result, params=[a]))).run([x])
    np.testing.assert_array_equal(*map(np.asarray, made))


def laid_out(*outputs: Call, x: Var) -> Counter[str]:
    return laid_out_for(TARGET, *outputs, x=x)


def test_products_of_the_same_values_share_their_sums() -> None:
    x = var("x", 1, 128, 768)
    made = laid_out(*(matmul(x, Constant.of(weights(768, 768))) for _ in range(3)), x=x)
    assert made["strassen_blocks"] == 1
    assert made["dense_strassen"] == 3


def test_weights_grow_only_so_far() -> None:
    x = var("x", 64, 512)  # too few rows for sums that a run makes
    products = [matmul(x, Constant.of(weights(512, 2048))) for _ in range(3)]
    with use(weight_growth=extra_bytes(512, 2048) * 2.5 / (3 * 4 * 512 * 2048)):
        made = laid_out(*products, x=x)
    assert made["dense_strassen"] == 2
    assert made["dense_packed"] == 1


def test_rows_of_weights_of_very_different_sizes_stay_as_they_are() -> None:
    x, w = var("x", 128, 512), weights(512, 2048)
    assert laid_out(matmul(x, Constant.of(w)), x=x)["dense_strassen"] == 1
    w[7] *= 1e5
    assert laid_out(matmul(x, Constant.of(w)), x=x)["dense_packed"] == 1


def test_equal_columns_keep_equal_results() -> None:
    x, w = var("x", 128, 512), weights(512, 2048)
    w[:, 1900] = w[:, 3]
    assert laid_out(matmul(x, Constant.of(w)), x=x)["dense_packed"] == 1
    assert has_equal_columns(w)
    w[100, 3] *= np.float32(1.0001)
    assert not has_equal_columns(w)
    w[:, [3, 1900]] = 0
    assert not has_equal_columns(w)
    assert has_equal_columns(np.full((6, 2), 0.02, np.float32))


@pytest.mark.parametrize("value", [0.0, 1e5, np.inf, np.nan])
def test_uneven_rows(value: float) -> None:
    w = np.ones((64, 90), np.float32)
    assert are_rows_even(w)
    w[3, 5] = value
    assert are_rows_even(w) == (value == 0.0)
    w[3] = 0
    assert not are_rows_even(w)


def test_columns_keep_their_digits_whatever_their_sizes() -> None:
    x = RNG.standard_normal((128, 768)).astype(np.float32)
    w = weights(768, 1536) * 10 ** RNG.uniform(-8, 8, 1536).astype(np.float32)
    assert _departure(x, w) < 1
    w[:, 9] = 0
    assert _departure(x, w) < 1


def test_units_of_columns_are_powers_of_two_where_they_are_needed() -> None:
    w = np.ones((4, 6), np.float32)
    assert column_units(w) is None
    w[2] = [1, -300, 0.001, 1e30, 1e-30, 1]
    units = column_units(w)
    assert units is not None
    assert np.all(np.frexp(units)[0] == 0.5)
    w[:, 4] = 0
    assert column_units(w)[4] == 0  # type: ignore[index]


@pytest.mark.parametrize("half", [38, 10])
def test_a_tail_and_odd_rows_on_a_narrow_machine(half: int) -> None:
    x = var("x", 2, 75, 96)
    w, bias = weights(96, 200), Constant.of(RNG.standard_normal(200).astype(np.float32))
    packed = Constant.of(pack_strassen(w, 24))
    sums = dense_strassen(strassen_blocks(x, half=half), packed, m=75, n=200, half=half)
    made = function(ew.relu(ew.add(sums, bias)), params=[x])
    plain = function(ew.relu(ew.add(matmul(x, Constant.of(w)), bias)), params=[x])
    values = RNG.standard_normal((2, 75, 96)).astype(np.float32)
    narrow = [] if why_not_here(NARROW) else [NARROW]
    for target in (parse_target("llvm"), *narrow):
        (found,) = compile_model(Module(made), target=target).run([values])
        (wanted,) = run(plain, {"x": values})
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
