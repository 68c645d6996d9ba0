# SPDX-License-Identifier: Apache-2.0
"""Products of tokens that become an image, or of an image that becomes tokens, are convolutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treadle
from tests.optimize.cases import assert_same, constant, function, var
from tests.targets import AVX2
from treadle.graph.interpret import run
from treadle.graph.nodes import (
    Call,
    Constant,
    DeferredConstant,
    Function,
    Module,
    Node,
    topological,
)
from treadle.graph.operator import Operator
from treadle.graph.types import tensor_type
from treadle.ops.activation import gelu
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, relu
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.pipeline import optimize
from treadle.optimize.tokens import convolve_tokens
from treadle.passes import recorded_decisions
from treadle.target.parse import parse_target

x = var("x", 2, 12, 6)  # images of 3 x 4
one = var("one", 12, 6)
image = var("image", 2, 24, 3, 4)
w, v = constant(6, 24), constant(24, 6, key="v")
bias, other_bias = constant(24, key="bias"), constant(6, key="other")
taps = constant(24, 1, 3, 3)


def to_image(tokens: Node, channels: int, n: int = 2) -> Node:
    front = transpose(tokens, perm=(0, 2, 1))
    return reshape(front, shape=(n, channels, 3, 4))


def to_tokens(made: Node, channels: int) -> Node:
    return transpose(reshape(made, shape=(2, channels, 12)), perm=(0, 2, 1))


def depthwise(of: Node) -> Node:
    return conv(of, taps, groups=24, pads_before=(1, 1), pads_after=(1, 1))


def feed_forward() -> Function:
    """As PVT v2 and SegFormer have it."""
    wide = to_image(add(matmul(x, w), bias), 24)
    made = to_tokens(gelu(depthwise(wide)), 24)
    return function(add(x, add(matmul(made, v), other_bias)), params=[x])


def one_image_without_an_axis() -> Function:
    wide = reshape(matmul(one, w), shape=(3, 4, 24))
    moved = reshape(transpose(wide, perm=(2, 0, 1)), shape=(1, 24, 3, 4))
    return function(depthwise(moved), params=[one])


def channels_last() -> Function:
    last = transpose(relu(depthwise(image)), perm=(0, 2, 3, 1))
    return function(add(matmul(last, v), constant(1, key="number")), params=[image])


def signal() -> Function:
    wide = transpose(matmul(x, w), perm=(0, 2, 1))
    return function(conv(wide, constant(8, 24, 3)), params=[x])


CASES: dict[str, tuple[Callable[[], Function], int]] = {
    "feed forward": (feed_forward, 2),
    "one image without an axis": (one_image_without_an_axis, 1),
    "channels last": (channels_last, 1),
    "a signal": (signal, 1),
}
"""Functions, and how many products they have."""


def names(f: Function) -> list[str]:
    calls = [n for n in topological([f.body]) if isinstance(n, Call)]
    return [c.op.name for c in calls if isinstance(c.op, Operator)]


def moved_channels(f: Function) -> list[int]:
    """Return of how many channels each transpose moves the tokens."""
    found = [n for n in topological([f.body]) if isinstance(n, Call) and n.op is transpose]
    shapes = [tensor_type(n.args[0].type).static_shape for n in found]
    return [max(d for d in s if d in (6, 24)) for s in shapes]


@pytest.mark.parametrize("name", CASES)
def test_products_become_convolutions_of_few_channels(name: str) -> None:
    make, products = CASES[name]
    before = canonicalize(make())
    assert names(before).count("matmul") == products
    after = convolve_tokens(before, AVX2)
    assert names(after).count("matmul") == 0
    assert names(after).count("conv") == names(before).count("conv") + products
    assert set(moved_channels(before)) == {24}
    assert set(moved_channels(after)) == {6}
    assert_same(before, after, rtol=1e-5)


def test_it_is_told() -> None:
    with recorded_decisions() as told:
        convolve_tokens(canonicalize(feed_forward()), AVX2)
    assert [(d.topic, d.choice) for d in told] == [("form", "1x1 convolution")] * 2
    assert told[0].reason == "tokens are moved to or from an image with 6 channels instead of 24"


def test_the_bias_goes_with_the_product() -> None:
    after = convolve_tokens(canonicalize(feed_forward()), AVX2)
    adds = [n for n in topological([after.body]) if isinstance(n, Call) and n.op is add]
    first = [a.args[0] for a in adds]
    assert [isinstance(a, Call) and a.op is conv for a in first].count(True) == 2


@pytest.mark.parametrize("name", CASES)
def test_they_run(name: str) -> None:
    before = CASES[name][0]()
    inputs = {
        p.name: np.random.default_rng(i).standard_normal(tensor_type(p.type).static_shape)
        for i, p in enumerate(before.params)
    }
    given = {k: a.astype(np.float32) for k, a in inputs.items()}
    (found,) = treadle.compile(Module(before, ("y",))).run(given)
    (wanted,) = run(before, given)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_no_channels_are_moved_between_wide_layers() -> None:
    """The middle of the layer stays in blocks; only its ends are moved, and no kernel is left."""
    rows, wide, hidden = 196, 32, 128
    tokens = var("tokens", 1, rows, wide)
    first, last = constant(wide, hidden), constant(hidden, wide, key="last")
    front = transpose(matmul(tokens, first), perm=(0, 2, 1))
    wide_image = reshape(front, shape=(1, hidden, 14, 14))
    made = conv(
        wide_image, constant(hidden, 1, 3, 3), groups=hidden, pads_before=(1, 1), pads_after=(1, 1)
    )
    back = transpose(reshape(relu(made), shape=(1, hidden, rows)), perm=(0, 2, 1))
    before = function(matmul(back, last), params=[tokens])
    after = optimize(before, parse_target("llvm -mcpu=haswell"))
    moves = [
        n for n in topological([after.body])
        if isinstance(n, Call) and isinstance(n.op, Function) and "conv" not in n.op.name
    ]  # fmt: skip
    assert moves
    assert all(tensor_type(m.type).size <= rows * wide for m in moves)


def test_weights_that_are_made_later_stay_so() -> None:
    made: list[int] = []

    def compute() -> np.ndarray:
        made.append(1)
        return w.value

    later = DeferredConstant(compute, w.type)
    body = conv(to_image(matmul(x, later), 24), constant(4, 24, 1, 1, key="u"))
    after = convolve_tokens(canonicalize(function(body, params=[x])), AVX2)
    kept = [n for n in topological([after.body]) if isinstance(n, DeferredConstant)]
    assert [tensor_type(k.type).static_shape for k in kept] == [(24, 6, 1, 1)]
    assert not made
    np.testing.assert_array_equal(kept[0].value[:, :, 0, 0], w.value.T)


def _read_twice() -> Function:
    wide = matmul(x, w)
    return function(depthwise(to_image(wide, 24)), relu(wide), params=[x])


def _image_read_twice() -> Function:
    made = depthwise(image)
    return function(matmul(to_tokens(made, 24), v), made, params=[image])


UNCHANGED: dict[str, Callable[[], Function]] = {
    "a product of fewer channels": lambda: function(
        conv(to_image(matmul(var("a", 2, 12, 24), v), 6), constant(6, 6, 3, 3)),
        params=[var("a", 2, 12, 24)],
    ),
    "as many channels after the image": lambda: function(
        matmul(to_tokens(depthwise(image), 24), constant(24, 24)), params=[image]
    ),
    "an image that no convolution made": lambda: function(
        matmul(to_tokens(relu(image), 24), v), params=[image]
    ),
    "tokens in another order": lambda: function(
        depthwise(reshape(matmul(x, w), shape=(2, 24, 3, 4))), params=[x]
    ),
    "weights of an input": lambda: function(
        depthwise(to_image(matmul(x, var("given", 6, 24)), 24)), params=[x, var("given", 6, 24)]
    ),
    "numbers and a vector": lambda: function(
        add(constant(), var("number")),
        transpose(reshape(var("number"), shape=(1, 1, 1)), perm=(0, 2, 1)),
        conv(reshape(var("vector", 24), shape=(1, 24, 1, 1)), constant(4, 24, 1, 1, key="u")),
        params=[var("number"), var("vector", 24)],
    ),
    "a product read twice": _read_twice,
    "an image read twice": _image_read_twice,
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = canonicalize(UNCHANGED[name]())
    assert convolve_tokens(before, AVX2) is before


def test_gpus_keep_their_products() -> None:
    before = canonicalize(feed_forward())
    assert convolve_tokens(before, parse_target("cuda -arch=sm_90")) is before


def test_constants_are_views() -> None:
    after = convolve_tokens(canonicalize(signal()), AVX2)
    (filters,) = [
        n for n in topological([after.body])
        if isinstance(n, Constant) and n.type.shape == (24, 6, 1)
    ]  # fmt: skip
    assert np.shares_memory(filters.value, w.value)
