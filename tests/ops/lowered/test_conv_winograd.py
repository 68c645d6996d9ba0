# SPDX-License-Identifier: Apache-2.0
"""Tests of Winograd convolutions: the operator, and its error as compiled code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.target.kernel import native
from treadle.build.compile import compile_model
from treadle.cost.filtering import filter_axes
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Constant, Function, Module, Var
from treadle.graph.types import TensorType
from treadle.ops.conv import ConvAttrs, conv
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.lowered.conv_winograd import conv2d_winograd_nchwc
from treadle.ops.movement import pad
from treadle.optimize.methods.winograd_weights import transform_weights
from treadle.target.base import Target

TILES = (2, 3, 4)
"""Tiles that are square."""


@pytest.mark.parametrize("tile", TILES)
def test_odd_images_meet_no_weights_at_infinity(tile: int) -> None:
    w = np.random.default_rng(0).standard_normal((2, 3, 3, 3, 4, 4)).astype(np.float32)
    axes = filter_axes(tile, (3, 3), stride=2)
    u = transform_weights(w, axes).reshape(2, tile + 1, tile + 1, 2, 2, 3, 4, 4)
    assert not u[:, -1, :, 1].any()
    assert not u[:, :, -1, :, 1].any()
    assert u[:, -1, -1, 0, 0].all()


@pytest.mark.parametrize(
    ("x", "u", "height", "message"),
    [
        ((1, 1, 6, 6, 8), (1, 6, 6, 1, 8, 8), 5, "padded to 10"),
        ((1, 1, 6, 6, 8), (1, 4, 4, 1, 8, 8), 4, "tiles of 4"),
        ((1, 2, 6, 6, 8), (1, 6, 6, 1, 8, 8), 4, "differ in channels"),
        ((1, 1, 10, 10, 8), (1, 5, 5, 1, 8, 8), 4, "differ in channels"),
        ((1, 1, 9, 10, 8), (1, 5, 5, 4, 8, 8), 4, "padded to 10"),
        ((1, 1, 10, 8), (1, 6, 6, 1, 8, 8), 1, "a signal has one row, not 1 of 3 taps"),
    ],
)
def test_factors_that_do_not_fit_are_refused(
    x: tuple[int, ...], u: tuple[int, ...], height: int, message: str
) -> None:
    stride = 2 if u[1] == 5 else 1
    data, weights = Var("x", TensorType(x, "float32")), Var("u", TensorType(u, "float32"))
    with pytest.raises(TypeMismatch, match=message):
        conv2d_winograd_nchwc(data, weights, tile=4, height=height, width=4, stride=stride)


@pytest.mark.parametrize(
    ("tile", "kernel", "message"),
    [(6, (3, 3), "more than 6 points"), (4, (1, 1), "several taps"), (4, (1, 9), "8 points")],
)
def test_windows_that_cannot_be_filtered_are_refused(
    tile: int, kernel: tuple[int, int], message: str
) -> None:
    data = Var("x", TensorType((1, 1, 20, 20, 8), "float32"))
    weights = Var("u", TensorType((1, 6, 6, 1, 8, 8), "float32"))
    with pytest.raises(TypeMismatch, match=message):
        conv2d_winograd_nchwc(data, weights, tile=tile, height=4, width=4, kernel=kernel)


def test_a_stride_is_for_images_without_dilation() -> None:
    data = Var("x", TensorType((1, 1, 10, 10, 8), "float32"))
    weights = Var("u", TensorType((1, 5, 5, 4, 8, 8), "float32"))
    with pytest.raises(TypeMismatch, match="without dilation"):
        conv2d_winograd_nchwc(data, weights, tile=4, height=4, width=4, stride=2, dilations=(2, 1))


def _compiled(
    x: np.ndarray, w: np.ndarray, tile: int, target: Target, stride: int = 1
) -> np.ndarray:
    """Run a convolution padded by one through the operator, in blocks of channels."""
    block = 16
    (_, channels, *image), filters = x.shape, w.shape[0]
    sizes = [-(-size // stride) for size in image]
    axes = filter_axes(tile, (3, 3), stride)
    whole = [axis.reads(size) for axis, size in zip(axes, sizes, strict=True)]
    more = [end - size - 1 for end, size in zip(whole, image, strict=True)]
    placed = np.zeros((-(-filters // block) * block, -(-channels // block) * block, 3, 3), "f4")
    placed[:filters, :channels] = w
    oc, ic = placed.shape[0] // block, placed.shape[1] // block
    split = placed.reshape(oc, block, ic, block, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    u = Constant.of(transform_weights(split, axes))
    data = Var("x", TensorType(x.shape, "float32"))
    padded = pad(pack_nchwc(data, block=block), before=(0, 0, 1, 1, 0), after=(0, 0, *more, 0))
    made = conv2d_winograd_nchwc(
        padded, u, tile=tile, height=sizes[0], width=sizes[1], stride=stride
    )
    body = unpack_nchwc(made, channels=filters)
    module = Module(Function((data,), body, "main"), ("y",))
    (result,) = compile_model(module, target=target)(x)
    return np.asarray(result)


CASES = [
    (1, 16, 16, 8, 8),
    (1, 20, 40, 7, 9),
    (2, 16, 24, 5, 13),
    (1, 3, 5, 1, 1),
    (1, 64, 32, 2, 30),
    (3, 33, 16, 14, 14),
    (1, 160, 176, 11, 6),
]


def _check(case: tuple[int, ...], tile: int, target: Target, stride: int = 1) -> None:
    """Hold compiled code against a convolution in float64."""
    n, channels, filters, high, wide = case
    rng = np.random.default_rng(sum(case))
    x = rng.standard_normal((n, channels, high, wide)).astype(np.float32)
    w = rng.standard_normal((filters, channels, 3, 3)).astype(np.float32)
    attrs = ConvAttrs(strides=(stride, stride), pads_before=(1, 1), pads_after=(1, 1))
    exact = conv.reference(attrs, x.astype(np.float64), w.astype(np.float64))
    made = _compiled(x, w, tile, target, stride)
    assert made.shape == exact.shape
    limit = {2: 1e-6, 3: 2e-6, 4: 4e-6}[tile]
    assert np.abs(made - exact).max() <= limit * np.abs(exact).max()


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: "x".join(map(str, c)))
def test_compiled_code_is_as_exact_as_stated(case: tuple[int, ...], tile: int) -> None:
    _check(case, tile, native())


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(
    "case", [CASES[0], CASES[2], CASES[3]], ids=lambda c: "x".join(map(str, c))
)
def test_compiled_code_with_a_stride_is_as_exact(case: tuple[int, ...], tile: int) -> None:
    _check(case, tile, native(), stride=2)


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("tile", TILES)
def test_a_block_may_take_several_registers(tile: int, registers: int) -> None:
    _check((1, 20, 40, 7, 9), tile, replace(native(), vector_bits=128, vector_registers=registers))
