# SPDX-License-Identifier: Apache-2.0
"""Quantised operators of onnxruntime's own domain, against onnxruntime: at most one step apart.

Products are held against integer arithmetic: onnxruntime saturates sums of 16 bits on some CPUs.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.frontend.onnx.models import Arrays, make, outputs_of
from treadle.build.compile import compile_model

RNG = np.random.default_rng(23)
DOMAIN = "com.microsoft"


def _model(kind: str, arrays: Arrays, **attributes: object) -> onnx.ModelProto:
    """Return a model of one node; arrays whose name starts with an underscore are left out."""
    names = ["" if n.startswith("_") else n for n in arrays]
    node = helper.make_node(kind, names, ["y"], domain=DOMAIN, **attributes)
    model = make([node], {}, ["y"], 17, domains=[DOMAIN])
    for name, array in arrays.items():
        if not name.startswith("_"):
            number = helper.np_dtype_to_tensor_dtype(array.dtype)
            model.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
    return model


def _check(kind: str, arrays: Arrays, rtol: float = 2e-5, **attributes: object) -> None:
    model = _model(kind, arrays, **attributes)
    given = {n: a for n, a in arrays.items() if not n.startswith("_")}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (want,), (got,) = session.run(None, given), outputs_of(model, given)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.dtype.kind in "iu":
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert (got != want).mean() < 0.05
    else:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def _bytes(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def _scale(value: float) -> np.ndarray:
    return np.array(value, "float32")


def _zero(value: int, dtype: str = "uint8") -> np.ndarray:
    return np.array(value, dtype)


NOTHING = np.zeros(0, "float32")


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["QLinearAdd", "QLinearMul"])
def test_pairs(kind: str, dtype: str) -> None:
    arrays = {
        "a": _bytes(dtype, 2, 3, 40), "as": _scale(0.04), "az": _zero(3, dtype),
        "b": _bytes(dtype, 3, 1), "bs": _scale(0.02), "bz": _zero(5, dtype),
        "cs": _scale(0.05), "cz": _zero(7, dtype),
    }  # fmt: skip
    _check(kind, arrays)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_functions(dtype: str) -> None:
    x = {"x": _bytes(dtype, 2, 4, 6), "xs": _scale(0.05), "xz": _zero(9, dtype)}
    _check("QLinearSigmoid", {**x, "ys": _scale(1 / 256), "yz": _zero(0, dtype)})
    _check("QLinearLeakyRelu", {**x, "ys": _scale(0.03), "yz": _zero(4, dtype)}, alpha=0.2)
    after = {"ys": _scale(1 / 256), "yz": _zero(0 if dtype == "uint8" else -128, dtype)}
    _check("QLinearSoftmax", {**x, **after}, axis=-1, opset=13)
    _check("QLinearSoftmax", {**x, **after}, axis=1, opset=12)


@pytest.mark.parametrize("last", [0, 1])
def test_pools(last: int) -> None:
    x = {"x": _bytes("uint8", 1, 6, 5, 4), "xs": _scale(0.05), "xz": _zero(100)}
    after = {"ys": _scale(0.04), "yz": _zero(90)}
    _check("QLinearGlobalAveragePool", {**x, **after}, channels_last=last)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}
    _check("QLinearAveragePool", {**x, **after}, channels_last=last, **window)


def test_concat_and_where() -> None:
    arrays = {"ys": _scale(0.04), "yz": _zero(90)}
    for k, width in enumerate((3, 5)):
        arrays |= {f"x{k}": _bytes("uint8", 2, width), f"s{k}": _scale(0.02 + k / 50)}
        arrays[f"z{k}"] = _zero(10 * k)
    _check("QLinearConcat", arrays, axis=1)
    arrays = {
        "c": RNG.uniform(size=(4, 5)) > 0.5,
        "x": _bytes("uint8", 4, 5), "xs": _scale(0.04), "xz": _zero(3),
        "w": _bytes("uint8", 5), "ws": _scale(0.02), "wz": _zero(5),
        "zs": _scale(0.05), "zz": _zero(7),
    }  # fmt: skip
    _check("QLinearWhere", arrays)


COLUMNS = np.array([0.01, 0.02, 0.03, 0.04], "float32")
BIAS = RNG.uniform(-1, 1, 4).astype("float32")


@pytest.mark.parametrize("columns", [COLUMNS, _scale(0.02)], ids=["per column", "one scale"])
def test_products(columns: np.ndarray) -> None:
    arrays = {
        "a": _bytes("uint8", 3, 6), "b": _bytes("int8", 6, 4), "as": _scale(0.05), "bs": columns,
        "az": _zero(120), "bz": _bytes("int8", 4), "c": BIAS,
    }  # fmt: skip
    (got,) = outputs_of(_model("MatMulIntegerToFloat", arrays), arrays)
    sums = (arrays["a"].astype(int) - 120) @ (arrays["b"].astype(int) - arrays["bz"].astype(int))
    np.testing.assert_allclose(got, sums * 0.05 * columns + BIAS, rtol=2e-5, atol=2e-5)
    plain = {name: arrays[name] for name in ("a", "b", "as", "bs")}
    (got,) = outputs_of(_model("MatMulIntegerToFloat", plain), plain)
    sums = arrays["a"].astype(int) @ arrays["b"].astype(int)
    np.testing.assert_allclose(got, sums * 0.05 * columns, rtol=2e-5, atol=2e-5)


def test_a_product_of_steps_found_at_run_time() -> None:
    a, b = RNG.normal(size=(3, 6)).astype("float32"), _bytes("int8", 6, 4)
    arrays = {"a": a, "b": b, "bs": COLUMNS, "bz": _bytes("int8", 4), "c": BIAS}
    (got,) = outputs_of(_model("DynamicQuantizeMatMul", arrays), arrays)
    low, high = min(float(a.min()), 0.0), max(float(a.max()), 0.0)
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    steps = np.clip(np.rint(a / scale) + zero, 0, 255) - zero
    want = steps @ (b.astype(int) - arrays["bz"].astype(int)) * scale * COLUMNS + BIAS
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("again", [False, True])
def test_gemm(again: bool) -> None:
    arrays = {
        "a": _bytes("uint8", 3, 6), "as": _scale(0.05), "az": _zero(120),
        "b": _bytes("uint8", 4, 6), "bs": _scale(0.02), "bz": _zero(110),
        "c": RNG.integers(-900, 900, 4).astype("int32"),
    }  # fmt: skip
    if again:
        arrays |= {"ys": _scale(0.9), "yz": _zero(128)}
    (got,) = outputs_of(_model("QGemm", arrays, transB=1), arrays)
    sums = (arrays["a"].astype(int) - 120) @ (arrays["b"].astype(int) - 110).T + arrays["c"]
    want = sums * (0.05 * 0.02)
    if again:
        assert np.abs(got - np.clip(want / 0.9 + 128, 0, 255)).max() <= 0.5 + 1e-3
    else:
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("bits", "zeros"),
    [(4, "none"), (4, "packed"), (4, "float"), (8, "none"), (8, "packed"), (2, "packed")],
)
@pytest.mark.parametrize(("rows", "size"), [(64, 16), (80, 32)])
def test_products_by_blocks(bits: int, zeros: str, rows: int, size: int) -> None:
    columns, blocks = 6, -(-rows // size)
    arrays = {
        "a": RNG.normal(size=(2, 3, rows)).astype("float32"),
        "b": _bytes("uint8", columns, blocks, size * bits // 8),
        "s": RNG.uniform(0.01, 0.1, (columns, blocks)).astype("float32"),
    }
    if zeros == "packed":
        arrays["z"] = _bytes("uint8", columns, -(-blocks * bits // 8))
    if zeros == "float":
        arrays["z"] = RNG.uniform(0, 15, (columns, blocks)).astype("float32")
    _check("MatMulNBits", arrays, rtol=2e-3, K=rows, N=columns, bits=bits, block_size=size)


@pytest.mark.parametrize("shape", [("n", 96), ("batch", 3, 96)])
def test_weights_stay_packed(shape: tuple[int | str, ...]) -> None:
    columns, rows, size = 70, 96, 32
    weights = {
        "b": _bytes("uint8", columns, rows // size, size // 2),
        "s": RNG.uniform(0.01, 0.1, (columns, rows // size)).astype("float32"),
    }
    node = helper.make_node(
        "MatMulNBits", ["a", *weights], ["y"], domain=DOMAIN, K=rows, N=columns, block_size=size
    )
    model = make([node], {"a": list(shape)}, ["y"], 17, domains=[DOMAIN])
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    executable = compile_model(model, dynamic=True)
    panels = 128  # columns, in whole panels
    assert executable.weight_bytes == panels * (rows // 2 + 4 * rows // size)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for count in (1, 5):
        given = tuple(count if isinstance(d, str) else d for d in shape)
        a = RNG.normal(size=given).astype("float32")
        (want,), (got,) = session.run(None, {"a": a}), executable(a)
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=2e-3)


def test_rows_by_blocks() -> None:
    arrays = {
        "t": _bytes("uint8", 9, 32),
        "i": np.array([[3, 0], [8, 8]]),
        "s": RNG.uniform(0.01, 0.1, (9, 4)).astype("float32"),
        "z": _bytes("uint8", 9, 2),
    }
    _check("GatherBlockQuantized", arrays, bits=4, block_size=16, gather_axis=0, quantize_axis=1)


@pytest.mark.parametrize("dtype", ["uint16", "int8"])
def test_quantisation_in_this_domain(dtype: str) -> None:
    scale = RNG.uniform(0.01, 0.1, 3).astype("float32")
    zero = _bytes(dtype, 3) // 4
    x = RNG.normal(size=(2, 3, 5)).astype("float32")
    _check("QuantizeLinear", {"x": x, "s": scale, "z": zero}, axis=1)
    _check("DequantizeLinear", {"x": _bytes(dtype, 2, 3, 5), "s": scale, "z": zero}, axis=1)
