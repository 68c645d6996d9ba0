# SPDX-License-Identifier: Apache-2.0
"""Weights that would make subnormal numbers are scaled, or are zeros."""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import assert_same, data, function, var
from treadle.build.compile import compile_model
from treadle.graph.nodes import Call, Constant, Function, Module, Node, topological
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.optimize.subnormals import keep_sums_normal

NORMAL = np.finfo(np.float32).smallest_normal


def convolved(x: Node, w: np.ndarray) -> Call:
    """Return the 1x1 convolution of an image by weights [inputs, outputs]."""
    return conv(x, Constant.of(np.ascontiguousarray(w.T)[:, :, None, None]))


def weights_of(f: Function) -> np.ndarray:
    """Return the weights of the one convolution or product."""
    (call,) = (n for n in topological([f.body]) if isinstance(n, Call) and n.op in (conv, matmul))
    assert isinstance(call.args[1], Constant)
    return np.asarray(call.args[1].value)


def of_all_sizes(*shape: int) -> np.ndarray:
    """Return weights from 2^-149 to 1, and zeros."""
    exponents = np.random.default_rng(3).integers(-149, 1, shape)
    made = np.ldexp(np.sign(data(*shape, key="signs")), exponents).astype(np.float32)
    made.reshape(-1)[::7] = 0
    return made


def within_the_bound(found: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """Compare x @ w with float64, by what a sum may round and what is left out.

    The former: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1.
    """
    values, weights = x.astype(np.float64), w.astype(np.float64)
    rounding = 2.0**-24 * len(w) * (np.abs(values) @ np.abs(weights))
    left_out = NORMAL * np.abs(values).sum(-1, keepdims=True)
    assert np.all(np.abs(found - values @ weights) <= rounding + left_out)


@pytest.mark.parametrize("is_conv", [False, True])
def test_results_of_weights_of_all_sizes(is_conv: bool) -> None:
    x, w = data(40, 96, key="x"), of_all_sizes(96, 70)
    w[:, 3] = np.ldexp(data(96, key="few"), -140)  # all of them subnormal
    w[:, 9] = np.ldexp(data(96, key="small"), -90)
    given = var("x", *((1, 96, 40, 1) if is_conv else (40, 96)))
    body = convolved(given, w) if is_conv else matmul(given, Constant.of(w))
    f = function(ew.negative(body), params=[given])
    assert_same(f, keep_sums_normal(f), rtol=1e-6)
    image = np.ascontiguousarray(x.T)[None, :, :, None] if is_conv else x
    made = -np.asarray(compile_model(Module(f)).run([image])[0])
    found = made[0, :, :, 0].T if is_conv else made
    within_the_bound(found, x, w)
    small = x.astype(np.float64) @ w[:, 9].astype(np.float64)
    assert np.median(np.abs(found[:, 9] / small - 1)) < 1e-6


@pytest.mark.parametrize("is_conv", [False, True])
def test_no_weight_is_subnormal_and_the_others_keep_their_bits(is_conv: bool) -> None:
    w = of_all_sizes(96, 70)
    w[:, 5] = np.ldexp(data(96, key="small"), -100)
    x = var("x", *((1, 96, 4, 4) if is_conv else (4, 96)))
    f = function(convolved(x, w) if is_conv else matmul(x, Constant.of(w)), params=[x])
    made = weights_of(keep_sums_normal(f))
    made = made[:, :, 0, 0].T if is_conv else made
    assert not np.any((made != 0) & (np.abs(made) < NORMAL))
    normal = np.abs(w) >= NORMAL
    normal[:, 5] = False
    np.testing.assert_array_equal(made[normal], w[normal])
    assert 1 <= np.abs(made[:, 5]).max() < 2


def test_filters_in_groups_and_windows() -> None:
    w = data(8, 2, 3, 3, key="w")
    w[3] *= np.float32(1e-30)
    w[4] *= np.float32(1e-44)
    x = var("x", 1, 8, 6, 6)
    f = function(conv(x, Constant.of(w), groups=4, pads_before=(1, 1)), params=[x])
    made = keep_sums_normal(f)
    assert_same(f, made, rtol=1e-6)
    assert np.all(np.abs(weights_of(made)).reshape(8, -1).max(1) > 2.0**-60)


@pytest.mark.parametrize("value", [1.0, 0.0, 1e-17, np.nan, np.inf])
def test_others_stay_as_they_are(value: float) -> None:
    w = data(16, 8, key="w")
    w[3, 4] = value
    x = var("x", 4, 16)
    f = function(matmul(x, Constant.of(w)), params=[x])
    assert keep_sums_normal(f).body is f.body


def test_a_filter_of_zeros_and_one_that_is_not_finite_stay_as_they_are() -> None:
    w = of_all_sizes(96, 3)
    w[:, 0] = 0
    w[0, 1] = np.nan
    w[1, 1] = 2.0**-140
    x = var("x", 4, 96)
    made = weights_of(keep_sums_normal(function(matmul(x, Constant.of(w)), params=[x])))
    assert not made[:, 0].any()
    assert np.isnan(made[0, 1])
    assert made[1, 1] == 0


def test_unoptimised_models_keep_every_weight() -> None:
    w = np.zeros((4, 4), np.float32)
    w[0, 0], w[1, 0] = 1, 2.0**-140
    x = var("x", 1, 4)
    f = Module(function(matmul(x, Constant.of(w)), params=[x]))
    one = np.array([[0, 1, 0, 0]], np.float32)
    assert np.asarray(compile_model(f, opt_level=0).run([one])[0])[0, 0] == np.float32(2.0**-140)
    assert np.asarray(compile_model(f).run([one])[0])[0, 0] == 0


X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="others compute as fast with them")


def _convolve(x: Node) -> Node:
    return conv(x, Constant.of(np.eye(16, dtype=np.float32)[:, :, None, None]))


def _share(x: Node) -> Node:
    """Return shares of 1 of which some are subnormal: e^-88 of the largest, and less."""
    return softmax(ew.multiply(x, Constant.of(np.float32(176.0))), axis=3)


def _multiply(x: Node) -> Node:
    return matmul(x, Constant.of(np.eye(16, dtype=np.float32)))


@X86
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compute", [_convolve, _multiply, _share])
def test_subnormal_activations_are_zeros_to_sums_of_products(
    compute: Callable[[Node], Node], threads: int
) -> None:
    x = var("x", 1, 16, 16, 16)
    given = np.where(np.arange(16 * 16 * 16) % 3 == 0, 1e-39, 0.5).astype(np.float32)
    model = compile_model(Module(function(compute(x), params=[x])))
    model.executor.num_threads = threads
    (made,) = model.run([given.reshape(1, 16, 16, 16)])
    found = np.asarray(made)
    assert np.any(found == 0)
    assert not np.any((found != 0) & (np.abs(found) < NORMAL))
    assert np.any(found >= 0.1)


def test_element_wise_operators_keep_subnormal_numbers() -> None:
    x, y = var("x", 64), var("y", 64)
    model = compile_model(Module(function(ew.multiply(x, y), params=[x, y])))
    given, half = np.full(64, 1e-39, np.float32), np.full(64, 0.5, np.float32)
    (made,) = model.run([given, half])
    np.testing.assert_array_equal(np.asarray(made), given * half)


def test_the_control_register_is_the_callers() -> None:
    x = var("x", 1, 16, 16, 16)
    model = compile_model(Module(function(_convolve(x), params=[x])))
    tiny = np.full(8, 1e-39, np.float32)
    before = tiny * np.float32(0.5)
    model.run([np.zeros((1, 16, 16, 16), np.float32)])
    after = tiny * np.float32(0.5)
    assert before.all()
    np.testing.assert_array_equal(before, after)
