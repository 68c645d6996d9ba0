# SPDX-License-Identifier: Apache-2.0
"""Which integer products are sums of pairs, and that those are the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import assert_same, data, function, var
from tests.targets import AVX2, AVX512, NEON, SSE
from treadle.build.compile import compile_model
from treadle.graph.nodes import Call, Constant, Module, Node, topological
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.pairs import halves, pair_words
from treadle.ops.matmul import matmul
from treadle.optimize.layout import choose_layouts
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.target.parse import parse_target


def centred(x: Node, zero: Node) -> Node:
    """Return 8-bit data less a zero point as int32, as importers write it."""
    return ew.subtract(ew.cast(x, dtype="int32"), ew.cast(zero, dtype="int32"))


def weights(*shape: int, high: int = 255) -> Constant:
    """Return integers to either side of zero, both ends among them."""
    made = np.random.default_rng(sum(shape)).integers(-high, high + 1, shape)
    made.reshape(-1)[:2] = (-high, high)
    return Constant.of(made.astype("int32"))


def product(k: int, high: int = 255, dtype: str = "uint8") -> tuple[Call, list[Node]]:
    x, zero = var("x", 5, k, dtype=dtype), var("zero", dtype=dtype)
    return matmul(centred(x, zero), weights(k, 37, high=high)), [x, zero]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_words_hold_what_they_are_made_of(axis: int) -> None:
    x = np.random.default_rng(0).integers(-(2**15), 2**15, (4, 5, 6))
    found = halves(pair_words(x, axis), axis)
    np.testing.assert_array_equal(found[:4, :5, :6], x)
    assert not found[4:].any()
    assert not found[:, 5:].any()


@pytest.mark.parametrize(
    ("target", "expected"),
    [(SSE, "dense_pairs"), (AVX2, "dense_pairs"), (AVX512, "dense_pairs"), (NEON, "dense_packed")],
)
@pytest.mark.parametrize("k", [2, 7, 64])
def test_products_of_bytes_are_pairs_where_an_instruction_is(
    target: Target, expected: str, k: int
) -> None:
    made, params = product(k)
    before = function(made, params=params)  # type: ignore[arg-type]
    after = choose_layouts(before, target)
    assert_same(before, after)
    assert expected in operators(after.body)


@pytest.mark.parametrize(
    ("k", "high", "dtype"), [(64, 40_000, "uint8"), (64, 255, "int32"), (64, 255, "uint16")]
)
def test_products_of_larger_numbers_are_not_pairs(k: int, high: int, dtype: str) -> None:
    made, params = product(k, high, dtype)
    after = choose_layouts(function(made, params=params), AVX512)  # type: ignore[arg-type]
    assert "dense_pairs" not in operators(after.body)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_bytes_are_pairs_of_channels(channels: int, groups: int) -> None:
    x, zero = var("x", 2, channels * groups, 7, 9, dtype="uint8"), var("zero", dtype="uint8")
    pads = {"pads_before": (1, 1), "pads_after": (1, 2), "strides": (2, 1)}
    made = conv(centred(x, zero), weights(6, channels, 3, 3), groups=groups, **pads)
    before = function(made, params=[x, zero])
    after = choose_layouts(before, AVX512)
    assert_same(before, after)
    assert ("conv_pairs" in operators(after.body)) == (groups == 1 and channels > 1)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_compiled_pairs_are_exact(cpu: str) -> None:
    target = parse_target(f"llvm -mcpu={cpu}")
    if why_not_here(target):
        pytest.skip("this machine cannot run code for the target")
    x, zero = var("x", 3, 301, dtype="uint8"), var("zero", dtype="uint8")
    w = weights(301, 70)
    module = Module(function(matmul(centred(x, zero), w), params=[x, zero]))
    rows = data(3, 301, dtype="uint8")
    rows[0] = 255
    wanted = (rows.astype("int64") - 3) @ w.value
    (got,) = compile_model(module, target=target).run({"x": rows, "zero": np.array(3, "uint8")})
    np.testing.assert_array_equal(np.asarray(got), wanted)


def operators(body: Node) -> set[str]:
    return {n.op.name for n in topological([body]) if isinstance(n, Call)}
