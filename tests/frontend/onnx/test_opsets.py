# SPDX-License-Identifier: Apache-2.0
"""Operators in the forms of older opsets, against onnxruntime or worked-out values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx.models import Arrays, check_with_onnxruntime, make, outputs_of
from treadle.errors import ModelError

node = helper.make_node
X = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype("float32")


def _output(kind: str, arrays: Arrays, opset: int, **attributes: object) -> np.ndarray:
    """Return what one node computes; `x` is an input, the other arrays are constants."""
    rest = {n: a for n, a in arrays.items() if n != "x"}
    call = node(kind, list(arrays), ["y"], **attributes)
    model = make([call], {"x": arrays["x"].shape}, ["y"], opset, rest)
    return outputs_of(model, {"x": arrays["x"]})[0]


def _check(kind: str, arrays: Arrays, opset: int, **attributes: object) -> None:
    rest = {n: a for n, a in arrays.items() if n != "x"}
    call = node(kind, list(arrays), ["y"], **attributes)
    model = make([call], {"x": arrays["x"].shape}, ["y"], opset, rest)
    check_with_onnxruntime(model, {"x": arrays["x"]})


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [8, 11, 13])
def test_softmax_counts_axes_as_its_opset_does(kind: str, opset: int, axis: int) -> None:
    _check(kind, {"x": X}, opset, axis=axis)
    _check(kind, {"x": X}, opset)


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
@pytest.mark.parametrize("kind", ["Mean", "Max", "L2", "LogSumExp", "SumSquare", "Prod", "L1"])
def test_reductions(kind: str, opset: int) -> None:
    if opset >= 18:
        _check(f"Reduce{kind}", {"x": X, "axes": np.array([1, -1])}, opset, keepdims=0)
    else:
        axes = [1, 3] if opset < 11 else [1, -1]
        _check(f"Reduce{kind}", {"x": X}, opset, axes=axes, keepdims=0)
    _check(f"Reduce{kind}", {"x": X}, opset)


def test_binary_operators_before_opset_7() -> None:
    bias = np.arange(3, dtype="float32")
    got = _output("Add", {"x": X, "b": bias}, 6, broadcast=1, axis=1)
    np.testing.assert_array_equal(got, X + bias[:, None, None])
    got = _output("Mul", {"x": X, "b": np.arange(5, dtype="float32")}, 6, broadcast=1)
    np.testing.assert_array_equal(got, X * np.arange(5, dtype="float32"))
    got = _output("Sub", {"x": X, "b": np.float32(2)}, 6, broadcast=1)
    np.testing.assert_array_equal(got, X - 2)
    with pytest.raises(ModelError, match="broadcasts only where `broadcast` is 1"):
        _output("Add", {"x": X, "b": bias}, 6)


def test_clip_bounds_move_from_attributes_to_inputs() -> None:
    _check("Clip", {"x": X}, 10, min=-0.5)
    bounds = {"low": np.float32(-0.5), "high": np.float32(0.25)}
    _check("Clip", {"x": X, **bounds}, 11)
    ints = (X * 9).astype("int32")
    model = make(
        [node("Clip", ["x", "low"], ["y"])],
        {"x": ints.shape},
        ["y"],
        13,
        {"low": np.int32(-3)},
        dtype="int32",
    )
    check_with_onnxruntime(model, {"x": ints})


def test_axes_move_from_attributes_to_inputs() -> None:
    one = X[:, :1]
    _check("Squeeze", {"x": one}, 9, axes=[1])
    _check("Squeeze", {"x": one, "axes": np.array([-3])}, 13)
    _check("Squeeze", {"x": one}, 13)
    _check("Unsqueeze", {"x": X}, 9, axes=[0, 5])
    _check("Unsqueeze", {"x": X, "axes": np.array([-1, 2])}, 13)


def test_slices_and_their_clamps() -> None:
    _check("Slice", {"x": X}, 9, starts=[0, -2], ends=[100, -1], axes=[1, 3])
    for starts, ends, steps in [
        ([4, 3], [-100, 0], [-1, -2]),
        ([-1, 1], [-(2**63), 100], [-2, 1]),
        ([3, 2], [1, 2], [1, 1]),
    ]:
        arrays = {
            "x": X,
            "starts": np.array(starts),
            "ends": np.array(ends),
            "axes": np.array([3, 2]),
            "steps": np.array(steps),
        }
        _check("Slice", arrays, 13)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    pads = [0, 0, 1, 2, 0, 0, 2, 1]
    _check("Pad", {"x": X}, 9, mode=mode, pads=pads)
    _check("Pad", {"x": X, "pads": np.array(pads)}, 13, mode=mode)
    cut = np.array([0, -1, 1, 0, 0, 0, -2, 0])
    _check("Pad", {"x": X, "pads": cut, "value": np.float32(3)}, 13, mode="constant")


def test_splits() -> None:
    for opset, sizes in [(9, None), (13, None), (13, [1, 4]), (18, [3, 2])]:
        arrays = {} if sizes is None else {"sizes": np.array(sizes)}
        last = 3 if sizes else 2
        extra = {"num_outputs": 2} if opset >= 18 and sizes is None else {}
        call = node("Split", ["x", *arrays], ["a", "b"], axis=last, **extra)
        model = make([call], {"x": X.shape}, ["a", "b"], opset, arrays)
        check_with_onnxruntime(model, {"x": X})
    call = node("Split", ["x"], ["a", "b"], axis=3, num_outputs=2)
    check_with_onnxruntime(make([call], {"x": X.shape}, ["a", "b"], 18), {"x": X})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2.0, 3.0), (0.5, 0.6), (2.0, 0.4)])
def test_upsample_and_first_resize(mode: str, scales: tuple[float, float]) -> None:
    full = np.array([1, 1, *scales], "float32")
    if min(scales) >= 1:
        _check("Upsample", {"x": X}, 7, mode=mode, scales=full.tolist())
        _check("Upsample", {"x": X, "scales": full}, 9, mode=mode)
    _check("Resize", {"x": X, "scales": full}, 10, mode=mode)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_to_sizes(mode: str, coordinates: str, opset: int) -> None:
    sizes = np.array([2, 3, 7, 4])
    call = node(
        "Resize",
        ["x", "none", "none", "sizes"],
        ["y"],
        mode=mode,
        coordinate_transformation_mode=coordinates,
    )
    constants = {"sizes": sizes, "none": np.zeros(0, "float32")}
    check_with_onnxruntime(make([call], {"x": X.shape}, ["y"], opset, constants), {"x": X})


def test_constants_and_casts_of_old_opsets() -> None:
    got = _output("Cast", {"x": X}, 1, to="INT32")
    np.testing.assert_array_equal(got, X.astype("int32"))
    _check("Cast", {"x": X}, 9, to=TensorProto.INT64)
    got = _output("Reshape", {"x": X}, 1, shape=[0, -1])
    np.testing.assert_array_equal(got, X.reshape(2, -1))
    got = _output("Tile", {"x": X[0, 0], "n": np.array([2]), "axis": np.array([1])}, 1)
    np.testing.assert_array_equal(got, np.tile(X[0, 0], (1, 2)))


def test_batch_normalization_of_every_opset() -> None:
    names = ("scale", "bias", "mean", "variance")
    vectors = {n: np.random.default_rng(k).random(3, "float32") for k, n in enumerate(names)}
    for opset in (7, 9, 14, 15):
        _check("BatchNormalization", {"x": X, **vectors}, opset, epsilon=1e-3)
    want = _output("BatchNormalization", {"x": X, **vectors}, 9)
    got = _output("BatchNormalization", {"x": X, **vectors}, 6, is_test=1, spatial=1)
    np.testing.assert_array_equal(got, want)
    images = {n: np.random.default_rng(k).random((3, 4, 5), "float32") for k, n in enumerate(names)}
    got = _output("BatchNormalization", {"x": X, **images}, 7, spatial=0)
    scale, bias, mean, variance = images.values()
    np.testing.assert_allclose(
        got, (X - mean) / np.sqrt(variance + 1e-5) * scale + bias, rtol=1e-5, atol=1e-6
    )


def test_gemm_and_matmul() -> None:
    a, b = X[0, 0], np.random.default_rng(2).random((4, 6), "float32")
    c = np.arange(6, dtype="float32")
    for opset in (7, 9, 11, 13):
        _check("Gemm", {"x": a, "b": b, "c": c}, opset, alpha=0.5, beta=2.0, transA=1)
    _check("Gemm", {"x": a, "b": b}, 13, transA=1)
    for other in (np.ones(5, "float32"), np.ones((7, 1, 5, 2), "float32")):
        _check("MatMul", {"x": a, "b": other}, 13)
        _check("MatMul", {"x": a[0], "b": other}, 13)


@pytest.mark.parametrize("pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_automatic_padding(pad: str, stride: int) -> None:
    w = np.random.default_rng(3).standard_normal((2, 3, 3, 2)).astype("float32")
    _check("Conv", {"x": X, "w": w}, 11, auto_pad=pad, strides=[stride, 1])
    shape = {"kernel_shape": [3, 2], "strides": [stride, 2], "auto_pad": pad}
    _check("MaxPool", {"x": X}, 12, **shape)
    _check("AveragePool", {"x": X}, 11, count_include_pad=1, **shape)
    _check("LpPool", {"x": X}, 11, p=3, **shape)
    if pad != "VALID":
        transposed = w.transpose(1, 0, 2, 3).copy()
        _check("ConvTranspose", {"x": X, "w": transposed}, 11, auto_pad=pad, strides=[stride, 1])


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_ceil_mode(kind: str) -> None:
    x = np.random.default_rng(4).standard_normal((1, 2, 9, 10)).astype("float32")
    for kernel, stride, pads in [(3, 2, 0), (2, 3, 1), (3, 4, 1), (1, 2, 0), (5, 3, 2)]:
        shape = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pads] * 4}
        if pads < kernel:
            _check(kind, {"x": x}, 12 if kind == "MaxPool" else 19, ceil_mode=1, **shape)


def test_transposed_convolution_to_a_shape() -> None:
    w = np.random.default_rng(5).standard_normal((3, 2, 3, 3)).astype("float32")
    _check("ConvTranspose", {"x": X, "w": w}, 11, strides=[3, 2], output_shape=[10, 8])
    _check(
        "ConvTranspose",
        {"x": X, "w": w, "b": np.ones(2, "float32")},
        11,
        strides=[3, 2],
        output_padding=[1, 1],
        pads=[1, 0, 0, 1],
        dilations=[2, 1],
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("i,i->", [(4,), (4,)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("iji->j", [(3, 2, 3)]),
        ("...ij,...jk->...ik", [(1, 3, 4), (5, 4, 2)]),
        ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("bd,d", [(2, 3), (3,)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(6)
    arrays = [random.standard_normal(s).astype("float32") for s in shapes]
    names = ["x", "b", "c"][: len(shapes)]
    _check("Einsum", dict(zip(names, arrays, strict=True)), 12, equation=equation)


def test_constant_indices_are_checked() -> None:
    for kind, indices in [("Gather", np.array([0, 5])), ("Gather", np.array([-6]))]:
        with pytest.raises(
            ModelError, match=r"of Gather is outside axis 3 of float32\[2, 3, 4, 5\]"
        ):
            _output(kind, {"x": X, "i": indices}, 13, axis=3)
    _check("Gather", {"x": X, "i": np.array([[0, -5], [4, -1]])}, 13, axis=3)
    _check("GatherElements", {"x": X[0, 0], "i": np.array([[0, -5], [4, -1]])}, 13, axis=1)
    condition = np.array([True, False, True, True])
    _check("Compress", {"x": X[0, 0, :3, :3].copy(), "c": condition}, 11, axis=1)
    _check("Compress", {"x": X[0, 0], "c": condition}, 11)


def test_flags_are_zero_or_one() -> None:
    with pytest.raises(ModelError, match="the attribute 'keepdims' of ReduceMax is 2, not 0 or 1"):
        _output("ReduceMax", {"x": X}, 13, keepdims=2)


def test_group_norm_takes_its_first_stage_in_the_type_of_its_stash() -> None:
    x, weights = X.reshape(4, 6, 5), {"scale": np.arange(6) + 0.5, "bias": np.ones(6)}
    call = node("GroupNormalization", ["x", *weights], ["y"], num_groups=2)
    model = make([call], {"x": x.shape}, ["y"], 21, weights, dtype="float64")
    check_with_onnxruntime(model, {"x": x.astype("float64")})
    call.attribute.append(helper.make_attribute("stash_type", TensorProto.INT32))
    with pytest.raises(ModelError, match="cannot compute in int32"):
        outputs_of(make([call], {"x": x.shape}, ["y"], 21, weights, dtype="float64"), {})
