# SPDX-License-Identifier: Apache-2.0
"""Scatters, selections by size and samplings, imported and compared with onnxruntime and torch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx.models import Arrays, check_with_onnxruntime, make, outputs_of
from treadle.build.compile import compile_model
from treadle.frontend.onnx.importer import import_onnx

RNG = np.random.default_rng(5)


def _model(
    kind: str, arrays: Arrays, outputs: int = 1, opset: int = 18, **attributes: object
) -> onnx.ModelProto:
    """Return one node whose inputs are all given at run time."""
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(kind, list(arrays), names, **attributes)
    model = make([node], {}, names, opset)
    for name, array in arrays.items():
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
    return model


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters_at_repeated_places(reduction: str) -> None:
    data = RNG.standard_normal((5, 6)).astype("float32")
    arrays = {
        "x": data,
        "i": RNG.integers(-6, 6, (5, 9)),
        "u": RNG.standard_normal((5, 9)).astype("float32"),
    }
    model = _model("ScatterElements", arrays, axis=1, reduction=reduction)
    check_with_onnxruntime(model, arrays)
    arrays["i"], arrays["u"] = RNG.integers(-5, 5, (7, 1)), arrays["u"][:1].repeat(7, 0)[:, :6]
    check_with_onnxruntime(_model("ScatterND", arrays, reduction=reduction), arrays)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_top_k_with_ties(dtype: str, largest: int) -> None:
    x = RNG.integers(0, 6, (3, 40, 2)).astype(dtype)
    model = _model("TopK", {"x": x}, 2, axis=1, largest=largest)
    model.graph.node[0].input.append("k")
    model.graph.initializer.append(helper.make_tensor("k", TensorProto.INT64, [1], [7]))
    check_with_onnxruntime(model, {"x": x})


@pytest.mark.torch
@pytest.mark.parametrize("spatial", [(5, 6), (3, 4, 5)])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_grid_sample_is_that_of_torch(
    spatial: tuple[int, ...], padding: str, corners: int, mode: str
) -> None:
    import torch

    x = RNG.standard_normal((2, 3, *spatial)).astype("float32")
    grid = RNG.uniform(-2.5, 2.5, (2, *(4,) * len(spatial), len(spatial))).astype("float32")
    name = {"bilinear": "linear"}.get(mode, mode)
    model = _model(
        "GridSample",
        {"x": x, "grid": grid},
        opset=20,
        mode=name,
        padding_mode=padding,
        align_corners=corners,
    )
    want = torch.nn.functional.grid_sample(
        torch.from_numpy(x), torch.from_numpy(grid), mode, padding, bool(corners)
    )
    (got,) = outputs_of(model, {"x": x, "grid": grid})
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_cubic_grid_sample_is_that_of_onnxruntime(padding: str, corners: int) -> None:
    arrays = {
        "x": RNG.standard_normal((2, 3, 5, 6)).astype("float32"),
        "grid": RNG.uniform(-2.5, 2.5, (2, 4, 4, 2)).astype("float32"),
    }
    model = _model(
        "GridSample", arrays, mode="bicubic", padding_mode=padding, align_corners=corners
    )
    check_with_onnxruntime(model, arrays)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_scatters_and_sorts_run_as_machine_code_in_one_model(opt_level: int) -> None:
    node = helper.make_node
    model = make(
        [
            node("TopK", ["x", "k"], ["v", "i"], axis=1),
            node("Neg", ["v"], ["n"]),
            node("ScatterElements", ["x", "i", "n"], ["s"], axis=1),
            node("CumSum", ["s", "one"], ["c"]),
            node("Relu", ["c"], ["y"]),
        ],
        {"x": (4, 300)},
        ["y", "i"],
        18,
        {"k": np.array([5]), "one": np.array(1)},
    )
    x = RNG.standard_normal((4, 300)).astype("float32")
    executable = compile_model(import_onnx(model).module, opt_level=opt_level)
    got = [o.numpy() for o in executable.run({"x": x})]
    for a, b in zip(got, outputs_of(model, {"x": x}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_roi_align_is_that_of_onnxruntime(mode: str, ratio: int, coordinates: str) -> None:
    corners = RNG.uniform(0, 5, (6, 2))
    arrays = {
        "x": RNG.standard_normal((2, 3, 9, 8)).astype("float32"),
        "rois": np.concatenate([corners, corners + RNG.uniform(1, 6, (6, 2))], 1).astype("float32"),
        "batch": RNG.integers(0, 2, 6),
    }
    model = _model(
        "RoiAlign",
        arrays,
        mode=mode,
        sampling_ratio=ratio,
        coordinate_transformation_mode=coordinates,
        output_height=2,
        output_width=3,
        spatial_scale=0.8,
    )
    check_with_onnxruntime(model, arrays)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [None, 6, 9, 12])
def test_fourier_transforms_are_those_of_numpy(
    inverse: int, onesided: int, length: int | None
) -> None:
    z = RNG.standard_normal((2, 9, 3)) + 1j * RNG.standard_normal((2, 9, 3))
    real = onesided and not inverse
    parts = [z.real] if real else [z.real, z.imag]
    x = np.stack(parts, -1).astype("float32")
    if real:
        want = np.fft.rfft(z.real, length, axis=1)
    elif onesided:
        want = np.fft.irfft(z, length, axis=1)
    else:
        want = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis=1)
    node = helper.make_node(
        "DFT", ["x", "n" if length else "", "axis"], ["y"], inverse=inverse, onesided=onesided
    )
    constants = {"axis": np.array(1), **({"n": np.array(length)} if length else {})}
    (got,) = outputs_of(make([node], {"x": x.shape}, ["y"], 20, constants), {"x": x})
    expected = [want] if np.isrealobj(want) else [want.real, want.imag]
    np.testing.assert_allclose(got, np.stack(expected, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.torch
def test_blocks_to_image_are_those_of_torch() -> None:
    import torch

    x = RNG.standard_normal((2, 18, 16)).astype("float32")
    window = {"dilation": (1, 2), "padding": (1, 2), "stride": (2, 1)}
    want = torch.nn.functional.fold(torch.from_numpy(x), (7, 4), (3, 3), **window)
    node = helper.make_node(
        "Col2Im",
        ["x", "image", "block"],
        ["y"],
        dilations=[1, 2],
        pads=[1, 2, 1, 2],
        strides=[2, 1],
    )
    sizes = {"image": np.array([7, 4]), "block": np.array([3, 3])}
    (got,) = outputs_of(make([node], {"x": x.shape}, ["y"], 18, sizes), {"x": x})
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)
