# SPDX-License-Identifier: Apache-2.0
"""Shortened chains of conversions give what the whole chain gives, for every three types."""

from __future__ import annotations

import itertools
import math

import pytest

from treadle.dtype import NAMES, is_float, is_integer, max_value, min_value
from treadle.expr.casts import shorten_cast
from treadle.expr.fold import fold_cast
from treadle.expr.nodes import Cast, Const, Expr, Var, broadcast, cast
from treadle.expr.simplify import simplify

pytestmark = pytest.mark.tiny


def _samples(dtype: str) -> list[int | float | bool]:
    if dtype == "bool":
        return [False, True]
    if is_integer(dtype):
        low, high = int(min_value(dtype)), int(max_value(dtype))
        return [low, low + 1, -200, -5, 0, 1, 3, 130, 70_000, high - 1, high]
    return [0.0, -0.0, 1 / 3, -1.5, 2.5, 254.6, -300.0, 4e9, 1e30, math.inf, -math.inf, math.nan]


def _convert(x: Const, dtype: str) -> Const:
    found = x if x.dtype == dtype else fold_cast(Cast(x, dtype, 1))
    assert found is not None
    return found


@pytest.mark.parametrize("source", NAMES)
def test_chains(source: str) -> None:
    x = Var("x", source)
    shortened = 0
    for middle, target in itertools.product(NAMES, NAMES):
        chain = cast(cast(x, middle), target)
        short = shorten_cast(chain) if isinstance(chain, Cast) else None
        if short is None:
            continue
        shortened += 1
        assert short is cast(x, target)
        for value in _samples(source):
            start = Const.of(value, source)
            through = _convert(_convert(start, middle), target)
            straight = _convert(start, target)
            assert straight is through, f"{start} -> {middle} -> {target}"
    assert shortened >= len(NAMES) - 1 or source == "float64"  # nothing is wider


@pytest.mark.parametrize("dtype", [n for n in NAMES if is_float(n)])
def test_a_widening_and_back_is_nothing(dtype: str) -> None:
    x: Expr = Var("x", dtype)
    assert simplify(cast(cast(x, "float64"), dtype)) is x


def test_conversions_of_broadcasts_are_scalar() -> None:
    x = Var("x", "int32")
    assert simplify(cast(broadcast(x, 4), "float32")) is broadcast(cast(x, "float32"), 4)
