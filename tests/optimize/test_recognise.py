# SPDX-License-Identifier: Apache-2.0
"""Operators found in their steps, and steps that only look like them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Constant, Function, Node
from treadle.ops.elementwise import add, divide, multiply, sqrt, subtract
from treadle.ops.reduce import mean
from treadle.optimize import recognise
from treadle.optimize.rule import apply_rules

x = var("x", 2, 3, 8)


def _number(value: float) -> Constant:
    return Constant.of(np.float32(value))


def _steps(
    *,
    axis: int = 2,
    of: Node = x,
    scale: Node | None = None,
    epsilon: float = 1e-5,
    swapped: bool = False,
) -> Function:
    centred = subtract(of, mean(of, axes=(axis,), keepdims=True))
    variance = mean(multiply(centred, centred), axes=(axis,), keepdims=True)
    unit = divide(centred, sqrt(add(variance, _number(epsilon))))
    factor = constant(8, key="w") if scale is None else scale
    scaled = multiply(factor, unit) if swapped else multiply(unit, factor)
    shift = constant(8, key="b")
    return function(add(shift, scaled) if swapped else add(scaled, shift), params=[x])


CASES: dict[str, Callable[[], Function]] = {
    "layer_norm": _steps,
    "layer_norm_swapped": lambda: _steps(swapped=True),
    "layer_norm_scaled_by_number": lambda: _steps(scale=_number(2.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, check_rule: Check) -> None:
    check_rule(f"recognise_{name}", CASES[name](), recognise.RULES, rtol=1e-5)


def _two_means() -> Function:
    centred = subtract(x, mean(x, axes=(2,), keepdims=True))
    other = multiply(centred, x)
    variance = mean(other, axes=(2,), keepdims=True)
    unit = divide(centred, sqrt(add(variance, _number(1e-5))))
    return function(add(multiply(unit, constant(8)), constant(8, key="b")), params=[x])


UNCHANGED: dict[str, Callable[[], Function]] = {
    "another axis": lambda: _steps(axis=1),
    "a scale along another axis": lambda: _steps(scale=constant(3, 1)),
    "a negative epsilon": lambda: _steps(epsilon=-1e-5),
    "no variance": _two_means,
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, recognise.RULES) is before
