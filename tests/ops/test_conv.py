# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions against onnxruntime, and of te against the references."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ops.oracle import (
    check_operator,
    example_arrays,
    onnx_window,
    random_array,
    run_onnx_node,
)
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import Example
from treadle.graph.types import TensorType
from treadle.ops.conv import conv, conv_transpose


def f32(*shape: object) -> Var:
    return Var("x", TensorType(shape, "float32"))


@pytest.mark.parametrize("example", conv.examples, ids=lambda e: f"{e.shapes}{e.dtypes}")
def test_conv_examples(example: Example) -> None:
    x, w = example_arrays(example)
    expected = None
    if x.dtype == "float32":
        expected = run_onnx_node("Conv", [x, w], onnx_window(dict(example.attrs)))
    check_operator(
        conv, [x, w], dict(example.attrs), expected=expected, rtol=example.rtol, atol=2e-3
    )


@pytest.mark.parametrize(
    ("strides", "dilations", "pads", "groups"),
    list(
        itertools.product(
            [(1, 1), (2, 3)],
            [(1, 1), (2, 1)],
            [((0, 0), (0, 0)), ((1, 0), (2, 1)), ((2, 2), (2, 2))],
            [1, 2, 4],
        )
    ),
)
def test_conv_agrees_with_onnxruntime(
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
    groups: int,
) -> None:
    x = random_array((2, 4, 7, 9), "float32", -2, 2)
    w = random_array((8, 4 // groups, 3, 2), "float32", -2, 2)
    attrs: dict[str, object] = {
        "strides": strides, "dilations": dilations, "groups": groups,
        "pads_before": pads[0], "pads_after": pads[1],
    }  # fmt: skip
    expected = run_onnx_node("Conv", [x, w], onnx_window(attrs))
    check_operator(conv, [x, w], attrs, expected=expected)


def test_conv_passes_symbolic_dimensions_through() -> None:
    n, h = Symbol("n"), Symbol("h")
    same = {"pads_before": (1, 1), "pads_after": (1, 1)}
    assert conv(f32(n, 3, h, 8), f32(4, 3, 3, 3), **same).type.shape == (n, 4, h, 8)
    half = conv(f32(n, 3, h, 8), f32(4, 3, 2, 2), strides=(2, 2)).type
    assert str(half) == "float32[n, 4, (h // 2), 4]"


def test_conv_counts_a_multiplication_and_an_addition_per_tap() -> None:
    types = [TensorType((1, 4, 8, 8), "float32"), TensorType((6, 2, 3, 3), "float32")]
    assert conv.flops is not None
    attrs = conv.make_attrs({"groups": 2})
    assert conv.flops(attrs, *types) == 2 * (6 * 6 * 6) * (2 * 3 * 3)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "text"),
    [
        (f32(1, 3, 8, 8), f32(4, 2, 3, 3), {}, "take 2 channels"),
        (f32(1, 3, 8, 8), f32(4, 3, 3), {}, "are not \\[n, c"),
        (f32(3, 8), f32(4, 3), {}, "are not \\[n, c"),
        (f32(1, 3, 8, 8), f32(4, 1, 3, 3), {"groups": 3}, "do not split into 3 groups"),
        (f32(1, 3, 1, 8), f32(4, 3, 3, 3), {}, "a window of 3 does not fit into 1 elements"),
        (f32(1, 3, 8, 8), f32(4, 3, 3, 3), {"strides": (1,)}, "one entry for each of 2 axes"),
        (f32(1, 3, 8, 8), f32(4, 3, 3, 3), {"strides": (0, 1)}, "must not be below 1"),
        (f32(1, 3, 8, 8), f32(4, 3, 3, 3), {"pads_before": (-1, 0)}, "must not be below 0"),
        (f32(1, Symbol("c"), 8, 8), f32(4, 3, 3, 3), {}, "must be a known number"),
    ],
)
def test_conv_refuses(x: Var, w: Var, attrs: dict[str, object], text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        conv(x, w, **attrs)


def test_conv_reads_its_input_directly_where_there_is_no_padding() -> None:
    assert conv.compute is not None
    x, w = te.placeholder((1, 4, 5, 5)), te.placeholder((4, 4, 1, 1))
    made = conv.compute(conv.make_attrs({}), x, w)
    assert [t.name for t in made] == ["conv"]
    made = conv.compute(conv.make_attrs({"pads_before": (1, 0)}), x, w)
    assert [t.name for t in made] == ["pad", "conv"]
    assert np.all([a.kind == "reduce" for a in made[-1].op.reduce_axis])


@pytest.mark.parametrize("example", conv_transpose.examples, ids=lambda e: f"{e.shapes}{e.attrs}")
def test_conv_transpose_examples(example: Example) -> None:
    x, w = example_arrays(example)
    expected = None
    if x.dtype == "float32":
        expected = run_onnx_node("ConvTranspose", [x, w], onnx_window(dict(example.attrs)))
    check_operator(
        conv_transpose, [x, w], dict(example.attrs), expected=expected, rtol=example.rtol, atol=2e-3
    )


TRANSPOSED = list(
    itertools.product(
        [(1, 1), (2, 3)],
        [(1, 1), (2, 1), (3, 2)],
        [((0, 0), (0, 0)), ((1, 0), (2, 1)), ((2, 2), (1, 0))],
        [1, 2],
        [(3, 2), (4, 3), (1, 2)],
        [(0, 0), (0, 1)],
    )
)


@pytest.mark.parametrize(("strides", "dilations", "pads", "groups", "kernel", "more"), TRANSPOSED)
def test_conv_transpose_agrees_with_onnxruntime(
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
    groups: int,
    kernel: tuple[int, int],
    more: tuple[int, int],
) -> None:
    if any(m >= s for m, s in zip(more, strides, strict=True)):
        more = (0, 0)
    x = random_array((2, 4, 4, 5), "float32", -2, 2)
    w = random_array((4, 3, *kernel), "float32", -2, 2)
    attrs: dict[str, object] = {
        "strides": strides, "dilations": dilations, "groups": groups, "output_padding": more,
        "pads_before": pads[0], "pads_after": pads[1],
    }  # fmt: skip
    expected = run_onnx_node("ConvTranspose", [x, w], onnx_window(attrs))
    check_operator(conv_transpose, [x, w], attrs, expected=expected)


def test_conv_transpose_makes_no_product_with_inserted_zeros() -> None:
    assert conv_transpose.compute is not None
    attrs = conv_transpose.make_attrs({"strides": (2, 2)})
    made = conv_transpose.compute(attrs, te.placeholder((1, 3, 8, 8)), te.placeholder((3, 4, 4, 4)))
    assert [t.name for t in made] == ["pad", "conv_transpose.phases", "conv_transpose"]
    assert [int(str(a.extent)) for a in made[1].op.reduce_axis] == [3, 2, 2]


def test_conv_transpose_passes_symbolic_dimensions_through() -> None:
    n, h = Symbol("n"), Symbol("h")
    same = {"pads_before": (1, 1), "pads_after": (1, 1)}
    made = conv_transpose(f32(n, 3, h, 8), f32(3, 4, 3, 3), **same)
    assert made.type.shape == (n, 4, h, 8)
    made = conv_transpose(f32(n, 3, h, 8), f32(3, 4, 2, 2), strides=(2, 2))
    assert str(made.type) == "float32[n, 4, (h * 2), 16]"


@pytest.mark.parametrize(
    ("w", "attrs", "text"),
    [
        (f32(3, 3, 3, 4), {}, "differ in channels"),
        (f32(2, 3, 3, 3), {"pads_after": (10, 0)}, "leave nothing"),
        (f32(2, 3, 3, 3), {"output_padding": (-1, 0)}, "must not be below 0"),
    ],
)
def test_conv_transpose_refuses(w: Var, attrs: dict[str, object], text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        conv_transpose(f32(1, 2, 8, 8), w, **attrs)
