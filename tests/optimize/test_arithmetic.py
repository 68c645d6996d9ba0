# SPDX-License-Identifier: Apache-2.0
"""Rules about arithmetic are exact: zeros of both signs, infinities and NaN included."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle import dtype as dt
from treadle.graph.nodes import Constant, Function
from treadle.ops.elementwise import (
    add,
    cast,
    divide,
    multiply,
    power,
    subtract,
    where,
)
from treadle.optimize import arithmetic
from treadle.optimize.rule import apply_rules

x = var("x", 3, 4)
i = var("i", 3, 4, dtype="int32")
h = var("h", 3, 4, dtype="float16")


def _number(value: float, dtype: str = "float32", *shape: int) -> Constant:
    return Constant.of(np.full(shape, value, dt.to_numpy(dtype)))


CASES: dict[str, Callable[[], Function]] = {
    "drop_multiply": lambda: function(multiply(_number(1, "float32", 4), x), params=[x]),
    "drop_where": lambda: function(
        where(Constant.of(np.zeros((1, 1), bool)), _number(0.0), x), params=[x]
    ),
    "drop_divide": lambda: function(divide(x, _number(1)), params=[x]),
    "drop_add": lambda: function(add(x, _number(-0.0)), params=[x]),
    "drop_add_integer": lambda: function(add(_number(0, "int32"), i), params=[i]),
    "drop_subtract_integer": lambda: function(subtract(i, _number(0, "int32", 4)), params=[i]),
    "power_of_one": lambda: function(power(x, _number(1)), params=[x]),
    "power_to_multiply": lambda: function(power(x, _number(2)), params=[x]),
    "divide_to_multiply": lambda: function(
        divide(x, Constant.of(np.array([0.5, -4, 1, 1024], np.float32))), params=[x]
    ),
    "drop_cast": lambda: function(cast(x, dtype="float32"), params=[x]),
    "merge_casts": lambda: function(cast(cast(h, dtype="float32"), dtype="float64"), params=[h]),
    "cancel_casts": lambda: function(cast(cast(i, dtype="float64"), dtype="int32"), params=[i]),
    "shrink_constant": lambda: function(add(x, _number(0.1, "float32", 3, 4)), params=[x]),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"arithmetic_{name}", CASES[name](), arithmetic.RULES, special=True)


UNCHANGED: dict[str, Callable[[], Function]] = {
    "adding 0.0 turns -0.0 into 0.0": lambda: function(add(x, _number(0.0)), params=[x]),
    "a constant that broadcasts": lambda: function(
        multiply(x, _number(1, "float32", 2, 1, 1)), params=[x]
    ),
    "not a power of two": lambda: function(divide(x, _number(3.0)), params=[x]),
    "the inverse is not a normal number": lambda: function(
        divide(x, _number(2.0**127)), params=[x]
    ),
    "division by zero": lambda: function(divide(x, _number(0.0)), params=[x]),
    "a choice that differs": lambda: function(
        where(Constant.of(np.arange(x.type.static_shape[-1]) > 0), _number(0.0), x),  # type: ignore[union-attr]
        params=[x],
    ),
    "a cast that rounds": lambda: function(
        cast(cast(x, dtype="float16"), dtype="float32"), params=[x]
    ),
    "a cast that rounds integers": lambda: function(
        cast(cast(i, dtype="float32"), dtype="float64"), params=[i]
    ),
    "a cast to bool": lambda: function(cast(cast(i, dtype="bool"), dtype="int32"), params=[i]),
    "zeros of both signs": lambda: function(
        add(x, Constant.of(np.array([0.0, -0.0, 0.0, 0.0], np.float32))), params=[x]
    ),
    "different elements": lambda: function(add(x, constant(4)), params=[x]),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, arithmetic.RULES) is before


def _samples(dtype: str) -> np.ndarray:
    if dt.is_float(dtype):
        values = np.array([0.0, -1.5, 3.25, 1e-3, 1e30, -7.0])
        with np.errstate(over="ignore"):
            return values.astype(dt.to_numpy(dtype))
    low, high = int(dt.min_value(dtype)), int(dt.max_value(dtype))
    return np.array([low, high, 0, 1, high - 1], dt.to_numpy(dtype))


@pytest.mark.parametrize(("narrow", "wide"), [*product(dt.NAMES, dt.NAMES)])
def test_holds_means_exact(narrow: str, wide: str) -> None:
    """Where `_holds` says so, converting there and back keeps every value."""
    if not arithmetic._holds(wide, narrow):
        return
    values = _samples(narrow)
    back = values.astype(dt.to_numpy(wide)).astype(dt.to_numpy(narrow))
    np.testing.assert_array_equal(back, values)
