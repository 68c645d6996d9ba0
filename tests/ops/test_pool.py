# SPDX-License-Identifier: Apache-2.0
"""Tests of pooling against onnxruntime, and of te against the references."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto

from tests.ops.oracle import (
    check_operator,
    example_arrays,
    random_array,
    run_onnx_node,
    run_onnx_outputs,
)
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import Example, Operator
from treadle.graph.types import TensorType
from treadle.ops.pool import PoolAttrs, avg_pool, ceil_size, max_pool, max_pool_indices, pool_axes

EXAMPLES = [(op, e) for op in (max_pool, avg_pool) for e in op.examples]


def f32(*shape: object) -> Var:
    return Var("x", TensorType(shape, "float32"))


@pytest.mark.parametrize(("operator", "example"), EXAMPLES)
def test_pool_examples(operator: Operator[PoolAttrs], example: Example) -> None:
    arrays = example_arrays(example)
    check_operator(operator, arrays, dict(example.attrs), rtol=example.rtol, atol=example.atol)


CASES = [
    (window, dilations, pads, ceil)
    for window, dilations, pads, ceil in itertools.product(
        [((2, 3), (1, 1)), ((3, 3), (2, 2)), ((3, 2), (3, 1))],
        [(1, 1), (2, 3)],
        [((0, 0), (0, 0)), ((1, 0), (1, 1)), ((0, 1), (2, 1))],
        [False, True],
    )
    if max(pads[0][0], pads[1][0]) < window[0][0] and max(pads[0][1], pads[1][1]) < window[0][1]
]
"""onnxruntime refuses padding as large as the kernel."""


@pytest.mark.parametrize("include", [None, False, True])
@pytest.mark.parametrize(("kernel_strides", "dilations", "pads", "ceil"), CASES)
def test_pool_agrees_with_onnxruntime(
    kernel_strides: tuple[tuple[int, int], tuple[int, int]],
    dilations: tuple[int, int],
    pads: tuple[tuple[int, int], tuple[int, int]],
    ceil: bool,
    include: bool | None,
) -> None:
    (kernel, strides), (before, after) = kernel_strides, pads
    x = random_array((1, 2, 10, 12), "float32", -2, 2)
    attrs: dict[str, object] = {
        "kernel": kernel, "strides": strides, "dilations": dilations,
        "pads_before": before, "pads_after": after,
    }  # fmt: skip
    onnx: dict[str, object] = {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations,
        "pads": before + after, "ceil_mode": int(ceil),
    }  # fmt: skip
    operator = max_pool
    if include is not None:
        operator = avg_pool
        attrs["count_include_pad"] = include
        onnx["count_include_pad"] = int(include)
    if ceil:
        record = operator.make_attrs(attrs)
        assert isinstance(record, PoolAttrs)
        attrs["out_sizes"] = tuple(ceil_size(a) for a in pool_axes(record, (10, 12)))
    kind = "MaxPool" if include is None else "AveragePool"
    check_operator(operator, [x], attrs, expected=run_onnx_node(kind, [x], onnx))


def test_pool_passes_symbolic_dimensions_through() -> None:
    n, h = Symbol("n"), Symbol("h")
    same = {"kernel": (3, 3), "pads_before": (1, 1), "pads_after": (1, 1)}
    assert max_pool(f32(n, 3, h, 8), **same).type.shape == (n, 3, h, 8)
    assert avg_pool(f32(n, 3, h, 8, 16), **same, layout="NCc").type.shape == (n, 3, h, 8, 16)


def test_padding_never_wins() -> None:
    x = np.full((1, 1, 2, 2), -5.0, np.float32)
    attrs = {"kernel": (3, 3), "pads_before": (1, 1), "pads_after": (1, 1)}
    assert np.all(check_operator(max_pool, [x], attrs) == -5.0)


def test_a_constant_divisor_needs_no_counting() -> None:
    x = te.placeholder((1, 2, 8, 8))
    assert avg_pool.compute is not None
    made = avg_pool.compute(avg_pool.make_attrs({"kernel": (2, 2), "strides": (2, 2)}), x)
    assert "float32(4.0)" in str(made[-1].op.body[0])


@pytest.mark.parametrize(
    ("x", "attrs", "text"),
    [
        (f32(1, 2, 8), {"kernel": (2, 2)}, "a window of 2 axes does not slide over"),
        (f32(1, 2, 8, 8), {"kernel": (2, 2), "layout": "CN"}, "is not NC or NCc"),
        (f32(1, 2, 8, 8), {"kernel": (2, 0)}, "must not be below 1"),
        (f32(1, 2, 8, 8), {"kernel": (2, 2), "out_sizes": (4,)}, "one number of windows per axis"),
        (f32(1, 2, 8, 8), {"kernel": (2, 2), "pads_before": (2, 0)}, "leaves windows of 2 empty"),
        (f32(1, 2, 1, 8), {"kernel": (3, 3)}, "does not fit"),
    ],
)
def test_pool_refuses(x: Var, attrs: dict[str, object], text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        max_pool(x, **attrs)


def test_avg_pool_refuses_integers() -> None:
    x = Var("x", TensorType((1, 2, 8, 8), "int32"))
    with pytest.raises(TypeMismatch, match="mean of int32"):
        avg_pool(x, kernel=(2, 2))


@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 0), (0, 1))])
def test_indices_agree_with_onnxruntime(
    column_major: bool, pads: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    x = random_array((2, 3, 7, 9), "float32", -2, 2)
    attrs = {"kernel": (3, 2), "strides": (2, 2), "pads_before": pads[0], "pads_after": pads[1]}
    record = max_pool_indices.make_attrs({**attrs, "column_major": column_major})
    values, places = max_pool_indices.reference(record, x)
    onnx_attrs: dict[str, object] = {
        "kernel_shape": (3, 2), "strides": (2, 2), "pads": pads[0] + pads[1],
        "storage_order": int(column_major),
    }  # fmt: skip
    expected = run_onnx_outputs("MaxPool", [x], onnx_attrs, {"y": None, "i": TensorProto.INT64})
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(places, expected[1])


def test_of_equal_values_the_first_has_the_index() -> None:
    record = max_pool_indices.make_attrs({"kernel": (2, 2)})
    _, places = max_pool_indices.reference(record, np.zeros((1, 1, 3, 3), np.float32))
    np.testing.assert_array_equal(places[0, 0], [[0, 1], [3, 4]])
