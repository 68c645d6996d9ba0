# SPDX-License-Identifier: Apache-2.0
"""Products of dequantised bytes are products of integers, scaled afterwards."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.optimize.cases import assert_same, constant, function, var
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.nodes import Call, Constant, Function, Node, Var, topological
from treadle.graph.types import tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.quantised import multiply_quantised
from treadle.target.parse import parse_target

PAIRS = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
PLAIN = parse_target("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72")


def dequantised(x: Node, scale: float | Constant, zero: int | None = None) -> Call:
    """Return (x - zero) * scale as the importer writes it."""
    steps: Node = ew.cast(x, dtype="int32")
    if zero is not None:
        point = Constant.of(zero, tensor_type(x.type).dtype)
        steps = ew.subtract(steps, ew.cast(point, dtype="int32"))
    by = scale if isinstance(scale, Constant) else Constant.of(scale, "float32")
    return ew.multiply(ew.cast(steps, dtype="float32"), by)


def scales(*shape: int) -> Constant:
    return Constant.of(np.abs(constant(*shape).value) + np.float32(0.01))


def integral(body: Node, *params: Var) -> bool:
    """Tell whether the products of a function became products of integers, of equal value."""
    before = function(body, params=params)
    after = multiply_quantised(before, PAIRS)
    assert_same(before, after, rtol=1e-5)
    assert_same(before, canonicalize(after), rtol=1e-5)
    assert multiply_quantised(before, PLAIN) is before
    return types(after) == {"int32"}


def types(f: Function) -> set[str]:
    calls = [n for n in topological([f.body]) if isinstance(n, Call) and n.op is matmul]
    return {tensor_type(n.type).dtype for n in calls}


X = var("x", 5, 24, dtype="uint8")
W = constant(24, 7, dtype="int8")


@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("scale", [0.02, scales(7), scales(1, 7), scales(1)])
def test_one_scale_and_one_per_column(scale: float | Constant, zero: int | None) -> None:
    data = dequantised(X, 0.1, 128)
    assert integral(ew.relu(matmul(data, dequantised(W, scale, zero))), X)


def test_weights_in_the_order_of_gemm() -> None:
    """One scale per row of the transposed weights."""
    weights = dequantised(constant(7, 24, dtype="int8"), scales(7, 1))
    assert integral(matmul(dequantised(X, 0.1), transpose(weights, perm=(1, 0))), X)


def test_data_that_are_moved_first() -> None:
    x = var("x", 2, 24, 5, dtype="int8")
    moved = reshape(transpose(dequantised(x, 0.5, -3), perm=(0, 2, 1)), shape=(10, 24))
    assert integral(matmul(moved, dequantised(W, scales(7))), x)


def test_what_stays_in_floats() -> None:
    data, weights = dequantised(X, 0.1, 128), dequantised(W, 0.02)
    wide = var("wide", 5, 24, dtype="int32")
    other = var("w", 24, 7, dtype="int8")
    stays = [
        (matmul(dequantised(X, scales(5, 1)), weights), (X,)),  # a scale per row
        (matmul(dequantised(X, scales(24)), weights), (X,)),  # and per step
        (matmul(data, dequantised(W, scales(24, 1))), (X,)),
        (matmul(data, dequantised(other, 0.02)), (X, other)),  # not known
        (matmul(dequantised(wide, 0.1), weights), (wide,)),  # no bytes
        (matmul(data, constant(24, 7)), (X,)),
    ]
    for body, params in stays:
        before = function(body, params=params)
        assert multiply_quantised(before, PAIRS) is before


def test_sums_that_may_not_fit_stay_in_floats() -> None:
    x = var("x", 1, 40000, dtype="uint8")
    weights = dequantised(constant(40000, 2, dtype="int8"), 0.02)
    before = function(matmul(dequantised(x, 0.1), weights), params=[x])
    assert multiply_quantised(before, PAIRS) is before


def test_small_weights_of_a_model_are_still_bytes_when_passes_see_them() -> None:
    """The importer folds small constants, but not matrices of bytes into floats."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[3, 4] x) => (float[3, 2] y)
        <float s = {0.5}, uint8 z = {9}, int8[4, 2] w = {1, -2, 3, -4, 5, -6, 7, -8},
         float[2] t = {0.5, 2}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            f = DequantizeLinear(w, t)
            y = MatMul(d, f)
        }""")
    main = import_onnx(model).module.main
    after = multiply_quantised(main, PAIRS)
    assert types(after) == {"int32"}
    assert_same(main, after, rtol=1e-6)


def convolved(x: Var, w: Node, **attrs: object) -> tuple[Function, Function]:
    """Return a convolution of dequantised data by weights, before and after the pass."""
    before = function(ew.relu(conv(dequantised(x, 0.1, 7), w, **attrs)), params=[x])
    after = multiply_quantised(before, PAIRS)
    assert_same(before, after, rtol=1e-5)
    return before, after


def conv_types(f: Function) -> set[str]:
    calls = [n for n in topological([f.body]) if isinstance(n, Call) and n.op is conv]
    return {tensor_type(n.type).dtype for n in calls}


@pytest.mark.parametrize("scale", [0.02, scales(6, 1, 1, 1), scales(1)])
@pytest.mark.parametrize("channels", [2, 5])
def test_convolutions_with_one_scale_and_one_per_filter(
    scale: float | Constant, channels: int
) -> None:
    x = var("x", 2, channels, 8, 9, dtype="uint8")
    w = dequantised(constant(6, channels, 3, 3, dtype="int8"), scale)
    _, after = convolved(x, w, pads_before=(1, 1), pads_after=(1, 1), strides=(2, 1))
    assert conv_types(after) == {"int32"}


@pytest.mark.parametrize("per_group", [2, 3])
@pytest.mark.parametrize("scale", [0.02, scales(4, 1, 1, 1)])
def test_convolutions_in_groups_of_several_channels(
    per_group: int, scale: float | Constant
) -> None:
    x = var("x", 2, 2 * per_group, 8, 9, dtype="uint8")
    w = dequantised(constant(4, per_group, 3, 3, dtype="int8"), scale)
    _, after = convolved(x, w, groups=2, pads_before=(1, 1), pads_after=(1, 1))
    assert conv_types(after) == {"int32"}


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (4, 4)])
def test_convolutions_that_stay_in_floats(channels: int, groups: int) -> None:
    x = var("x", 2, channels, 8, 9, dtype="uint8")
    w = dequantised(constant(4, channels // groups, 3, 3, dtype="int8"), 0.5)
    before, after = convolved(x, w, groups=groups)
    assert after is before
