# SPDX-License-Identifier: Apache-2.0
"""Scaling folds into weights; what it may not change stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.limits import DEFERRED_BYTES
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.elementwise import add, divide, multiply, relu, subtract
from treadle.ops.matmul import matmul
from treadle.optimize import affine
from treadle.optimize.rule import apply_rules

x = var("x", 2, 4, 5, 5)
m = var("m", 3, 4)


def _conv(value: Node = x, groups: int = 1) -> Call:
    return conv(value, constant(6, 4 // groups, 3, 3, key="w"), groups=groups, origin="conv")


def _channels(key: str = "c") -> Constant:
    return constant(6, 1, 1, key=key)


CASES: dict[str, Callable[[], Function]] = {
    "multiply_conv": lambda: function(multiply(_conv(), _channels()), params=[x]),
    "multiply_grouped_conv": lambda: function(multiply(_channels(), _conv(groups=2)), params=[x]),
    "multiply_conv_by_number": lambda: function(multiply(_conv(), constant()), params=[x]),
    "divide_conv": lambda: function(divide(_conv(), _channels()), params=[x]),
    "multiply_conv_with_bias": lambda: function(
        multiply(add(_conv(), _channels("b")), _channels(), origin="scale"), params=[x]
    ),
    "divide_conv_with_bias": lambda: function(
        divide(add(_channels("b"), _conv()), _channels()), params=[x]
    ),
    "merge_shifts": lambda: function(add(_channels("a"), add(_conv(), _channels("b"))), params=[x]),
    "subtract_to_add": lambda: function(subtract(x, constant(5)), params=[x]),
    "multiply_conv_transpose": lambda: function(
        multiply(conv_transpose(x, constant(4, 3, 3, 3), groups=2), _channels()), params=[x]
    ),
    "multiply_matmul": lambda: function(
        multiply(matmul(m, constant(4, 6)), constant(6)), params=[m]
    ),
    "chain": lambda: function(
        add(multiply(add(_conv(), _channels("b")), _channels("s")), _channels("t")), params=[x]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"affine_{name}", CASES[name](), affine.RULES, rtol=2e-6)


def _shared() -> Function:
    shared = _conv()
    return function(multiply(shared, _channels()), relu(shared), params=[x])


UNCHANGED: dict[str, Callable[[], Function]] = {
    "a convolution used twice": _shared,
    "a factor per column": lambda: function(multiply(_conv(), constant(3)), params=[x]),
    "a factor that broadcasts": lambda: function(
        multiply(_conv(), constant(3, 1, 1, 1, 1)), params=[x]
    ),
    "weights that overflow": lambda: function(
        multiply(_conv(), Constant.of(np.full((6, 1, 1), 3e38, np.float32))), params=[x]
    ),
    "division by zero": lambda: function(
        divide(_conv(), Constant.of(np.zeros((6, 1, 1), np.float32))), params=[x]
    ),
    "weights that are computed": lambda: function(
        multiply(matmul(m, var("w", 4, 6)), constant(6)), params=[m]
    ),
    "integers": lambda: function(
        subtract(var("i", 3, dtype="int32"), constant(3, dtype="int32")), params=[]
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, affine.RULES) is before


def test_weights_are_rounded_once() -> None:
    """Folding computes in float64: the weights are those nearest to the exact product."""
    weights, scale = constant(6, 4, 3, 3, key="w"), _channels()
    after = apply_rules(function(multiply(_conv(), scale), params=[x]), affine.RULES)
    assert isinstance(after.body, Call)
    exact = weights.value.astype(np.float64) * scale.value.astype(np.float64)[:, None]
    np.testing.assert_array_equal(after.body.args[1].value, exact.astype(np.float32))  # type: ignore[union-attr]


def _large(value: float) -> Constant:
    """Return weights that are scaled later, of small values and one other."""
    weights = np.full((512, 1024), 1e-3, "f4")
    weights[-1, -1] = value
    assert weights.nbytes >= DEFERRED_BYTES
    return Constant.of(weights)


@pytest.mark.parametrize(
    ("value", "last", "is_folded"),
    [
        (1.0, 2.0, True),
        (-1e38, 2.0, True),
        (-1e38, 10.0, False),
        (1e38, -10.0, False),
        (np.inf, 0.0, False),
        (np.nan, 1.0, False),
        (1e38, 0.5, True),  # the largest factor and the largest weight never meet
    ],
)
def test_large_weights_are_scaled_unless_one_would_overflow(
    value: float, last: float, is_folded: bool
) -> None:
    values = var("values", 4, 512)
    scale = np.full(1024, 20.0 if last == 0.5 else 1.0, "f4")
    scale[-1] = last
    product = multiply(matmul(values, _large(value)), Constant.of(scale))
    made = apply_rules(function(product, params=[values]), affine.RULES).body
    assert isinstance(made, Call)
    assert (made.op is matmul) == is_folded
    if is_folded:
        weights = made.args[1]
        assert isinstance(weights, Constant)
        expected = (_large(value).value.astype("f8") * scale).astype("f4")
        np.testing.assert_array_equal(weights.value, expected)
