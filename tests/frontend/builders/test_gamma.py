# SPDX-License-Identifier: Apache-2.0
"""The gamma function's relatives, against values computed with fifty digits."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from tests.frontend.builders.functions import Cases, Unary, check_values, values_of
from treadle.frontend.builders import gamma
from treadle.frontend.builders.basic import broadcast, dims_of, scalar_like
from treadle.graph.nodes import Constant

VALUES: Cases = {
    "log_gamma": (gamma.log_gamma, {
        -20.25: -41.60096191534053, -0.5: 1.2655121234846454, 0.25: 1.2880225246980774,
        1.5: -0.12078223763524522, 9.5: 11.689333420797269, 11.0: 15.104412573075516,
        100000.0: 1051287.7089736569,
    }),
    "digamma": (gamma.digamma, {
        -20.25: 6.174235633614484, 0.25: -4.2274535333762655, 1.5: 0.03648997397857652,
        9.5: 2.1977378764029494, 11.0: 2.351752589066721,
    }),
    "trigamma": (partial(gamma.polygamma, 1), {
        -3.25: 19.474085068082154, 0.25: 17.19732915450711, 12.0: 0.08690187287176838,
    }),
    "polygamma_3": (partial(gamma.polygamma, 3), {
        -3.25: 1558.508802818279, 0.25: 1538.7821440091884, 12.0: 0.001310093231070826,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    check_values(*VALUES[name])


LIMITS: Cases = {
    "log_gamma": (gamma.log_gamma, {0.0: math.inf, -3.0: math.inf, -math.inf: math.inf}),
    "digamma": (gamma.digamma, {0.0: -math.inf, -2.0: math.nan}),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    function, points = LIMITS[name]
    found = values_of(function, np.array(list(points)))
    np.testing.assert_array_equal(found, [*points.values()])


def _incomplete(a: float, *, upper: bool) -> Unary:
    return lambda x: gamma.incomplete(broadcast(scalar_like(a, x), dims_of(x)), x, upper=upper)


@pytest.mark.parametrize("a", [0.25, 1.0, 7.5, 300.0])
def test_shares_of_the_gamma_function_add_up_and_grow(a: float) -> None:
    x = a * np.array([1e-3, 0.2, 0.9, 1.0, 1.1, 2.0, 9.0])
    low, high = (values_of(_incomplete(a, upper=u), x) for u in (False, True))
    np.testing.assert_allclose(low + high, 1, rtol=1e-14)
    assert (np.diff(low) >= 0).all()
    if a == 1.0:
        np.testing.assert_allclose(high, np.exp(-x), rtol=1e-13)


def test_the_edges_of_incomplete_gamma_functions() -> None:
    a = np.array([0.0, 0.0, 1.0, -1.0, math.inf, 2.0])
    x = np.array([1.0, 0.0, 0.0, 1.0, 3.0, math.inf])
    low = values_of(lambda v: gamma.incomplete(Constant.of(a), v, upper=False), x)
    np.testing.assert_array_equal(low, [1, math.nan, 0, math.nan, 0, 1])
