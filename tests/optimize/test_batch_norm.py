# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation becomes weights, or one product and one sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import constant, data, function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Constant, Function, Node
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.elementwise import add, multiply, relu
from treadle.ops.matmul import matmul
from treadle.ops.norm import batch_norm
from treadle.optimize import affine
from treadle.optimize import batch_norm as rules
from treadle.optimize.rule import apply_rules

x = var("x", 2, 4, 5, 5)
m = var("m", 3, 4)


def _normalised(value: Node, variance: float = 0.1) -> Node:
    scale, bias, mean = (constant(6, key=k) for k in ("scale", "bias", "mean"))
    var_ = Constant.of(np.abs(data(6, key="var")) + np.float32(variance))
    return batch_norm(value, scale, bias, mean, var_, epsilon=1e-3, origin="bn")


def _conv() -> Node:
    return conv(x, constant(6, 4, 3, 3, key="w"), origin="conv")


CASES: dict[str, Callable[[], Function]] = {
    "conv": lambda: function(_normalised(_conv()), params=[x]),
    "conv_with_bias": lambda: function(
        _normalised(add(_conv(), constant(6, 1, 1, key="b"))), params=[x]
    ),
    "conv_transpose": lambda: function(
        _normalised(conv_transpose(x, constant(4, 6, 2, 2))), params=[x]
    ),
    "matmul": lambda: function(_normalised(matmul(m, constant(4, 6))), params=[m]),
    "alone": lambda: function(_normalised(relu(_conv())), params=[x]),
    "absorbs_factor": lambda: function(
        multiply(constant(6, 1, 1, key="f"), _normalised(relu(_conv()))), params=[x]
    ),
    "absorbs_term": lambda: function(
        add(_normalised(relu(_conv())), constant(6, 1, 1, key="f")), params=[x]
    ),
    "twice": lambda: function(_normalised(_normalised(_conv())), params=[x]),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    table = rules.EXPANSION if name == "alone" else [*rules.RULES, *affine.RULES]
    check_rule(f"batch_norm_{name}", CASES[name](), table, rtol=2e-6)


def test_shared_convolution_is_not_computed_twice() -> None:
    shared = _conv()
    before = function(_normalised(shared), shared, params=[x])
    assert apply_rules(before, [*rules.RULES, *affine.RULES]) is before


def test_statistics_that_are_computed_stay() -> None:
    v = var("v", 6)
    before = function(batch_norm(_conv(), v, v, v, v), params=[x, v])
    assert apply_rules(before, [*rules.RULES, *rules.EXPANSION]) is before


def test_impossible_variance_stays() -> None:
    """A negative variance gives NaN at run time, as the operator says; weights are not harmed."""
    before = function(_normalised(_conv(), variance=-5.0), params=[x])
    assert apply_rules(before, [*rules.RULES, *rules.EXPANSION]) is before


def test_half_precision_stays() -> None:
    """It computes in float32 and rounds once; scaled weights would be rounded before."""
    h = var("h", 2, 6, dtype="float16")
    parameters = [Constant.of(np.abs(data(6, key=k))) for k in "sbmv"]
    before = function(batch_norm(h, *parameters), params=[h])
    assert apply_rules(before, [*rules.RULES, *rules.EXPANSION]) is before
