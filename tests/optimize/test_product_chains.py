# SPDX-License-Identifier: Apache-2.0
"""Which products are one kernel with the product that reads them, and why others are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.optimize.cases import assert_same, constant, function, var
from treadle.graph.nodes import Call, Function, Node, topological
from treadle.ops.activation import gelu
from treadle.ops.elementwise import add, multiply
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.matmul import matmul
from treadle.optimize.fuse import fuse
from treadle.optimize.methods.product import panel_width
from treadle.optimize.pipeline import optimize
from treadle.optimize.product_chains import why_apart
from treadle.target.base import Target
from treadle.target.parse import parse_target

CASCADE_LAKE = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
CUDA = parse_target("cuda -arch=sm_90")


def product(x: Node, columns: int, target: Target = CASCADE_LAKE, dtype: str = "float32") -> Call:
    rows, steps = x.type.static_shape[-2:]  # type: ignore[union-attr]
    width = panel_width(rows, columns, steps, dtype, target)
    panels = constant(-(-columns // width), steps, width, dtype=dtype, key=f"{columns}")
    return dense_packed(x, panels, n=columns, origin=f"to {columns}")


def layer(x: Node, hidden: int, columns: int) -> tuple[Call, Call]:
    """Return both products of a feed-forward layer."""
    first = product(x, hidden)
    return first, product(gelu(first), columns)


def reason(rows: int, steps: int, hidden: int, target: Target = CASCADE_LAKE) -> str:
    return why_apart(layer(var("x", rows, steps), hidden, steps), target)


def test_a_layer_of_many_rows_and_few_weights_is_one_kernel() -> None:
    assert reason(3136, 96, 384) == ""
    assert reason(784, 192, 768) == ""


def test_what_level_2_holds_need_not_be_kept_there() -> None:
    assert "level 2 holds the values" in reason(49, 96, 384)
    assert "level 2 holds the values" in reason(1, 4096, 4096)


def test_weights_that_would_pass_for_every_block_keep_products_apart() -> None:
    for rows, steps, hidden in ((197, 768, 3072), (196, 384, 1536)):
        assert "of the time" in reason(rows, steps, hidden)


def test_a_product_joins_only_if_that_one_pays() -> None:
    """Two of 256 x 256 and a third do; a fourth would let weights of all of them pass."""
    x: Node = var("x", 4096, 256)
    chain = []
    for _ in range(5):
        chain.append(product(x, 256))
        x = gelu(chain[-1])
    assert [why_apart(chain[k:], CASCADE_LAKE) == "" for k in (3, 2)] == [True, True]
    assert "at most 4 products" in why_apart(chain, CASCADE_LAKE)


def test_other_values_are_other_kernels() -> None:
    first, second = layer(var("x", 3136, 96), 384, 96)
    assert "schedule of its own" in why_apart((first, second), CUDA)
    x = var("x", 8, 784, 96)
    assert "one matrix" in why_apart(layer(x, 384, 96), CASCADE_LAKE)
    sum_ = add(first, first)
    assert "schedule of its own" in why_apart((sum_, second), CASCADE_LAKE)


def kernels(body: Node, x: Node, *others: Node) -> list[str]:
    """Return the operators of every kernel; checks the meaning."""
    f = function(body, params=[x, *others])  # type: ignore[list-item]
    fused = fuse(f, why_apart=lambda anchors: why_apart(anchors, CASCADE_LAKE))
    assert_same(f, fused)
    calls = [n for n in topological([fused.body]) if isinstance(n, Call)]
    found = []
    for call in calls:
        assert isinstance(call.op, Function)
        inner = [n for n in topological([call.op.body]) if isinstance(n, Call)]
        found.append(" ".join(n.op.name for n in inner))
    return found


ROWS = 3136


def _residual(x: Node) -> Node:
    """The values of the layer are added to its result."""
    return add(layer(x, 384, 96)[1], x)


def _read_twice(x: Node) -> Node:
    """The hidden values have another reader."""
    hidden = gelu(product(x, 384))
    return add(product(hidden, 96), product(multiply(hidden, hidden), 96))


def _three(x: Node) -> Node:
    return product(gelu(product(gelu(product(x, 256)), 256)), 64)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_residual, ["dense_packed gelu dense_packed add"]),
        (_three, ["dense_packed gelu dense_packed gelu dense_packed"]),
        (
            _read_twice,
            ["dense_packed gelu", "multiply", "dense_packed", "dense_packed add"],
        ),
    ],
)
def test_kernels(build: Callable[[Node], Node], expected: list[str]) -> None:
    x = var("x", ROWS, 96)
    assert sorted(kernels(build(x), x)) == sorted(expected)


def test_the_passes_make_one_kernel_of_a_layer() -> None:
    x = var("x", ROWS, 96)
    hidden = gelu(add(matmul(x, constant(96, 384)), constant(384)))
    f = function(add(matmul(hidden, constant(384, 96)), x), params=[x])
    made = optimize(f, CASCADE_LAKE)
    calls = [n for n in topological([made.body]) if isinstance(n, Call)]
    assert len(calls) == 1
    assert_same(f, made)
