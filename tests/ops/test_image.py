# SPDX-License-Identifier: Apache-2.0
"""Tests of resizing against onnxruntime, and of te against the reference."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest

from tests.ops.oracle import check_operator, random_array, run_onnx_node
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.types import TensorType
from treadle.ops.image import resize
from treadle.ops.resize_coordinates import CoordinateMode, NearestMode

COORDINATES = [m for m in get_args(CoordinateMode) if m != "tf_crop_and_resize"]
NEAREST = [m for m in get_args(NearestMode) if m != "simple"]
CROP = (0.0, 0.0, 0.4, -0.2, 1.0, 1.0, 0.6, 1.3)


def f32(*shape: object) -> Var:
    return Var("x", TensorType(shape, "float32"))


def run_onnx(
    x: np.ndarray, target: tuple[float, ...], attrs: dict[str, object], roi: tuple[float, ...] = ()
) -> np.ndarray:
    """Return ONNX Resize of `x`: to sizes where `target` are ints, else by scales."""
    by_size = isinstance(target[0], int)
    return run_onnx_node(
        "Resize",
        [
            x,
            np.array(roi, np.float32) if roi else None,
            None if by_size else np.array(target, np.float32),
            *([np.array(target, np.int64)] if by_size else []),
        ],
        attrs,
    )


def check_resize(
    x: np.ndarray, target: tuple[float, ...], attrs: dict[str, object], roi: tuple[float, ...] = ()
) -> None:
    onnx_attrs = {k: int(v) if isinstance(v, bool) else v for k, v in attrs.items()}
    expected = run_onnx(x, target, onnx_attrs, roi)
    scales = {} if isinstance(target[0], int) else {"scales": np.float32(target).tolist()}
    mine = {**attrs, **scales, "sizes": expected.shape, "roi": roi}
    check_operator(resize, [x], mine, expected=expected, rtol=1e-5, atol=1e-5)


TARGETS: list[tuple[float, ...]] = [
    (1, 2, 8, 12), (1, 2, 2, 3), (1, 2, 7, 5), (1, 2, 1, 9), (1.0, 1.0, 2.5, 0.6),
    (1.0, 1.0, 1.2, 1.9), (1.0, 1.0, 0.4, 3.0),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("coordinates", "nearest"), list(itertools.product(COORDINATES, NEAREST)))
def test_nearest_agrees_with_onnxruntime(
    target: tuple[float, ...], coordinates: str, nearest: str
) -> None:
    x = random_array((1, 2, 4, 6), "float32", -2, 2)
    attrs = {
        "mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": nearest,
    }  # fmt: skip
    check_resize(x, target, attrs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize(
    "more",
    [
        {"mode": "linear"},
        {"mode": "cubic"},
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": True},
    ],
)
def test_interpolation_agrees_with_onnxruntime(
    target: tuple[float, ...], coordinates: str, more: dict[str, object]
) -> None:
    x = random_array((1, 2, 4, 6), "float32", -2, 2)
    check_resize(x, target, {**more, "coordinate_transformation_mode": coordinates})


@pytest.mark.parametrize("target", [(1, 1, 5, 9), (1, 1, 21, 40), (1.0, 1.0, 0.4, 0.7)])
@pytest.mark.parametrize(
    "attrs",
    [{"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": True}],
)
def test_antialiasing_agrees_with_onnxruntime(
    target: tuple[float, ...], attrs: dict[str, object]
) -> None:
    x = random_array((1, 1, 20, 33), "float32", -2, 2)
    check_resize(x, target, {**attrs, "antialias": True})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 2, 5, 3), (1, 2, 1, 8)])
def test_cropping_agrees_with_onnxruntime(mode: str, sizes: tuple[int, ...]) -> None:
    x = random_array((1, 2, 6, 6), "float32", -2, 2)
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 10.0,
    }
    check_resize(x, sizes, attrs, CROP)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5), (1, 2, 3, 4, 5)])
def test_linear_in_other_ranks_agrees_with_onnxruntime(shape: tuple[int, ...]) -> None:
    x = random_array(shape, "float32", -2, 2)
    moving = min(len(shape), 3)
    sizes = shape[: len(shape) - moving] + tuple(2 * d - 1 for d in shape[len(shape) - moving :])
    check_resize(x, sizes, {"mode": "linear"})


def test_nearest_bytes_agree_with_onnxruntime() -> None:
    check_resize(random_array((1, 2, 4, 6), "uint8", 0, 255), (1, 2, 7, 9), {"mode": "nearest"})


@pytest.mark.parametrize("antialias", [False, True])
def test_interpolated_bytes_agree_with_onnxruntime_to_one_step(antialias: bool) -> None:
    x = random_array((1, 2, 20, 12), "uint8", 0, 255)
    attrs: dict[str, object] = {"mode": "linear", "sizes": (1, 2, 7, 9), "antialias": antialias}
    result = check_operator(resize, [x], attrs, atol=1.0)
    expected = run_onnx(x, (1, 2, 7, 9), {"mode": "linear", "antialias": int(antialias)})
    steps = np.abs(result.astype(int) - expected.astype(int))
    assert steps.max() <= 1
    assert steps.mean() < (0.3 if antialias else 0.02)  # onnxruntime rounds after each axis


@pytest.mark.parametrize(
    ("sizes", "index"), [((1, 1, 8, 4), "(i2 // 2)"), ((1, 1, 2, 4), "(i2 * 2)")]
)
def test_whole_factors_need_no_table(sizes: tuple[int, ...], index: str) -> None:
    assert resize.compute is not None
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    made = resize.compute(
        resize.make_attrs({"sizes": sizes, **attrs}), te.placeholder((1, 1, 4, 4), name="x")
    )
    assert [t.name for t in made] == ["resize_nearest"]
    assert index in str(made[0].op.body[0])


def test_dimensions_may_be_symbolic() -> None:
    n, h = Symbol("n"), Symbol("h")
    assert resize(f32(n, 3, 4, h), sizes=(-1, 3, 8, -1)).type.shape == (n, 3, 8, h)
    assert resize(f32(n, 3, 4, h), sizes=(-1, 3, 8, 8)).type.shape == (n, 3, 8, 8)
    with pytest.raises(TypeMismatch, match="dimension 3 must be known"):
        resize(f32(n, 3, 4, h), sizes=(-1, 3, 8, 8), mode="linear", antialias=True)


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"sizes": (1, 2)}, "one entry for each dimension"),
        ({"sizes": (1, 2, 3, -4)}, "must be positive"),
        ({"sizes": (1, 2, 3, 4), "scales": (1.0, 1.0, 0.0, 1.0)}, "must be positive"),
        ({"sizes": (1, 2, 3, 4), "mode": "area"}, "mode 'area' is not one of nearest, linear"),
        (
            {"sizes": (1, 2, 3, 4), "coordinate_transformation_mode": "tf_crop_and_resize"},
            "a start and an end for each dimension",
        ),
    ],
)
def test_resize_refuses(attrs: dict[str, object], text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        resize(f32(1, 2, 6, 6), **attrs)
