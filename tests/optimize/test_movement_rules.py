# SPDX-License-Identifier: Apache-2.0
"""Rules about moves: each has a text before and after, and gives the very same elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Constant, Function, TupleItem
from treadle.ops.activation import leaky_relu
from treadle.ops.elementwise import add, exp, relu
from treadle.ops.indexing import gather
from treadle.ops.movement import concat, pad, slice_, split
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.optimize import movement_rules
from treadle.optimize.rule import apply_rules

x = var("x", 2, 3, 4)
y = var("y", 2, 1, 1, 3)
s = var("s", 1, 6, 4)


def _merge_concats() -> Function:
    inner = concat(x, relu(x), axis=1)
    return function(concat(x, inner, axis=1), params=[x])


def _split() -> Function:
    parts = split(x, sections=(1, 3), axis=2)
    return function(TupleItem.of(parts, 1), TupleItem.of(parts, 0), params=[x])


CASES: dict[str, Callable[[], Function]] = {
    "merge_reshapes": lambda: function(
        reshape(reshape(x, shape=(6, 4)), shape=(-1, 2)), params=[x]
    ),
    "drop_reshape": lambda: function(reshape(x, shape=(2, 3, -1)), params=[x]),
    "cut_before_slice": lambda: function(
        reshape(slice_(s, begin=(2,), end=(6,), axes=(1,)), shape=(1, 2, 2, 4)), params=[s]
    ),
    "merge_transposes": lambda: function(
        transpose(transpose(x, perm=(1, 2, 0)), perm=(0, 2, 1)), params=[x]
    ),
    "cancel_transposes": lambda: function(
        relu(transpose(transpose(x, perm=(1, 2, 0)), perm=(2, 0, 1))), params=[x]
    ),
    "transpose_to_reshape": lambda: function(transpose(y, perm=(1, 0, 3, 2)), params=[y]),
    "drop_full_slice": lambda: function(
        slice_(x, begin=(0, 0), end=(2, 4), axes=(0, 2)), params=[x]
    ),
    "drop_reversed_slice_of_one": lambda: function(
        slice_(y, begin=(0,), end=(-1,), strides=(-1,), axes=(1,)), params=[y]
    ),
    "drop_empty_pad": lambda: function(pad(x, before=(0, 0, 0), after=(0, 0, 0)), params=[x]),
    "drop_single_concat": lambda: function(concat(x, axis=1), params=[x]),
    "repeat_to_broadcast": lambda: function(
        concat(*[reshape(x, shape=(2, 1, 3, 4))] * 3, axis=1), params=[x]
    ),
    "merge_concats": _merge_concats,
    "split_to_slices": _split,
    "sink_concat": lambda: function(
        leaky_relu(concat(exp(x), add(x, x), axis=1), alpha=0.5), params=[x]
    ),
    "lift_above_moves": lambda: function(
        relu(reshape(transpose(exp(x), perm=(0, 2, 1)), shape=(2, 2, 2, 3))), params=[x]
    ),
    "shuffle_to_gather": lambda: function(
        reshape(transpose(reshape(s, shape=(1, 2, 3, 4)), perm=(0, 2, 1, 3)), shape=(1, 6, 4)),
        params=[s],
    ),
    "pick_before_transpose": lambda: function(
        gather(transpose(x, perm=(2, 0, 1)), Constant.of(np.int64(1)), axis=1), params=[x]
    ),
    "drop_broadcast": lambda: function(broadcast_to(x, shape=(2, 3, 4)), params=[x]),
    "drop_operand_broadcast": lambda: function(
        add(x, broadcast_to(constant(3, 1), shape=(2, 3, 4))), params=[x]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"movement_rules_{name}", CASES[name](), movement_rules.RULES)


def _shared_move() -> Function:
    moved = transpose(exp(x), perm=(0, 2, 1))
    return function(relu(moved), moved, params=[x])


UNCHANGED: dict[str, Callable[[], Function]] = {
    "a slice inside a piece": lambda: function(
        reshape(slice_(s, begin=(1,), end=(5,), axes=(1,)), shape=(1, 2, 2, 4)), params=[s]
    ),
    "a slice of an extent that is not of whole pieces": lambda: function(
        reshape(slice_(s, begin=(0,), end=(4,), axes=(1,)), shape=(1, 1, 4, 4)), params=[s]
    ),
    "a slice along two axes": lambda: function(
        reshape(slice_(s, begin=(2, 0), end=(6, 3), axes=(1, 2)), shape=(1, 2, 2, 3)), params=[s]
    ),
    "a reversed axis": lambda: function(
        slice_(x, begin=(3,), end=(-1,), strides=(-1,), axes=(2,)), params=[x]
    ),
    "axes that move": lambda: function(transpose(x, perm=(0, 2, 1)), params=[x]),
    "negative padding": lambda: function(pad(x, before=(0, 0, -1), after=(0, 0, 1)), params=[x]),
    "concats on two axes": lambda: function(
        concat(concat(x, x, axis=1), concat(x, x, axis=1), axis=0), params=[x]
    ),
    "a concat of values computed for others": lambda: function(
        relu(concat(exp(x), x, axis=1)), params=[x]
    ),
    "an operator of a reshaped value": lambda: function(
        relu(reshape(exp(x), shape=(6, 4))), params=[x]
    ),
    "an operator of moved values that others use": _shared_move,
    "an operator of a moved input": lambda: function(
        relu(transpose(x, perm=(0, 2, 1))), params=[x]
    ),
    "a broadcast that decides the shape": lambda: function(
        add(broadcast_to(var("b", 1, 4), shape=(3, 4)), var("c", 4)),
        params=[],
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, movement_rules.RULES) is before


def test_concat_used_twice_stays() -> None:
    inner = concat(x, x, axis=1)
    before = function(concat(inner, x, axis=1), relu(inner), params=[x])
    assert apply_rules(before, movement_rules.RULES) is before


def test_symbolic_sizes() -> None:
    n = Symbol("n")
    v = var("v", n, 6)
    before = function(relu(reshape(reshape(v, shape=(n, 2, 3)), shape=(n, 6))), params=[v])
    after = apply_rules(before, movement_rules.RULES)
    assert after.body.args == (v,)  # type: ignore[union-attr]
