# SPDX-License-Identifier: Apache-2.0
"""Rules about reshapes among other moves: a text before and after each, and the same elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tests.optimize.cases import function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Constant, Function
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize import reshape_rules
from treadle.optimize.reshape_rules import factors_of
from treadle.optimize.rule import apply_rules

x = var("x", 2, 3, 4, 5)
y = var("y", 2, 3, 5, 7)
one = var("one", 1, 3, 4, 5)
TWO = Constant.of(np.int64(2))


def _turned(cut: tuple[int, ...]) -> Function:
    merged = reshape(x, shape=(6, 4, 5))
    return function(reshape(transpose(merged, perm=(0, 2, 1)), shape=cut), params=[x])


def _product(rows: int = 6) -> Function:
    a, b = reshape(x, shape=(rows, -1, 5)), reshape(y, shape=(rows, -1, 7))
    return function(matmul(a, b), params=[x, y])


CASES: dict[str, Callable[[], Function]] = {
    "cancel_around_transpose": lambda: _turned((2, 3, 5, 4)),
    "cancel_around_transpose_with_ones": lambda: _turned((2, 1, 3, 5, 4)),
    "sink_below_product": _product,
    "sink_below_product_of_turned": lambda: function(
        matmul(
            reshape(x, shape=(6, 4, 5)),
            transpose(reshape(x, shape=(6, 4, 5)), perm=(0, 2, 1)),
        ),
        params=[x],
    ),
    "sink_ones_below_product": lambda: function(
        matmul(reshape(one, shape=(3, 4, 5)), y), params=[one, y]
    ),
    "sink_ones_below_product_of_turned": lambda: function(
        matmul(x, transpose(reshape(one, shape=(3, 4, 5)), perm=(0, 2, 1))), params=[x, one]
    ),
    "sink_below_softmax": lambda: function(
        softmax(reshape(x, shape=(6, 4, 5)), axis=2), params=[x]
    ),
    "gather_before_merge": lambda: function(
        gather(reshape(x, shape=(6, 4, 5)), TWO, axis=1), params=[x]
    ),
    "split_before_gather": lambda: function(
        reshape(gather(x, TWO, axis=1), shape=(2, 2, 2, 5)), params=[x]
    ),
    "split_before_gather_on_both_sides": lambda: function(
        reshape(gather(var("w", 6, 3, 8), TWO, axis=1), shape=(2, 3, 2, 4)),
        params=[],
    ),
}


def _params(before: Function) -> Function:
    """Return a function with the parameters its body uses."""
    return before if before.params else Function((before.body.args[0].args[0],), before.body)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"reshape_rules_{name}", _params(CASES[name]()), reshape_rules.RULES)


UNCHANGED: dict[str, Callable[[], Function]] = {
    "a split of what was not merged": lambda: _turned((6, 5, 2, 2)),
    "a merge that stays": lambda: _turned((6, 20)),
    "a gather along a merged axis": lambda: function(
        gather(reshape(x, shape=(6, 4, 5)), TWO, axis=0), params=[x]
    ),
    "axes of 1 of a product with a matrix": lambda: function(
        matmul(reshape(one, shape=(3, 4, 5)), var("w", 5, 7)), params=[one]
    ),
    "a factor whose axes are merged": lambda: function(
        matmul(reshape(x, shape=(6, 4, 5)), var("w", 6, 5, 7)), params=[x]
    ),
    "several indices": lambda: function(
        gather(reshape(x, shape=(6, 4, 5)), Constant.of(np.array([1, 2])), axis=1), params=[x]
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, reshape_rules.RULES) is before


def test_factors_multiply_to_both_shapes() -> None:
    shapes = [s for n in (1, 2, 3) for s in product((1, 2, 4, 6), repeat=n)]
    pairs = [(a, b) for a, b in product(shapes, shapes) if np.prod(a) == np.prod(b)]
    found = 0
    for old, new in pairs:
        factors = factors_of(old, new)
        if factors is None:
            continue
        found += 1
        for shape, places in ((old, factors.old), (new, factors.new)):
            assert tuple(int(np.prod([factors.sizes[f] for f in p])) for p in places) == shape
            assert [f for p in places for f in p] == list(range(len(factors.sizes)))
    assert found > len(pairs) // 2


def test_shapes_without_common_factors() -> None:
    assert factors_of((4, 6), (6, 4)) is None
    assert factors_of((0, 2), (2, 0)) is None
