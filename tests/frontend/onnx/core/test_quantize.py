# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of 8-bit integers: every bit as the standard's integer arithmetic.

onnxruntime is no oracle here: where a CPU has no instruction for them, it adds pairs of products
in 16 bits and saturates.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.frontend.onnx.models import Arrays, make, outputs_of

RNG = np.random.default_rng(9)


def _integers(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def _model(kind: str, arrays: Arrays, opset: int = 10, **attributes: object) -> onnx.ModelProto:
    model = make([helper.make_node(kind, list(arrays), ["y"], **attributes)], {}, ["y"], opset)
    for name, array in arrays.items():
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
    return model


def _result(model: onnx.ModelProto, arrays: Arrays) -> np.ndarray:
    (got,) = outputs_of(model, arrays)
    return got


def _steps(arrays: Arrays, name: str) -> np.ndarray:
    """Return an operand without its zero point, which may be one for each of the last axis."""
    return arrays[name].astype("int64") - arrays[f"{name}_zero"].astype("int64")


def _check_rounded(got: np.ndarray, sums: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> None:
    """Fail unless `got` is sums * scale + zero, rounded to the nearest step and saturated."""
    info = np.iinfo(got.dtype)
    exact = np.clip(sums * scale.astype("float64") + zero, info.min, info.max)
    assert got.shape == exact.shape
    assert np.abs(got - exact).max() <= 0.5 + 1e-4


def _windows(
    x: np.ndarray,
    w: np.ndarray,
    pads: tuple[int, int, int, int],
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Return the convolution of integers x [n, c, h, w] whose padding is 0."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    views = views[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    parts = zip(np.split(views, groups, axis=1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", v, f) for v, f in parts], axis=1)


@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize("per_column", [False, True])
def test_quantized_product(weights: str, per_column: bool) -> None:
    count = 12 if per_column else 1
    scales = RNG.uniform(0.001, 0.01, count).astype("float32")
    arrays = {
        "a": _integers("uint8", 2, 7, 33),
        "a_scale": np.array(0.02, "float32"),
        "a_zero": np.array(131, "uint8"),
        "b": _integers(weights, 33, 12),
        "b_scale": scales if per_column else scales.reshape(()),
        "b_zero": np.zeros(count, weights) if per_column else np.array(3, weights),
        "y_scale": np.array(0.05, "float32"),
        "y_zero": np.array(120, "uint8"),
    }
    got = _result(_model("QLinearMatMul", arrays), arrays)
    scale = arrays["a_scale"] * arrays["b_scale"].astype("float64") / arrays["y_scale"]
    _check_rounded(got, _steps(arrays, "a") @ _steps(arrays, "b"), scale, arrays["y_zero"])


def test_integer_product() -> None:
    arrays = {
        "a": _integers("uint8", 7, 33),
        "b": _integers("int8", 33, 12),
        "a_zero": np.array(12, "uint8"),
        "b_zero": np.array(-3, "int8"),
    }
    got = _result(_model("MatMulInteger", arrays), arrays)
    np.testing.assert_array_equal(got, _steps(arrays, "a") @ _steps(arrays, "b"))


def test_integer_convolution_pads_with_its_zero_point() -> None:
    arrays = {
        "x": _integers("uint8", 1, 4, 6, 7),
        "w": _integers("uint8", 6, 2, 3, 3),
        "x_zero": np.array(100, "uint8"),
        "w_zero": np.array(90, "uint8"),
    }
    model = _model("ConvInteger", arrays, pads=[1, 1, 0, 2], group=2, strides=[1, 2])
    want = _windows(
        _steps(arrays, "x"), _steps(arrays, "w"), (1, 1, 0, 2), strides=(1, 2), groups=2
    )
    np.testing.assert_array_equal(_result(model, arrays), want)


@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_quantized_convolution(weights: str) -> None:
    arrays = {
        "x": _integers("uint8", 2, 4, 9, 8),
        "x_scale": np.array(0.02, "float32"),
        "x_zero": np.array(100, "uint8"),
        "w": _integers(weights, 6, 4, 3, 3),
        "w_scale": RNG.uniform(0.001, 0.01, 6).astype("float32"),
        "w_zero": _integers(weights, 6) // 8,
        "y_scale": np.array(0.3, "float32"),
        "y_zero": np.array(128, "uint8"),
        "bias": RNG.integers(-5000, 5000, 6).astype("int32"),
    }
    got = _result(_model("QLinearConv", arrays, pads=[1, 1, 1, 1], dilations=[2, 1]), arrays)
    weights_of = arrays["w"].astype("int64") - arrays["w_zero"].reshape(6, 1, 1, 1)
    sums = _windows(_steps(arrays, "x"), weights_of, (1, 1, 1, 1), dilations=(2, 1))
    scale = arrays["x_scale"] * arrays["w_scale"].astype("float64") / arrays["y_scale"]
    of_filters = (6, 1, 1)
    sums += arrays["bias"].reshape(of_filters)
    _check_rounded(got, sums, scale.reshape(of_filters), arrays["y_zero"])


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_along_an_axis(axis: int) -> None:
    shape = [6, 8]
    shape[axis] //= 2
    x = RNG.uniform(-3, 3, (6, 8)).astype("float32")
    arrays = {
        "x": x,
        "scale": RNG.uniform(0.01, 0.1, shape).astype("float32"),
        "zero": _integers("int8", *shape) // np.int8(8),
    }
    model = _model("QuantizeLinear", arrays, 21, axis=axis, block_size=2)
    steps = _result(model, arrays)
    np.testing.assert_array_equal(steps, *ReferenceEvaluator(model).run(None, arrays))
    back = {**arrays, "x": steps}
    model = _model("DequantizeLinear", back, 21, axis=axis, block_size=2)
    np.testing.assert_array_equal(_result(model, back), *ReferenceEvaluator(model).run(None, back))
