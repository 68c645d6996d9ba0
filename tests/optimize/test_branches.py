# SPDX-License-Identifier: Apache-2.0
"""Parallel convolutions and scalings of one value become one convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, data, function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Call, Constant, Function, Node, topological
from treadle.graph.operator import Operator
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, multiply, relu, subtract
from treadle.ops.norm import batch_norm
from treadle.optimize import affine, branches
from treadle.optimize.rule import apply_rules

x = var("x", 2, 6, 7, 8)
signal = var("signal", 1, 4, 9)
RULES = [*affine.RULES, *branches.RULES]


def _conv(high: int = 3, wide: int = 3, *, groups: int = 1, key: str = "", **how: int) -> Call:
    """Return a convolution of x to as many channels that keeps the image, but for its stride."""
    dilation, stride = how.get("dilation", 1), how.get("stride", 1)
    pads = (high // 2 * dilation, wide // 2 * dilation)
    return conv(
        x,
        constant(6, 6 // groups, high, wide, key=key),
        pads_before=pads,
        pads_after=pads,
        dilations=(dilation, dilation),
        strides=(stride, stride),
        groups=groups,
        origin="conv",
    )


def _count(f: Function, op: Operator[Any]) -> int:
    return sum(isinstance(n, Call) and n.op is op for n in topological([f.body]))


def _channels(key: str) -> Constant:
    return constant(6, 1, 1, key=key)


def _normalised(value: Node) -> Node:
    scale, bias, mean = (constant(6, key=k) for k in ("scale", "bias", "mean"))
    return batch_norm(value, scale, bias, mean, Constant.of(np.abs(data(6)) + np.float32(0.1)))


def _depthwise() -> Call:
    return _conv(groups=6)


SHOWN: dict[str, Callable[[], Function]] = {
    "repvgg": lambda: function(
        add(
            add(add(_conv(), _channels("b")), add(_conv(1, 1, key="1"), _channels("c"))),
            _normalised(x),
        ),
        params=[x],
    ),
    "depthwise_of_one_tap": lambda: function(add(_conv(1, 1, groups=6), _depthwise()), params=[x]),
    "shortcut": lambda: function(add(x, _depthwise()), params=[x]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_rule(name: str, check_rule: Check) -> None:
    after = check_rule(f"branches_{name}", SHOWN[name](), RULES, rtol=2e-6)
    assert _count(after, conv) == 1


MERGED: dict[str, Callable[[], Node]] = {
    "windows of one size": lambda: add(_conv(), _conv(key="2")),
    "a window that is subtracted": lambda: subtract(_conv(1, 1), add(_conv(), _channels("b"))),
    "a row and a column in a window": lambda: add(add(_conv(1, 3), _conv()), _conv(3, 1)),
    "places two apart in a window of five": lambda: add(_conv(5, 5), _conv(dilation=2)),
    "groups in fewer groups": lambda: add(_conv(groups=6), add(_conv(groups=2), _conv(groups=6))),
    "windows that move by two": lambda: add(_conv(1, 1, stride=2), _conv(stride=2)),
    "the value, subtracted": lambda: subtract(_conv(groups=3), x),
    "a convolution, subtracted from the value": lambda: subtract(x, _conv()),
    "a scaled value": lambda: add(multiply(_channels("s"), x), _conv(1, 1)),
    "a scaled and shifted value": lambda: add(
        add(_channels("t"), multiply(x, _channels("s"))), _conv(1, 1, groups=2)
    ),
    "a shifted value": lambda: subtract(add(x, _channels("t")), _conv()),
    "a mixer of tokens": lambda: add(  # FastViT's, Vasu et al. 2023
        x,
        multiply(
            _channels("s"), subtract(add(_depthwise(), _conv(1, 1, groups=6)), _normalised(x))
        ),
    ),
}


@pytest.mark.parametrize("name", MERGED)
def test_merged(name: str) -> None:
    before = function(MERGED[name](), params=[x])
    after = apply_rules(before, RULES)
    assert _count(after, conv) == 1
    assert _count(after, multiply) == _count(after, subtract) == _count(after, batch_norm) == 0
    assert_same(before, after, rtol=2e-6)


def test_signals_are_merged() -> None:
    wide = conv(signal, constant(4, 4, 3), pads_before=(2,), pads_after=(0,))
    before = function(
        add(wide, add(signal, conv(signal, constant(4, 1, 1), groups=4))), params=[signal]
    )
    after = apply_rules(before, RULES)
    assert_same(before, after, rtol=2e-6)
    assert _count(after, conv) == 1


def _shared() -> Function:
    shared = _conv()
    return function(add(shared, x), relu(shared), params=[x])


UNCHANGED: dict[str, Callable[[], Function]] = {
    "a convolution used twice": _shared,
    "windows of different values": lambda: function(
        add(_conv(), conv(relu(x), constant(6, 6, 1, 1))), params=[x]
    ),
    "a row and a column": lambda: function(add(_conv(1, 3), _conv(3, 1)), params=[x]),
    "places outside the window": lambda: function(add(_conv(), _conv(dilation=2)), params=[x]),
    "groups that cross": lambda: function(add(_conv(groups=2), _conv(groups=3)), params=[x]),
    "windows that move differently": lambda: function(
        add(
            conv(x, constant(6, 6, 3, 3), pads_before=(1, 1), pads_after=(1, 1), strides=(1, 1)),
            conv(x, constant(6, 6, 1, 1), pads_before=(7, 8), strides=(2, 2)),
        ),
        params=[x],
    ),
    "a place between those of the window": lambda: function(
        add(
            conv(x, constant(6, 6, 2, 1), pads_before=(1, 0), pads_after=(1, 0), dilations=(2, 1)),
            x,
        ),
        params=[x],
    ),
    "weights that overflow": lambda: function(
        add(
            conv(x, Constant.of(np.full((6, 6, 1, 1), 3e38, "f4"))),
            conv(x, Constant.of(np.full((6, 6, 1, 1), 1e38, "f4"))),
        ),
        params=[x],
    ),
    "a factor that broadcasts": lambda: function(
        add(_conv(1, 1), multiply(x, constant(1, 1, 1, 8))), params=[x]
    ),
    "scalings only": lambda: function(add(multiply(x, _channels("s")), x), params=[x]),
    "weights that are computed": lambda: function(
        add(conv(x, var("w", 6, 6, 1, 1)), x), params=[x]
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, branches.RULES) is before


def test_halves_keep_their_branches() -> None:
    half = var("h", 1, 6, 4, 4, dtype="float16")
    before = function(add(conv(half, constant(6, 6, 1, 1, dtype="float16")), half), params=[half])
    assert apply_rules(before, branches.RULES) is before


def test_weights_are_rounded_once() -> None:
    first, second = constant(6, 6, 3, 3, key="1"), constant(6, 6, 3, 3, key="2")
    value = add(*(conv(x, weights) for weights in (first, second)))
    after = apply_rules(function(value, params=[x]), RULES)
    assert isinstance(after.body, Call)
    made = after.body.args[1]
    assert isinstance(made, Constant)
    exact = first.value.astype("f8") + second.value.astype("f8")
    np.testing.assert_array_equal(made.value, exact.astype("f4"))
