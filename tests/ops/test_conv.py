# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions against onnxruntime, and of te against the references."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ops.oracle import check_operator, example_arrays, random_array, run_onnx_node
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import Example
from treadle.graph.types import TensorType
from treadle.ops.conv import conv
from treadle.te import tensor as te


def f32(*shape: object) -> Var:
    return Var("x", TensorType(shape, "float32"))


def onnx_attrs(attrs: dict[str, object]) -> dict[str, object]:
    """Return Treadle's convolution attributes under ONNX's names."""
    made: dict[str, object] = {}
    for name, value in attrs.items():
        if name not in ("pads_before", "pads_after"):
            made["group" if name == "groups" else name] = value
    before, after = attrs.get("pads_before", ()), attrs.get("pads_after", ())
    if before or after:
        zeros = (0,) * max(len(before), len(after))  # type: ignore[arg-type]
        made["pads"] = [*(before or zeros), *(after or zeros)]  # type: ignore[misc]
    return made


@pytest.mark.parametrize("example", conv.examples, ids=lambda e: f"{e.shapes}{e.dtypes}")
def test_conv_examples(example: Example) -> None:
    x, w = example_arrays(example)
    expected = None
    if x.dtype == "float32":
        expected = run_onnx_node("Conv", [x, w], onnx_attrs(dict(example.attrs)))
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
    expected = run_onnx_node("Conv", [x, w], onnx_attrs(attrs))
    check_operator(conv, [x, w], attrs, expected=expected)


def test_conv_passes_symbolic_dimensions_through() -> None:
    n, h = Symbol("n"), Symbol("h")
    same = {"pads_before": (1, 1), "pads_after": (1, 1)}
    assert conv(f32(n, 3, h, 8), f32(4, 3, 3, 3), **same).type.shape == (n, 4, h, 8)
    half = conv(f32(n, 3, h, 8), f32(4, 3, 2, 2), strides=(2, 2)).type
    assert str(half) == "float32[n, 4, (((h + -2) // 2) + 1), 4]"


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
        (f32(1, 3, 2, 8), f32(4, 3, 3, 3), {}, "a window of 3 does not fit into 2 elements"),
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
