# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of 8-bit integers: every bit as onnxruntime and integer arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

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


def _check(model: onnx.ModelProto, arrays: Arrays) -> np.ndarray:
    """Compare every element with onnxruntime, and return the result."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, dict(arrays))
    (got,) = outputs_of(model, arrays)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
    return got


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
    _check(_model("QLinearMatMul", arrays), arrays)


def test_integer_product() -> None:
    arrays = {
        "a": _integers("uint8", 7, 33),
        "b": _integers("int8", 33, 12),
        "a_zero": np.array(12, "uint8"),
        "b_zero": np.array(-3, "int8"),
    }
    got = _check(_model("MatMulInteger", arrays), arrays)
    wide = {k: v.astype("int64") for k, v in arrays.items()}
    want = (wide["a"] - wide["a_zero"]) @ (wide["b"] - wide["b_zero"])
    np.testing.assert_array_equal(got, want)


def test_integer_convolution_pads_with_its_zero_point() -> None:
    arrays = {
        "x": _integers("uint8", 1, 4, 6, 7),
        "w": _integers("uint8", 6, 2, 3, 3),
        "x_zero": np.array(100, "uint8"),
        "w_zero": np.array(90, "uint8"),
    }
    model = _model("ConvInteger", arrays, pads=[1, 1, 0, 2], group=2, strides=[1, 2])
    _check(model, arrays)


@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_quantized_convolution(weights: str) -> None:
    arrays = {
        "x": _integers("uint8", 2, 4, 9, 8),
        "x_scale": np.array(0.02, "float32"),
        "x_zero": np.array(100, "uint8"),
        "w": _integers(weights, 6, 4, 3, 3),
        "w_scale": RNG.uniform(0.001, 0.01, 6).astype("float32"),
        "w_zero": np.zeros(6, weights),
        "y_scale": np.array(0.3, "float32"),
        "y_zero": np.array(128, "uint8"),
        "bias": RNG.integers(-5000, 5000, 6).astype("int32"),
    }
    _check(_model("QLinearConv", arrays, pads=[1, 1, 1, 1], dilations=[2, 1]), arrays)


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
    steps = _check(model, arrays)
    back = {**arrays, "x": steps}
    _check(_model("DequantizeLinear", back, 21, axis=axis, block_size=2), back)
