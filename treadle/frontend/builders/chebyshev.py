# SPDX-License-Identifier: Apache-2.0
"""Functions without a closed form as Chebyshev series through values that are known.

A smooth function on an interval is its values at the zeros of a Chebyshev polynomial: the
coefficients of the series through them are sums of those values (Trefethen, Approximation Theory
and Approximation Practice, chapter 4), and fall below rounding as fast as the function is smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from treadle.frontend.builders.basic import scalar_like
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew
from treadle.ops.series import chebyshev_series

_POINTS = 48
_NEGLIGIBLE = 1e-17
"""Coefficients of so small a part of the largest change nothing in float64."""

RealFunction = Callable[[float], float]


@cache
def coefficients(function: RealFunction, low: float, high: float) -> tuple[float, ...]:
    """Return the Chebyshev coefficients of a function on an interval."""
    angles = (np.arange(_POINTS) + 0.5) * np.pi / _POINTS
    places = low + (high - low) * (np.cos(angles) + 1) / 2
    values = np.array([function(float(x)) for x in places])
    found = 2 / _POINTS * np.cos(np.outer(np.arange(_POINTS), angles)) @ values
    found[0] /= 2
    kept = np.flatnonzero(np.abs(found) > _NEGLIGIBLE * np.abs(found).max())
    return tuple(found[: kept[-1] + 1 if kept.size else 1].tolist())


def fitted(x: Node, function: RealFunction, low: float, high: float) -> Node:
    """Return a function of `x` that is smooth on an interval; beyond it, what it is at its ends."""
    middle, half = (low + high) / 2, (high - low) / 2
    inside = ew.clip(x, min=low, max=high)
    place = ew.subtract(inside, scalar_like(middle, x))
    scaled = ew.multiply(place, scalar_like(1 / half, x))
    return chebyshev_series(scaled, coefficients=coefficients(function, low, high))
