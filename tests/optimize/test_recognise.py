# SPDX-License-Identifier: Apache-2.0
"""Operators found in their steps, and steps that only look like them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.conftest import Check
from treadle.graph.nodes import Constant, Function, Node
from treadle.ops.activation import softplus
from treadle.ops.elementwise import (
    add,
    divide,
    erf,
    multiply,
    power,
    reciprocal,
    rsqrt,
    sqrt,
    subtract,
    tanh,
)
from treadle.ops.reduce import mean
from treadle.ops.reshaping import reshape
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


def _rms(inverse: Callable[[Node], Node] | None = None) -> Function:
    """Return x * inverse(y) * w, or x / sqrt(y) * w, with y the mean square plus epsilon."""
    shifted = add(mean(multiply(x, x), axes=(2,), keepdims=True), _number(1e-6))
    unit = divide(x, sqrt(shifted)) if inverse is None else multiply(x, inverse(shifted))
    return function(multiply(constant(8, key="w"), unit), params=[x])


def _reshaped_rms() -> Function:
    flat = reshape(x, shape=(6, 8))
    square = reshape(multiply(flat, flat), shape=(1, 6, 8))
    shifted = add(mean(square, axes=(2,), keepdims=True), _number(1e-6))
    return function(divide(reshape(flat, shape=(1, 6, 8)), sqrt(shifted)), params=[x])


def _unscaled() -> Function:
    centred = subtract(x, mean(x, axes=(2,), keepdims=True))
    variance = mean(multiply(centred, centred), axes=(2,), keepdims=True)
    return function(divide(centred, sqrt(add(variance, _number(1e-5)))), params=[x])


def _gelu(*, halved_first: bool = False, root: float = 2**0.5) -> Function:
    grown = add(erf(divide(x, _number(root))), _number(1.0))
    if halved_first:
        return function(multiply(multiply(x, _number(0.5)), grown), params=[x])
    return function(multiply(multiply(x, grown), _number(0.5)), params=[x])


def _gelu_tanh(cube: Node, factor: float = 0.044715) -> Function:
    inner = multiply(_number(0.7978846), add(x, multiply(_number(factor), cube)))
    grown = add(_number(1.0), tanh(inner))
    return function(multiply(multiply(_number(0.5), x), grown), params=[x])


CASES: dict[str, Callable[[], Function]] = {
    "layer_norm_without_scale": _unscaled,
    "layer_norm_scaled_along_another_axis": lambda: _steps(scale=constant(3, 1)),
    "rms_norm": _rms,
    "rms_norm_by_rsqrt": lambda: _rms(rsqrt),
    "rms_norm_by_power": lambda: _rms(lambda v: power(v, _number(-0.5))),
    "rms_norm_by_reciprocal": lambda: _rms(lambda v: reciprocal(sqrt(v))),
    "rms_norm_by_quotient": lambda: _rms(lambda v: divide(_number(1.0), sqrt(v))),
    "rms_norm_of_reshaped": _reshaped_rms,
    "gelu": _gelu,
    "gelu_halved_first": lambda: _gelu(halved_first=True),
    "gelu_tanh": lambda: _gelu_tanh(power(x, _number(3.0))),
    "gelu_tanh_of_products": lambda: _gelu_tanh(multiply(multiply(x, x), x)),
    "mish": lambda: function(multiply(x, tanh(softplus(x))), params=[x]),
    "mish_swapped": lambda: function(multiply(tanh(softplus(x)), x), params=[x]),
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
    "a negative epsilon": lambda: _steps(epsilon=-1e-5),
    "no variance": _two_means,
    "another error function": lambda: _gelu(root=1.5),
    "another softplus": lambda: function(
        multiply(x, tanh(softplus(multiply(x, _number(2.0))))), params=[x]
    ),
    "another cube": lambda: _gelu_tanh(power(x, _number(3.0)), factor=0.05),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert apply_rules(before, recognise.RULES) is before
