# SPDX-License-Identifier: Apache-2.0
"""Image operators on batches, heights and widths that each run decides, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle

Nodes = Sequence[onnx.NodeProto]
Constants = Mapping[str, np.ndarray]

SIZES = ((1, 3, 9, 12), (2, 3, 8, 7), (1, 3, 21, 10))
"""Shapes of `x` of one compiled model."""


def check(nodes: Nodes, constants: Constants, opset: int, y: np.ndarray | None = None) -> None:
    """Run nodes from `x` (and an image `y`) to `out` at several sizes, here and there."""
    kind = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, ["n", 3, "height", "width"])]
    if y is not None:
        inputs.append(helper.make_tensor_value_info("y", kind, ["n", 3, "high", "wide"]))
    graph = helper.make_graph(
        list(nodes),
        "image",
        inputs,
        [helper.make_tensor_value_info("out", kind, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    executable = treadle.compile(model, dynamic=True)
    random = np.random.default_rng(3)
    for shape in SIZES:
        given = {"x": random.standard_normal(shape).astype(np.float32)}
        if y is not None:
            given["y"] = random.standard_normal((shape[0], *y.shape[1:])).astype(np.float32)
        (expected,) = session.run(None, given)
        (result,) = executable.run(given)
        assert np.shape(result) == np.shape(expected)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


COORDINATES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
MODES = (
    {"mode": "nearest", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "linear"},
    {"mode": "cubic"},
)


@pytest.mark.parametrize("mode", MODES, ids=lambda m: "-".join(m.values()))
@pytest.mark.parametrize(
    ("coordinates", "scales"),
    [
        ("asymmetric", (2.0, 2.0)),
        ("half_pixel", (2.0, 0.5)),
        ("align_corners", (1.5, 0.7)),
        ("pytorch_half_pixel", (0.1, 3.0)),
        ("half_pixel", (1.0, 0.6)),
    ],
)
def test_resize_by_scales(
    mode: dict[str, str], coordinates: str, scales: tuple[float, float]
) -> None:
    factors = np.array([1.0, 1.0, *scales], np.float32)
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["out"], coordinate_transformation_mode=coordinates, **mode
    )
    check([node], {"scales": factors}, 17)


@pytest.mark.parametrize("mode", MODES, ids=lambda m: "-".join(m.values()))
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_resize_to_the_size_of_another_image(mode: dict[str, str], coordinates: str) -> None:
    constants = {
        "zero": np.array([0]),
        "two": np.array([2]),
        "four": np.array([4]),
        "channels": np.array([0, 1]),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "two"], ["front"]),
        helper.make_node("Shape", ["y"], ["target"]),
        helper.make_node("Slice", ["target", "two", "four"], ["back"]),
        helper.make_node("Concat", ["front", "back"], ["sizes"], axis=0),
        helper.make_node(
            "Resize",
            ["x", "", "", "sizes"],
            ["grown"],
            coordinate_transformation_mode=coordinates,
            **mode,
        ),
        helper.make_node("Concat", ["grown", "y"], ["out"], axis=1),
    ]
    check(nodes, constants, 17, np.zeros((1, 3, 15, 11), np.float32))


def test_resize_to_sizes_that_floats_compute() -> None:
    constants = {
        "two": np.array([2]),
        "four": np.array([4]),
        "zero": np.array([0]),
        "factor": np.array([1.7], np.float32),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "two"], ["front"]),
        helper.make_node("Slice", ["shape", "two", "four"], ["extents"]),
        helper.make_node("Cast", ["extents"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "factor"], ["product"]),
        helper.make_node("Floor", ["product"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["back"], to=TensorProto.INT64),
        helper.make_node("Concat", ["front", "back"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["out"], mode="linear"),
    ]
    check(nodes, constants, 17)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_upsample(mode: str, operator: str, opset: int) -> None:
    node = helper.make_node(operator, ["x", "scales"], ["out"], mode=mode)
    check([node], {"scales": np.array([1.0, 1.0, 2.0, 1.3], np.float32)}, opset)


WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2]}
POINTS = np.random.default_rng(4).uniform(-1.2, 1.2, (1, 5, 6, 2)).astype(np.float32)
REGIONS = np.array([[0, 0, 8, 9], [2, 1, 14, 14]], np.float32)
FILTERS = np.random.default_rng(5).standard_normal((3, 4, 3, 3)).astype(np.float32)
PADS = np.array([0, 0, 1, 2, 0, 0, 3, 1])


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("AveragePool", {}, {**WINDOW, "pads": [1, 1, 1, 1]}),
        ("LpPool", {}, WINDOW),
        ("MaxPool", {}, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"}),
        ("AveragePool", {}, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "ceil_mode": 1}),
        ("Conv", {"w": FILTERS[:, :3]}, {"auto_pad": "SAME_LOWER"}),
        ("ConvTranspose", {"w": FILTERS}, {"strides": [2, 2], "output_padding": [1, 1]}),
        ("Pad", {"pads": PADS}, {"mode": "reflect"}),
        ("Pad", {"pads": PADS}, {"mode": "edge"}),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_windows(operator: str, constants: Constants, attributes: dict[str, object]) -> None:
    check([helper.make_node(operator, ["x", *constants], ["out"], **attributes)], constants, 18)


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("GridSample", {"grid": POINTS}, {"mode": "bilinear"}),
        ("GridSample", {"grid": POINTS}, {"mode": "bicubic", "padding_mode": "reflection"}),
        ("GridSample", {"grid": POINTS}, {"mode": "nearest", "align_corners": 1}),
        ("RoiAlign", {"r": REGIONS, "b": np.zeros(2, np.int64)}, {"output_width": 3}),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_samples(operator: str, constants: Constants, attributes: dict[str, object]) -> None:
    first = {"zero": np.array([0])}
    nodes = [
        helper.make_node("Gather", ["x", "zero"], ["image"], axis=0),
        helper.make_node(operator, ["image", *constants], ["out"], **attributes),
    ]
    check(nodes, {**first, **constants}, 16)
