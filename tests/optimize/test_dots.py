# SPDX-License-Identifier: Apache-2.0
"""Which instruction integer products take, and that their sums are the same integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.optimize.cases import assert_same, data, function, var
from tests.targets import ALDER_LAKE, AVX2, AVX512, NEON, NEOVERSE_V1, SSE
from treadle.build.compile import compile_model
from treadle.graph.nodes import Call, Constant, Module, Node, topological
from treadle.graph.types import tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.lowered.dot import ConvDotAttrs, conv_dot, dense_dot, grouped, ungrouped
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.dots import conv_factors, conv_of_steps
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


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_steps_lie_side_by_side(axis: int, dtype: str) -> None:
    limits, steps = np.iinfo(dtype), 4 if dtype == "int8" else 2
    x = np.random.default_rng(0).integers(limits.min, limits.max, (4, 5, 6)).astype(dtype)
    found = grouped(x, axis)
    assert found.shape[-1] == steps
    assert found.shape[axis] == -(-x.shape[axis] // steps)
    back = np.moveaxis(ungrouped(found, axis), axis, 0)
    np.testing.assert_array_equal(back[: x.shape[axis]], np.moveaxis(x, axis, 0))
    assert not back[x.shape[axis] :].any()


def method(target: Target, high: int, dtype: str) -> str:
    """Return the types of the factors that a product with bytes becomes, or its operator."""
    made, params = product(64, high, dtype)
    after = choose_layouts(function(made, params=params), target)  # type: ignore[arg-type]
    calls = [n for n in topological([after.body]) if isinstance(n, Call)]
    dots = [n for n in calls if n.op is dense_dot]
    if not dots:
        return "dense_packed" if any(n.op is dense_packed for n in calls) else ""
    return " x ".join(tensor_type(a.type).dtype for a in dots[0].args)


@pytest.mark.parametrize(
    ("target", "high", "dtype", "expected"),
    [
        (AVX512, 127, "uint8", "uint8 x int8"),
        (AVX512, 127, "int8", "uint8 x int8"),
        (AVX512, 255, "uint8", "int16 x int16"),
        (ALDER_LAKE, 127, "int8", "uint8 x int8"),
        (AVX2, 127, "uint8", "int16 x int16"),
        (SSE, 255, "int8", "int16 x int16"),
        (NEOVERSE_V1, 127, "uint8", "uint8 x int8"),
        (NEOVERSE_V1, 127, "int8", "int8 x int8"),
        (NEON, 127, "uint8", "int8 x int8"),
        (NEON, 255, "uint8", "dense_packed"),
    ],
)
def test_products_of_bytes_take_what_the_target_has(
    target: Target, high: int, dtype: str, expected: str
) -> None:
    assert method(target, high, dtype) == expected


@pytest.mark.parametrize("target", [SSE, AVX2, AVX512, NEON, NEOVERSE_V1])
@pytest.mark.parametrize(
    ("k", "high", "dtype"), [(2, 127, "uint8"), (7, 255, "uint8"), (65, 127, "int8")]
)
def test_products_of_bytes_keep_their_sums(target: Target, k: int, high: int, dtype: str) -> None:
    made, params = product(k, high, dtype)
    before = function(made, params=params)  # type: ignore[arg-type]
    assert_same(before, choose_layouts(before, target))


@pytest.mark.parametrize("target", [SSE, AVX2, AVX512, NEON, NEOVERSE_V1])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_factors_that_are_bytes_give_int32(target: Target, types: tuple[str, str]) -> None:
    x = var("x", 50, 33, dtype=types[0])
    limits = np.iinfo(types[1])
    w = np.random.default_rng(0).integers(limits.min, limits.max, (33, 20), endpoint=True)
    made = matmul(x, Constant.of(w.astype(types[1])))
    assert tensor_type(made.type).dtype == "int32"
    before = function(made, params=[x])
    after = choose_layouts(before, target)
    assert_same(before, after)
    assert "matmul" not in operators(after.body)


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("out", ["", "float32"])
def test_factors_of_bfloat16_are_pairs_where_an_instruction_is(target: Target, out: str) -> None:
    x, w = var("x", 5, 33, dtype="bfloat16"), Constant.of(data(33, 20, dtype="bfloat16"))
    made = matmul(x, w, out_dtype=out)
    after = choose_layouts(function(made, params=[x]), target)
    assert tensor_type(after.body.type).dtype == (out or "bfloat16")
    assert ("dense_dot" in operators(after.body)) == (target is AVX512)


@pytest.mark.parametrize(
    ("k", "high", "dtype"), [(64, 40_000, "uint8"), (64, 255, "int32"), (64, 255, "uint16")]
)
def test_products_of_larger_numbers_stay(k: int, high: int, dtype: str) -> None:
    made, params = product(k, high, dtype)
    after = choose_layouts(function(made, params=params), AVX512)  # type: ignore[arg-type]
    assert "dense_dot" not in operators(after.body)


def test_a_zero_point_per_row_is_taken_off_first() -> None:
    x, zero = var("x", 5, 64, dtype="uint8"), var("zero", 5, 1, dtype="uint8")
    before = function(matmul(centred(x, zero), weights(64, 37, high=127)), params=[x, zero])
    after = choose_layouts(before, AVX512)
    assert_same(before, after)
    assert "dense_dot" in operators(after.body)


def test_moves_between_bytes_and_product_are_made_of_bytes() -> None:
    x, zero = var("x", 8, 3, 5, dtype="int8"), var("zero", dtype="int8")
    rows = reshape(transpose(centred(x, zero), perm=(1, 2, 0)), shape=(15, 8))
    before = function(matmul(rows, weights(8, 20, high=127)), params=[x, zero])
    after = choose_layouts(before, AVX512)
    assert_same(before, after)
    (dot,) = [n for n in topological([after.body]) if isinstance(n, Call) and n.op is dense_dot]
    assert tensor_type(dot.args[0].type).dtype == "uint8"


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("high", [127, 255])
def test_convolutions_of_bytes_take_channels_together(
    channels: int, groups: int, high: int
) -> None:
    x, zero = var("x", 2, channels * groups, 7, 9, dtype="uint8"), var("zero", dtype="uint8")
    pads = {"pads_before": (1, 1), "pads_after": (1, 2), "strides": (2, 1)}
    w = weights(6, channels, 3, 3, high=high)
    before = function(conv(centred(x, zero), w, groups=groups, **pads), params=[x, zero])
    after = choose_layouts(before, AVX512)
    assert_same(before, after)
    assert ("conv_dot" in operators(after.body)) == (channels > 1)


@pytest.mark.parametrize(
    ("size", "groups", "how"),
    [
        (7, 1, {"pads_before": (1, 1), "pads_after": (1, 1)}),
        (11, 3, {"pads_before": (1, 2), "pads_after": (1, 0), "dilations": (2, 1)}),
        (14, 1, {"strides": (2, 2)}),
        (14, 1, {"strides": (1, 2)}),
    ],
)
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_rows_of_bytes_can_be_one(
    target: Target, size: int, groups: int, how: dict[str, Any], zero: int
) -> None:
    x, point = var("x", 2, 6 * groups, size, size, dtype="uint8"), Constant.of(zero, "int32")
    less = ew.subtract(ew.cast(x, dtype="int32"), point)
    made = conv(less, weights(9, 6, 3, 3, high=127), groups=groups, **how)
    factors = conv_factors(made, less, target)
    assert factors is not None
    after = conv_of_steps(made, factors, in_one_row=True)
    assert_same(function(made, params=[x]), function(after, params=[x]))


@pytest.mark.parametrize(("size", "expected"), [(7, True), (32, False)])
def test_short_rows_of_bytes_are_one(size: int, expected: bool) -> None:
    x = var("x", 1, 64, size, size, dtype="uint8")
    w = weights(64, 64, 3, 3, high=127)
    made = conv(ew.cast(x, dtype="int32"), w, pads_before=(1, 1), pads_after=(1, 1))
    after = choose_layouts(function(made, params=[x]), AVX512)
    (dot,) = [n for n in topological([after.body]) if isinstance(n, Call) and n.op is conv_dot]
    assert isinstance(dot.attrs, ConvDotAttrs)
    assert dot.attrs.one_row == expected


@pytest.mark.parametrize("zero", [0, 7, 255])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_pads_are_the_zero_point_around_bytes(zero: int, dtype: str) -> None:
    x = var("x", 1, 5, 7, 9, dtype=dtype)
    point = Constant.of(np.array(zero).astype(dtype).astype("int32"))
    pads = {"pads_before": (1, 0), "pads_after": (1, 2)}
    less = ew.subtract(ew.cast(x, dtype="int32"), point)
    made = conv(less, weights(6, 5, 3, 3, high=127), **pads)
    before = function(made, params=[x])
    after = choose_layouts(before, AVX512)
    assert_same(before, after)
    (dot,) = [n for n in topological([after.body]) if isinstance(n, Call) and n.op is conv_dot]
    assert isinstance(dot.attrs, ConvDotAttrs)
    assert dot.attrs.data == "uint8"


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "native"])
@pytest.mark.parametrize("high", [127, 255])
def test_compiled_dots_are_exact(cpu: str, high: int) -> None:
    target = parse_target(f"llvm -mcpu={cpu}")
    if why_not_here(target):
        pytest.skip("this machine cannot run code for the target")
    x, zero = var("x", 3, 301, dtype="uint8"), var("zero", dtype="uint8")
    w = weights(301, 70, high=high)
    module = Module(function(matmul(centred(x, zero), w), params=[x, zero]))
    rows = data(3, 301, dtype="uint8")
    rows[0] = 255
    wanted = (rows.astype("int64") - 3) @ w.value
    (got,) = compile_model(module, target=target).run({"x": rows, "zero": np.array(3, "uint8")})
    np.testing.assert_array_equal(np.asarray(got), wanted)


def operators(body: Node) -> set[str]:
    return {n.op.name for n in topological([body]) if isinstance(n, Call)}
