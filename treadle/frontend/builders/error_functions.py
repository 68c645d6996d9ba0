# SPDX-License-Identifier: Apache-2.0
"""The error function's relatives, of float64 numbers: scaled, logarithmic and inverse."""

from __future__ import annotations

import math

import numpy as np

from treadle.frontend.builders.arithmetic import (
    below,
    choose,
    is_equal,
    minus,
    over,
    plus,
    times,
)
from treadle.frontend.builders.basic import scalar_like
from treadle.frontend.builders.chebyshev import fitted
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew
from treadle.ops import real_functions as rf

_ROOT_2 = math.sqrt(2)


# ---- erfc(x) exp(x^2) ----------------------------------------------------------------------------

_SPREAD = 4.0
"""What (x - spread) / (x + spread) maps the numbers above 0 by, to -1 to 1."""


def _scaled_complement(x: float) -> float:
    """Return erfc(x) exp(x^2): far from 0 x / pi times the integral of exp(-t^2) / (x^2 + t^2)."""
    if x < 2:
        return math.erfc(x) * math.exp(x * x)
    t = np.arange(-160, 161) / 20
    return float((np.exp(-t * t) / (x * x + t * t)).sum() / 20 * x / math.pi)


def _tamed_complement(place: float) -> float:
    """Return (1 + 2 x) erfc(x) exp(x^2), which is near 1, at a place from -1 to 1."""
    x = _SPREAD * (1 + place) / (1 - place)
    return (1 + 2 * x) * _scaled_complement(x)


def erfcx(x: Node) -> Node:
    """Return erfc(x) exp(x^2)."""
    size = ew.abs(x)
    place = choose(ew.isinf(x), 1.0, over(minus(size, _SPREAD), plus(size, _SPREAD)))
    made = over(fitted(place, _tamed_complement, -1, 1), plus(times(size, 2.0), 1.0))
    square = ew.exp(times(x, x))
    return choose(below(x, 0.0), minus(times(square, 2.0), made), made)


def log_ndtr(x: Node) -> Node:
    """Return the logarithm of the probability that a standard normal number is below `x`."""
    z = times(x, -1 / _ROOT_2)
    far = minus(ew.log(times(erfcx(ew.maximum(z, scalar_like(0, z))), 0.5)), times(z, z))
    near = rf.log1p(times(rf.normal_cdf(times(x, -1.0)), -1.0))
    return choose(below(x, -1.0), far, near)


# ---- inverses ------------------------------------------------------------------------------------

_CENTRE = 0.75
"""The inverse of erf up to here is a series in the square, beyond one in the logarithm."""
_SPANS = ((1.9, 6.0), (6.0, 38.6))
"""sqrt(-2 log p) of the probabilities p of the tail, in two parts."""


def _inverse_centre(square: float) -> float:
    """Return erfinv(y) / y at y^2, by Newton's method."""
    y = math.sqrt(square)
    x = y * math.sqrt(math.pi) / 2
    for _ in range(60):
        x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
    return x / y


def _inverse_tail(s: float) -> float:
    """Return x where a normal number is above x with probability exp(-s^2 / 2), by Newton.

    The logarithm of the probability is nearly a parabola, so its root is found from anywhere.
    """
    x = s
    for _ in range(60):
        scaled = _scaled_complement(x / _ROOT_2) / 2
        slope = -1 / (scaled * math.sqrt(2 * math.pi))
        x -= (math.log(scaled) - x * x / 2 + s * s / 2) / slope
    return x


def _tail(p: Node) -> Node:
    """Return how far out a normal number is with a probability `p` below 1/8."""
    s = ew.sqrt(times(ew.log(p), -2.0))
    near, far = (fitted(s, _inverse_tail, *span) for span in _SPANS)
    return choose(below(s, _SPANS[0][1]), near, far)


def erfinv(y: Node) -> Node:
    """Return the inverse of erf: infinite at -1 and 1, NaN beyond."""
    size = ew.abs(y)
    centre = times(y, fitted(times(y, y), _inverse_centre, 0, _CENTRE**2))
    tail = times(_tail(times(minus(1.0, size), 0.5)), 1 / _ROOT_2)
    made = choose(below(size, _CENTRE), centre, times(tail, ew.sign(y)))
    made = choose(is_equal(size, 1.0), times(y, math.inf), made)
    return choose(ew.greater(size, scalar_like(1, size)), math.nan, made)


def ndtri(p: Node) -> Node:
    """Return below what a standard normal number is with probability `p`."""
    offset = minus(p, 0.5)
    y = times(offset, 2.0)
    centre = times(y, fitted(times(y, y), _inverse_centre, 0, _CENTRE**2))
    rest = ew.minimum(p, minus(1.0, p))
    tail = times(_tail(rest), ew.sign(offset))
    made = choose(below(ew.abs(y), _CENTRE), times(centre, _ROOT_2), tail)
    made = choose(is_equal(p, 0.0), -math.inf, choose(is_equal(p, 1.0), math.inf, made))
    return choose(below(rest, 0.0), math.nan, made)
