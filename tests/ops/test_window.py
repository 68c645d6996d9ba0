# SPDX-License-Identifier: Apache-2.0
"""Tests of sliding windows, and of a symbolic batch through every operator that has windows."""

from __future__ import annotations

from typing import Any

import pytest

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.image import resize
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc, depthwise_conv2d_nchwc
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.matmul import matmul
from treadle.ops.pool import avg_pool, ceil_size, max_pool, max_pool_indices
from treadle.ops.window import WindowAxis, window_axes

OPERATORS: list[Operator[Any]] = [
    conv, conv_transpose, conv2d_nchwc, depthwise_conv2d_nchwc, pack_nchwc, unpack_nchwc, matmul,
    dense_packed, max_pool, max_pool_indices, avg_pool, resize,
]  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_a_symbolic_batch_goes_through(operator: Operator[Any]) -> None:
    assert operator.compute is not None
    example = operator.examples[0]
    n = Symbol("n")
    shapes = [(n, *example.shapes[0][1:]), *example.shapes[1:]]
    values = dict(example.attrs)
    if operator is resize:
        values["sizes"] = (-1, *example.attrs["sizes"][1:])  # type: ignore[index]
    attrs = operator.make_attrs(values)
    dtype = (example.dtypes or ("float32",))[0]
    result = operator.infer(attrs, *(TensorType(s, dtype) for s in shapes))
    made = operator.compute(attrs, *(te.placeholder(s, dtype) for s in shapes))
    last = made if isinstance(made, te.Tensor) else made[-1]
    found = TensorType(last.shape, last.dtype)
    assert found == (result if isinstance(result, TensorType) else result.fields[-1])
    assert found.shape[0] is n


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_number_of_windows_is_that_of_counting_them(size: int, stride: int) -> None:
    for kernel, dilation, before, after in [(1, 1, 0, 0), (2, 1, 1, 0), (2, 3, 1, 3), (3, 2, 2, 2)]:
        axis = WindowAxis(size, kernel, stride, before, after, dilation)
        padded = before + size + after
        starts = range(0, padded, stride)
        fitting = [s for s in starts if s + axis.extent <= padded]
        if not fitting:
            if padded - axis.extent == -stride:
                assert axis.out == 0  # the quotient is exact
                continue
            with pytest.raises(TypeMismatch, match="does not fit"):
                _ = axis.out
            continue
        assert axis.out == len(fitting)
        reaching = [s for s in starts if s < padded - axis.extent + stride and s < before + size]
        assert ceil_size(axis) == len(reaching)


def test_empty_attributes_mean_the_default_everywhere() -> None:
    assert window_axes((8, 9), (3, 2), (), (), (), ()) == (WindowAxis(8, 3), WindowAxis(9, 2))
