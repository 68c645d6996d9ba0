# SPDX-License-Identifier: Apache-2.0
"""Images are transposed where they come in, and not again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale, model
from treadle.build.reading import from_tflite
from treadle.frontend.builders.layout import (
    channels_first,
    channels_last,
    common_first,
    in_one_layout,
)
from treadle.graph.nodes import Call, Constant, Node, Var, topological
from treadle.graph.types import TensorType
from treadle.ops import elementwise
from treadle.ops.reshaping import transpose

pytest.importorskip("flatbuffers")
pytestmark = pytest.mark.tiny


def image(*shape: int) -> Var:
    return Var("x", TensorType(shape, "float32"))


def transposes(node: Node) -> int:
    """Return how many values that are no weights are transposed."""
    found = [n for n in topological([node]) if isinstance(n, Call) and n.op is transpose]
    return sum(any(isinstance(p, Var) for p in topological([n])) for n in found)


def network(dtype: str = "float32") -> Graph:
    """Return convolutions, a pool, additions and concatenations, and a mean of the images."""
    g = Graph()
    scale = None if dtype == "float32" else Scale(0.1, 3)
    shape = (1, 8, 8, 4)
    random = np.random.default_rng(0)

    def conv(x: int) -> int:
        values = random.integers(-5, 5, (4, 3, 3, 4))
        w = g.constant(values, dtype, None if scale is None else Scale(0.1))
        b = g.constant(np.zeros(4), "float32" if scale is None else "int32")
        options = {"padding": 0, "stride_w": 1, "stride_h": 1, "fused_activation_function": 3}
        return g.op("CONV_2D", (x, w, b), shape, dtype, scale, options)

    x = conv(g.input("x", shape, dtype, scale))
    y = g.op("ADD", (conv(x), x), shape, dtype, scale, {})
    y = g.op("MUL", (y, g.constant([1, 2, 3, 4], dtype, scale)), shape, dtype, scale, {})
    both = g.op("CONCATENATION", (x, y), (1, 8, 8, 8), dtype, scale, {"axis": 3})
    window = {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    both = g.op("MAX_POOL_2D", (both,), (1, 4, 4, 8), dtype, scale, window)
    both = g.op("PAD", (both, g.constant([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")),
                (1, 6, 6, 8), dtype, scale)  # fmt: skip
    options = {"keep_dims": False}
    mean = g.op("MEAN", (both, g.constant([1, 2], "int32")), (1, 8), dtype, scale, options)
    return g.result(mean)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_only_the_input_is_transposed(dtype: str) -> None:
    assert transposes(from_tflite(model(network(dtype))).main.body) == 1


def test_to_channels_first_and_back() -> None:
    x = image(1, 4, 5, 3)
    first = channels_first(x)
    assert str(first.type) == "float32[1, 3, 4, 5]"
    last = channels_last(first)
    assert last.type == x.type
    assert channels_first(last) is first


def test_constants_are_transposed_at_once() -> None:
    made = channels_first(Constant.of(np.zeros((2, 3, 4, 5), "float32")))
    assert isinstance(made, Constant)
    assert made.value.shape == (2, 5, 3, 4)


@pytest.mark.parametrize("shape", [(), (3,), (1, 1, 1, 3), (1, 4, 5, 3)])
def test_operands_that_fit_are_brought_to_one_layout(shape: tuple[int, ...]) -> None:
    x = channels_last(image(1, 3, 4, 5))
    made = in_one_layout(elementwise.add, x, Constant.of(np.ones(shape, "float32")))
    assert str(made.type) == "float32[1, 4, 5, 3]"
    assert isinstance(made, Call)
    assert made.op is transpose


def test_others_are_computed_as_they_are() -> None:
    x, y = channels_last(image(1, 3, 4, 5)), image(1, 4, 5, 3)
    made = in_one_layout(elementwise.add, x, y)
    assert isinstance(made, Call)
    assert made.op is elementwise.add
    assert common_first([x, y]) is None
    assert common_first([x, x]) is not None
