# SPDX-License-Identifier: Apache-2.0
"""Rules about rows: products and what follows them meet on matrices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call, Function
from treadle.graph.text import function_text
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, erf, multiply, relu
from treadle.ops.matmul import matmul
from treadle.ops.norm import layer_norm
from treadle.ops.reshaping import reshape
from treadle.optimize import flatten_rules, movement_rules
from treadle.optimize.fuse import fuse
from treadle.optimize.rule import apply_rules

x = var("x", 2, 3, 4)
m = var("m", 6, 4)
column = var("column", 3, 1)
windows = var("windows", 2, 3, 4, 5)
mask = var("mask", 2, 1, 4, 5)
RULES = (*movement_rules.RULES, *flatten_rules.RULES)


def _network() -> Function:
    """A product with bias, activation, residual sum and norm on [batch, row, column]."""
    inner = add(constant(8), matmul(x, constant(4, 8)))
    outer = add(matmul(multiply(inner, erf(inner)), constant(8, 4, key="w")), x)
    scale, shift = constant(4, key="s"), constant(4, key="b")
    return function(layer_norm(outer, scale, shift, axis=2, epsilon=1e-5), params=[x])


CASES: dict[str, Callable[[], Function]] = {
    "flatten_product": lambda: function(matmul(x, constant(4, 5)), params=[x]),
    "flatten_weights": lambda: function(
        matmul(x, constant(1, 4, 5)), matmul(m, constant(1, 1, 4, 5)), params=[x, m]
    ),
    "sink_reshape": lambda: function(
        relu(reshape(matmul(m, constant(4, 5)), shape=(2, 3, 5))), params=[m]
    ),
    "sink_reshape_of_sum": lambda: function(
        add(constant(4), reshape(relu(m), shape=(2, 3, 4))), params=[m]
    ),
    "sink_reshape_of_mask": lambda: function(
        add(reshape(relu(windows), shape=(1, 2, 3, 4, 5)), mask), params=[windows, mask]
    ),
    "sink_reshape_of_constant_mask": lambda: function(
        add(reshape(relu(windows), shape=(2, 1, 3, 4, 5)), constant(1, 1, 1, 4, 5)),
        params=[windows],
    ),
    "sink_reshape_below_parts_of_rows": lambda: function(
        add(reshape(relu(m), shape=(2, 3, 4)), constant(3, 1)), params=[m]
    ),
    "sink_reshape_below_norm": lambda: function(
        layer_norm(
            reshape(m, shape=(2, 3, 4)), constant(4), constant(4, key="b"), axis=2, epsilon=0.1
        ),
        params=[m],
    ),
    "network": _network,
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"flatten_rules_{name}", CASES[name](), RULES, rtol=1e-6)


def test_a_product_takes_bias_activation_and_residual_sum() -> None:
    after = fuse(apply_rules(_network(), RULES))
    kernels = {c.op for c in _calls(after) if "reshape" not in str(c.op.body.op)}  # type: ignore[union-attr]
    assert len(kernels) == 3


def _calls(f: Function) -> list[Call]:
    from treadle.graph.nodes import topological

    return [n for n in topological([f.body]) if isinstance(n, Call)]


UNCHANGED: dict[str, Callable[[], Function]] = {
    "several matrices of weights": lambda: function(matmul(x, constant(2, 4, 5)), params=[x]),
    "a matrix that no weights are": lambda: function(
        matmul(x, var("w", 1, 4, 5)), params=[x, var("w", 1, 4, 5)]
    ),
    "another last axis": lambda: function(relu(reshape(relu(m), shape=(2, 12))), params=[m]),
    "an operand along another axis": lambda: function(
        add(reshape(relu(m), shape=(2, 3, 4)), column), params=[m, column]
    ),
    "many elements along another axis": lambda: function(
        add(reshape(relu(m), shape=(2, 3, 4)), constant(3, 4)), params=[m]
    ),
    "a norm along two axes": lambda: function(
        layer_norm(
            reshape(m, shape=(2, 3, 4)), constant(4), constant(4, key="b"), axis=1, epsilon=0.1
        ),
        params=[m],
    ),
    "a sum that joins a convolution": lambda: function(
        add(
            reshape(relu(m), shape=(1, 2, 3, 4)),
            conv(var("image", 1, 3, 3, 4), constant(2, 3, 1, 1)),
        ),
        params=[m, var("image", 1, 3, 3, 4)],
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, flatten_rules.RULES) is before


def test_symbolic_rows_become_rows_of_a_matrix() -> None:
    v = var("v", Symbol("n"), 3, 4)
    before = function(matmul(v, constant(4, 5)), params=[v])
    text = function_text(apply_rules(before, flatten_rules.RULES))
    assert "reshape(%v, shape=((n * 3), 4)) : float32[(n * 3), 4]" in text
    assert ": float32[n, 3, 5]" in text
