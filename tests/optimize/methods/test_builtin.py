# SPDX-License-Identifier: Apache-2.0
"""Every built-in method: it computes what it says it can, and says why it cannot the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import treadle
from tests.gpus import H100
from tests.optimize.cases import assert_same, constant, data, function, var
from tests.optimize.methods.asked import asked
from tests.targets import AVX2, AVX512, NEON
from treadle.build.compile import compile_model
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Function, Module, Var
from treadle.graph.text import call_text
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.matmul import matmul
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods.builtin import BUILT_IN
from treadle.optimize.methods.method import Choices
from treadle.target.base import Target

SEEDS = (*range(12), 16, 24)
"""Of random calls; the last ones have 3x3 windows that move by 1."""


def random_calls(seed: int) -> Iterator[Call]:
    """Yield convolutions, a 1x1, a transposed and a grouped one, and a product of random sizes."""
    rng = np.random.default_rng(seed)

    def of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    groups, rank = of(1, 1, 2, 4), of(1, 2, 2, 2, 3)
    c, f = groups * of(1, 3, 8, 16), groups * of(1, 4, 8, 16)
    kernel = of(1, 3, 3)
    attrs = {
        "strides": (of(1, 1, 2),) * rank,
        "pads_before": tuple(of(0, 1) for _ in range(rank)),
        "pads_after": tuple(of(0, 1) for _ in range(rank)),
        "groups": groups,
    }
    x = var("x", of(1, 2), c, *(of(6, 7, 9) for _ in range(rank)))
    yield conv(x, constant(f, c // groups, *(kernel,) * rank), origin="conv", **attrs)
    inside = var("x", of(1, 2), of(16, 32), of(5, 8), of(4, 9))
    steps = (of(1, 2),) * 2
    yield conv(
        inside, constant(of(16, 40), inside.type.shape[1], 1, 1), strides=steps, origin="1x1"
    )  # type: ignore[union-attr]
    w = constant(c, f // groups, *(of(2, 3, 4),) * rank)
    yield conv_transpose(x, w, origin="transposed", **attrs)
    k, n = of(2, 16, 40, 41), of(1, 16, 50)
    values = var("x", of(1, 3), of(1, 2, 9, 33), k)
    yield matmul(values, constant(k, n), origin="product")
    size, chunks = of(2, 4, 8), of(1, 2, 3)
    blocks = var("x", of(1, 2), 16 * chunks, of(5, 8), of(4, 9, 17))
    w, groups = constant(16 * chunks, size, kernel, of(1, 3)), 16 * chunks // size
    yield conv(blocks, w, groups=groups, strides=steps, origin="groups")


def forced(call: Call, target: Target) -> Iterator[tuple[str, Any]]:
    """Yield every method that applies to a call, and what it makes of it."""
    for name, candidate in asked(call, target).candidates.items():
        if candidate.cycles is not None:
            yield name, asked(call, target, Choices({call_text(call): name})).made


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON, H100], ids=lambda t: t.cpu)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_method_that_applies_is_right(seed: int, target: Target) -> None:
    for call in random_calls(seed):
        before = function(call, params=[call.args[0]])  # type: ignore[list-item]
        for _, after in forced(call, target):
            assert_same(before, after, rtol=2e-5)


def test_the_random_calls_try_every_method_of_floats() -> None:
    tried = {
        (call.op, name)
        for seed in SEEDS
        for call in random_calls(seed)
        for target in (AVX512, H100)
        for name, c in asked(call, target).candidates.items()
        if c.cycles is not None
    }
    others = {"bytes", "pairs", "scaled-weights", "widened"}
    wanted = {(m.operator, m.name) for m in BUILT_IN if m.name not in others}
    assert wanted <= tried


def test_methods_are_of_their_families() -> None:
    calls = [call for seed in SEEDS for call in random_calls(seed)]
    here = {n for c in calls for n, a in asked(c, H100).candidates.items() if a.cycles is not None}
    assert here == {"plain", "staged"}
    against = asked(calls[0], AVX512).candidates["staged"].reason
    assert against == "it is for targets of the family gpu"


@pytest.mark.parametrize("method", ["bytes", "pairs", "widened", "panels", "plain"])
def test_products_of_integers(method: str) -> None:
    narrow = var("x", 3, 40, dtype="int8")
    dtype = "int8" if method == "widened" else "int32"
    w = constant(40, 24, dtype=dtype)
    if method == "pairs":
        w = Constant.of(w.value * 40)  # no bytes
    x = narrow if method == "widened" else ew.cast(narrow, dtype="int32")
    call = matmul(x, w, origin="c")
    target = AVX512
    found = asked(call, target, Choices({call_text(call): method}))
    assert found.choice == method
    before = function(call, params=[narrow])
    assert_same(before, choose_layouts(before, target, Choices({call_text(call): method})))


@pytest.mark.parametrize("method", ["bytes", "pairs", "plain"])
def test_convolutions_of_integers(method: str) -> None:
    narrow = var("x", 1, 9, 6, 7, dtype="int8")
    w = constant(8, 9, 3, 3, dtype="int32")
    if method == "pairs":
        w = Constant.of(w.value * 40)
    call = conv(ew.cast(narrow, dtype="int32"), w, pads_before=(1, 0), origin="c")
    before = function(call, params=[narrow])
    assert_same(before, choose_layouts(before, AVX512, Choices({call_text(call): method})))


def test_scaled_channels_go_into_the_weights() -> None:
    x = var("x", 1, 32, 12, 12)
    gate = ew.sigmoid(conv(var("g", 1, 32, 1, 1), constant(32, 32, 1, 1)))
    value = conv(x, constant(32, 32, 1, 1))
    call = conv(ew.multiply(value, gate), constant(8, 32, 1, 1), origin="c")
    before = function(call, params=[x, var("g", 1, 32, 1, 1)])
    params = {p.name: p for p in before.params}
    assert set(params) == {"x", "g"}
    found = asked(call, AVX512)
    assert found.choice == "scaled-weights"
    unscaled = conv(value, constant(8, 32, 1, 1), origin="c")
    assert "no factor per channel" in asked(unscaled, AVX512).against("scaled-weights")


REASONS: tuple[tuple[str, Call, str], ...] = (
    ("bytes", conv(var("x", 1, 8, 6, 6), constant(8, 8, 3, 3)), "it is for int32 results"),
    ("depthwise", conv(var("x", 1, 8, 6, 6), constant(8, 8, 3, 3)), "one filter of its own"),
    ("direct", conv(var("x", 1, 8, 6, 6), var("w", 8, 8, 3, 3)), "weights known when compiled"),
    ("grouped", conv(var("x", 1, 8, 6, 6), constant(8, 8, 3, 3)), "there is one group"),
    ("grouped", conv(var("x", 1, 8, 6), constant(8, 4, 3), groups=2), "images of known sizes"),
    (
        "lane-groups",
        conv(var("x", 1, 32, 6, 6), constant(64, 4, 3, 3), groups=8),
        "as many inputs as filters",
    ),
    ("winograd-2", conv(var("x", 1, 8, 6, 6), constant(8, 8, 1, 1)), "windows of several taps"),
    (
        "winograd-4",
        conv(var("x", 1, 16, 9, 9), constant(16, 16, 3, 3), strides=(3, 3)),
        "strides of 1, or of 2 without dilation",
    ),
    (
        "winograd-4",
        conv(var("x", 1, 16, 9, 9), constant(16, 16, 5, 5)),
        "of more than 6 points the rounding errors are too large",
    ),
    ("strassen", conv(var("x", 1, 16, 6, 6), constant(16, 16, 3, 3)), "it is for 1x1"),
    ("strassen", conv(var("x", 1, 3, 6, 6), constant(16, 3, 1, 1)), "whole blocks of channels"),
    ("panels", matmul(var("x", 3, 4), var("w", 4, 5)), "not known when compiled"),
    ("panels", matmul(var("x", 3, 4), constant(2, 4, 5)), "one matrix with elements"),
    (
        "panels",
        matmul(var("x", 3, 4, dtype="float16"), constant(4, 5, dtype="float16")),
        "summed in themselves",
    ),
    ("widened", matmul(var("x", 3, 4), constant(4, 5)), "integers of 16 bits"),
    ("pairs", matmul(var("x", 3, 4), constant(4, 5)), "no instruction of the target"),
    ("strassen", matmul(var("x", 3, 5), constant(5, 5)), "even depths"),
    (
        "phases",
        conv_transpose(
            var("x", 1, 8, 4, 4), constant(8, 4, 3, 3), dilations=(2, 1), strides=(2, 2)
        ),
        "its kernel is dilated",
    ),
    (
        "phase-by-phase",
        conv_transpose(var("x", 1, 8, 4, 4), constant(8, 4, 3, 3), groups=2),
        "groups read different channels",
    ),
)


@pytest.mark.tiny
@pytest.mark.parametrize(("method", "call", "why"), REASONS)
def test_what_does_not_apply_says_why(method: str, call: Call, why: str) -> None:
    found = asked(call, AVX512)
    assert found.candidates[method].cycles is None
    assert why in found.against(method)


@pytest.mark.tiny
def test_every_method_says_what_it_freezes_and_in_which_layout_it_runs() -> None:
    names = [(m.operator, m.name) for m in BUILT_IN]
    assert len(set(names)) == len(names)
    for method in BUILT_IN:
        assert method.knobs or method.layout == "NCHW", method.name  # blocks have a width


def test_a_compiled_model_runs_by_the_methods_it_is_given() -> None:
    call = conv(var("x", 1, 16, 9, 9), constant(16, 16, 3, 3), origin="c")
    f = function(call, params=[call.args[0]])  # type: ignore[list-item]
    value = data(*tensor_type(call.args[0].type).static_shape)
    (wanted,) = run(f, {"x": value})
    for method, kernel in (("winograd-2", "winograd"), ("direct", "conv2d_nchwc")):
        made = compile_model(Module(f), methods={call_text(call): method})
        assert any(kernel in k.name for k in made.kernels)
        np.testing.assert_allclose(np.asarray(made.run([value])[0]), wanted, atol=1e-3)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_weights_that_a_method_has_made_are_in_the_layout_of_the_model(ndim: int) -> None:
    x = Var("x", TensorType((2, 3, *(9,) * ndim), "float32"))
    weights = np.random.default_rng(0).normal(size=(3, 2, *(3,) * ndim)).astype(np.float32)
    given = np.random.default_rng(1).normal(size=(2, 3, *(9,) * ndim)).astype(np.float32)
    body = conv_transpose(x, Constant.of(weights))
    expected = conv_transpose.reference(body.attrs, given, weights)
    (found,) = treadle.compile(Module(Function((x,), body, "main"), ("y",)))(given)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=lambda t: t.cpu)
@pytest.mark.parametrize(("channels", "filters", "size"), [(64, 256, 56), (24, 144, 56)])
def test_pixels_between_plain_values_are_computed_where_they_lie(
    channels: int, filters: int, size: int, target: Target
) -> None:
    x = var("x", 1, channels, size, size)
    call = conv(x, constant(filters, channels, 1, 1), origin="pixels")
    assert asked(call, target).choice == "plain"
