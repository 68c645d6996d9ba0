# SPDX-License-Identifier: Apache-2.0
"""Concatenations are made of those that hold the same values, and nothing is copied."""

from __future__ import annotations

import numpy as np

import treadle
from tests.optimize.cases import assert_same, constant, function, var
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Function, Module, Node, topological
from treadle.ops.conv import conv
from treadle.ops.elementwise import exp, relu, tanh
from treadle.ops.movement import concat
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.concat_runs import share_runs

a, b, c, d = (var(n, 1, 2, 3) for n in "abcd")
PARAMS = [a, b, c, d]


def sizes(f: Function) -> list[int]:
    """Return how many parts each concatenation has, in order."""
    found = [n for n in topological([f.body]) if isinstance(n, Call) and n.op is concat]
    return [len(n.args) for n in found]


def shared(*outputs: Node) -> Function:
    before = function(*outputs, params=PARAMS)
    after = share_runs(before)
    assert_same(before, after)
    return after


def test_each_is_a_part_of_the_next() -> None:
    first, second = concat(a, b, axis=1), concat(a, b, c, axis=1)
    third = concat(a, b, c, d, axis=1)
    after = shared(exp(first), tanh(second), relu(third))
    assert sizes(after) == [2, 2, 2]
    calls = [n for n in topological([after.body]) if isinstance(n, Call) and n.op is concat]
    assert calls[0] in calls[1].args
    assert calls[1] in calls[2].args


def test_runs_at_the_end_and_in_the_middle_count_and_the_longest_wins() -> None:
    inner, longer = concat(b, c, axis=1), concat(b, c, d, axis=1)
    whole = concat(a, b, c, d, axis=1)
    after = shared(exp(inner), tanh(longer), relu(whole))
    assert sizes(after) == [2, 2, 2]
    after = shared(exp(inner), relu(whole))
    assert sizes(after) == [2, 3]


def test_other_axes_orders_and_equal_values_stay() -> None:
    for others in ([concat(a, b, axis=2)], [concat(b, a, axis=1)], [concat(a, c, axis=1)]):
        before = function(*others, concat(a, b, c, axis=1), params=PARAMS)
        assert share_runs(before) is before
    one = function(concat(a, axis=1), concat(a, b, axis=1), params=PARAMS)
    assert share_runs(one) is one


def test_the_same_run_twice_is_read_once() -> None:
    after = shared(exp(concat(a, b, axis=1)), relu(concat(a, b, a, b, axis=1)))
    assert sizes(after) == [2, 3]


def test_layers_that_read_all_earlier_ones_copy_nothing() -> None:
    x = var("x", 1, 16, 6, 6)
    made: list[Node] = [relu(conv(x, constant(16, 16, 1, 1)))]
    for k in range(4):
        joined = relu(concat(*made, axis=1)) if k else made[0]
        weights = constant(16, 16 * len(made), 1, 1, key=str(k))
        made.append(conv(joined, weights))
    before = function(relu(concat(*made, axis=1)), params=[x])
    assert_same(before, canonicalize(before), rtol=1e-5)
    compiled = treadle.compile(Module(before, ("y",)))
    assert not any(step.is_copy for step in compiled.memory.steps)
    given = {"x": np.random.default_rng(0).standard_normal((1, 16, 6, 6)).astype(np.float32)}
    (found,) = compiled.run(given)
    (wanted,) = run(before, given)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
