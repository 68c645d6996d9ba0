# SPDX-License-Identifier: Apache-2.0
"""Padding joins convolutions and pooling; one-axis convolutions become two-axis ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Call, Function, Node
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, relu, sigmoid
from treadle.ops.movement import pad
from treadle.ops.pool import avg_pool
from treadle.ops.reshaping import reshape
from treadle.optimize import padding_rules
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.rule import apply_rules

x = var("x", 2, 4, 5, 5)
s = var("s", 2, 4, 9)
d = var("d", 2, 1, 3)


def _pad(**attrs: Any) -> Call:
    return pad(x, before=(0, 0, 1, 2), after=(0, 0, 0, 1), **attrs)


def _conv1d(value: Node = s) -> Call:
    return conv(
        value,
        constant(6, 2, 3, key="w"),
        strides=(2,),
        pads_before=(1,),
        pads_after=(0,),
        groups=2,
        origin="conv1d",
    )


CASES: dict[str, Callable[[], Function]] = {
    "pad_into_conv": lambda: function(conv(_pad(), constant(6, 4, 3, 3)), params=[x]),
    "pad_into_padded_conv": lambda: function(
        conv(_pad(), constant(6, 4, 3, 3), pads_before=(1, 0), pads_after=(0, 1)), params=[x]
    ),
    "pad_into_avg_pool": lambda: function(
        avg_pool(_pad(), kernel=(3, 3), strides=(2, 2)), params=[x]
    ),
    "conv_to_two_axes": lambda: function(_conv1d(), params=[s]),
    "without_dead_taps": lambda: function(
        conv(
            x,
            constant(6, 4, 3, 3),
            pads_before=(6, 4),
            pads_after=(6, 5),
            dilations=(6, 5),
        ),
        params=[x],
    ),
    "sink_reshape": lambda: function(relu(reshape(d, shape=(2, 3))), params=[d]),
    "sink_reshape_constant": lambda: function(
        add(constant(3), reshape(d, shape=(2, 3))), params=[d]
    ),
    "sink_two_reshapes": lambda: function(
        add(reshape(d, shape=(2, 3)), reshape(sigmoid(d), shape=(2, 3))), params=[d]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"padding_rules_{name}", CASES[name](), padding_rules.RULES, rtol=1e-6)


UNCHANGED: dict[str, Callable[[], Function]] = {
    "padding with ones": lambda: function(conv(_pad(value=1.0), constant(6, 4, 3, 3)), params=[x]),
    "padding by reflection": lambda: function(
        conv(_pad(mode="reflect"), constant(6, 4, 3, 3)), params=[x]
    ),
    "padded channels": lambda: function(
        conv(pad(x, before=(0, 1, 0, 0), after=(0, 0, 0, 0)), constant(6, 5, 3, 3)), params=[x]
    ),
    "cropping": lambda: function(
        conv(pad(x, before=(0, 0, -1, 0), after=(0, 0, 1, 0)), constant(6, 4, 3, 3)), params=[x]
    ),
    "a mean that leaves its own padding out": lambda: function(
        avg_pool(_pad(), kernel=(3, 3), pads_before=(1, 1), pads_after=(1, 1)), params=[x]
    ),
    "padding as wide as the window": lambda: function(avg_pool(_pad(), kernel=(2, 2)), params=[x]),
    "a constant that widens the result": lambda: function(
        add(constant(5, 1, 1), reshape(d, shape=(2, 3))), params=[d]
    ),
    "an operand of the dropped rank": lambda: function(
        add(var("e", 2, 3), reshape(d, shape=(2, 3))), params=[d]
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, padding_rules.RULES) is before


def test_one_axis_convolutions_stay_together() -> None:
    """Between two of them no reshape remains, so bias and activation stay with the convolution."""
    first = relu(add(_conv1d(), constant(6, 1)))
    second = conv(first, constant(4, 3, 3), groups=2)
    after = canonicalize(function(second, params=[s]))
    names = [n.op.name for n in _path(after.body)]
    assert names == ["reshape", "conv", "relu", "add", "conv", "reshape"]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_of_one_is_not_taken_for_the_axis_that_was_added(batch: int) -> None:
    signal = var("signal", batch, 4, 9)
    value = relu(conv(signal, constant(4, 2, 3), groups=2))
    names = [n.op.name for n in _path(canonicalize(function(value, params=[signal])).body)]
    assert names == ["reshape", "relu", "conv", "reshape"]


def _path(node: Node) -> list[Call]:
    found = []
    while isinstance(node, Call):
        found.append(node)
        node = node.args[0]
    return found
