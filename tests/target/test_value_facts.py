# SPDX-License-Identifier: Apache-2.0
"""What is promised of an expression's values holds for every value of its variables."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.expr.evaluate import evaluate
from tests.target.kernel import flat
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.target.value_facts import (
    float_bounds,
    is_never_nan,
    is_never_negative,
    scalar_const,
)

pytestmark = pytest.mark.tiny

N, M = Var("n"), Var("m")
X = Var("x", "float32")
HALF = ex.convert(0.5, "float32")
LEAST = ex.convert(-2.0, "float32")
NAN = Const.of(math.nan, "float32")


def test_a_constant_is_found_below_a_broadcast() -> None:
    assert scalar_const(Const.of(7)) == 7
    assert scalar_const(ex.broadcast(Const.of(7), 4)) == 7
    assert scalar_const(N) is None
    assert scalar_const(ex.ramp(0, 1, 4)) is None


@pytest.mark.parametrize(
    "e",
    [N + M, N * M, N // 3, N % 3, ex.minimum(N, M), ex.maximum(N - 5, M), N - M, N * -1, N + -1,
     ex.minimum(N, M - 4), ex.maximum(N - 5, M - 5), ex.cast(N, "int32") + ex.cast(M, "int32")],
    ids=str,
)  # fmt: skip
def test_never_negative_is_promised_only_of_what_is(e: Expr) -> None:
    values = [evaluate(e, {N: n, M: m}) for n in range(8) for m in range(8)]
    if is_never_negative(e):
        assert min(values) >= 0
    else:
        assert min(values) < 0 or e.dtype != "int64"


@pytest.mark.parametrize(
    ("e", "never"),
    [(HALF, True), (NAN, False), (X, False), (ex.cast(N, "float32"), True),
     (ex.cast(X, "float64"), False), (ex.maximum(X, HALF), False), (ex.maximum(HALF, HALF), True),
     (ex.select(N < M, HALF, X), False), (ex.broadcast(HALF, 4), True)],
    ids=str,
)  # fmt: skip
def test_nan_is_excluded_only_where_it_cannot_be(e: Expr, never: bool) -> None:
    assert is_never_nan(e) == never


@pytest.mark.parametrize(
    ("e", "value", "bounds"),
    [(HALF, lambda x: 0.5, (0.5, 0.5)),
     (X, lambda x: x, (-math.inf, math.inf)),
     (ex.maximum(X, HALF), lambda x: max(x, 0.5), (0.5, math.inf)),
     (ex.minimum(X, HALF), lambda x: min(x, 0.5), (-math.inf, 0.5)),
     (ex.minimum(ex.maximum(X, LEAST), HALF), lambda x: min(max(x, -2.0), 0.5), (-2.0, 0.5)),
     (ex.maximum(ex.minimum(X, HALF), HALF), lambda x: max(min(x, 0.5), 0.5), (0.5, 0.5)),
     (X + HALF, lambda x: x + 0.5, (-math.inf, math.inf))],
    ids=lambda v: str(v) if isinstance(v, (Expr, tuple)) else "in Python",
)  # fmt: skip
def test_clamps_bound_a_float(
    e: Expr, value: Callable[[float], float], bounds: tuple[float, float]
) -> None:
    assert float_bounds(e) == bounds
    values = [value(x) for x in (-1e30, -2.5, 0.0, 0.5, 0.75, 1e30)]
    assert bounds[0] <= min(values)
    assert max(values) <= bounds[1]


def test_nothing_is_known_of_what_is_loaded() -> None:
    source = flat("x", "int64", 4)
    loaded = ex.load(source, [N])
    assert not is_never_negative(loaded)
    assert scalar_const(loaded) is None
