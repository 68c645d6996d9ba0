# SPDX-License-Identifier: Apache-2.0
"""Bessel and Airy functions of float64 numbers (DLMF chapters 9 and 10).

Near zero a function is its power series; far from it, its leading behaviour times a smooth function
of the reciprocal, which an integral says. Both are fitted by Chebyshev series, so that a kernel
evaluates no more than one series on either side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from treadle.frontend.builders.arithmetic import (
    below,
    choose,
    is_equal,
    minus,
    over,
    plus,
    polynomial,
    times,
)
from treadle.frontend.builders.basic import scalar_like
from treadle.frontend.builders.chebyshev import fitted
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew

_NEAR = 8.0
"""Up to here the power series is used, with a sign or without: it loses three digits."""
_NEAR_K = 2.0
"""As `_NEAR`, for K, in whose series terms cancel that grow."""
_EULER = 0.57721566490153286
_TERMS = 60


# ---- power series --------------------------------------------------------------------------------


def _sum(order: int, sign: int, s: float, weight: Callable[[int], float]) -> float:
    """Return the sum of weight(k) (sign s / 4)^k / (k! (k + order)!)."""
    terms, term = [], 1.0
    for k in range(_TERMS):
        terms.append(weight(k) * term)
        term *= sign * s / 4 / ((k + 1) * (k + 1 + order))
    return math.fsum(terms)


def _regular(order: int, sign: int, s: float) -> float:
    """Return J (sign -1) or I (+1) of order 0 or 1 over (x / 2)^order, at x^2 = s (10.2.2)."""
    return _sum(order, sign, s, lambda k: 1.0)


def _harmonic(k: int) -> float:
    return math.fsum(1 / j for j in range(1, k + 1))


def _log_free(order: int, sign: int, s: float) -> float:
    """Return what K is without its logarithm and its pole, or what Y is with sign -1.

    With R as `_regular` has it (DLMF 10.8.1, 10.8.2, 10.31.1, 10.31.2), this F gives
    F - log(x) R        = K or -pi/2 Y of order 0,
    sign / x + log(x) x/2 R + x F = K or pi/2 Y of order 1.
    """
    regular = _regular(order, sign, s)
    if order == 0:
        return _sum(0, sign, s, _harmonic) + (math.log(2) - _EULER) * regular
    both = _sum(1, sign, s, lambda k: _harmonic(k) + _harmonic(k + 1) - 2 * _EULER)
    return -both / 4 - math.log(2) / 2 * regular


def _singular_near(order: int, sign: int, x: Node, high: float) -> Node:
    """Return K (sign +1), or -pi/2 Y (-1) of order 0 and pi/2 Y of order 1, up to `high`."""
    s = times(x, x)
    rest = fitted(s, partial(_log_free, order, sign), 0, high**2)
    regular = fitted(s, partial(_regular, order, sign), 0, high**2)
    if order == 0:
        return minus(rest, times(ew.log(x), regular))
    grown = times(ew.log(x), times(times(x, 0.5), regular))
    return plus(plus(over(float(sign), x), grown), times(x, rest))


# ---- integrals -----------------------------------------------------------------------------------


def _hankel(order: int, direction: complex, v: float) -> complex:
    """Return the integral that H and K far from zero are a multiple of, at 1 / x = v.

    For H (10.17, Hankel's integral) the direction is i, for K it is 1: the integral of
    exp(-u) u^(order - 1/2) (1 + direction u v / 2)^(order - 1/2) over Gamma(order + 1/2), with
    u = t^2. The integrand is even and smooth, so the trapezoidal rule is exact to rounding.
    """
    t = np.arange(1, 120) / 16
    half = order - 0.5
    values = np.exp(-t * t) * t ** (2 * order) * (1 + direction * t * t * v / 2) ** half
    first = 0.5 if order == 0 else 0.0
    return complex(2 / 16 * (values.sum() + first) / math.gamma(order + 0.5))


def _amplitude(order: int, part: str, v: float) -> float:
    """Return P, or Q over v, of J and Y at 1 / x = v (10.17.3 says their expansions)."""
    found = _hankel(order, 1j, v)
    return found.real if part == "P" else found.imag / v


def _waves(order: int, x: Node) -> tuple[Node, Node]:
    """Return J and Y far from zero."""
    v = over(1.0, x)
    p = fitted(v, partial(_amplitude, order, "P"), 0, 1 / _NEAR)
    q = times(v, fitted(v, partial(_amplitude, order, "Q"), 0, 1 / _NEAR))
    phase = minus(x, (2 * order + 1) * math.pi / 4)
    cosine, sine, size = ew.cos(phase), ew.sin(phase), ew.sqrt(times(v, 2 / math.pi))
    return (
        times(size, minus(times(p, cosine), times(q, sine))),
        times(size, plus(times(p, sine), times(q, cosine))),
    )


def _decay(order: int, v: float) -> float:
    """Return K exp(x) sqrt(2 x / pi) at 1 / x = v."""
    return _hankel(order, 1, v).real


def _scaled_i(order: int, x: float) -> float:
    """Return I exp(-x), the mean of exp(x (cos t - 1)) cos(order t) over a period (10.32.3)."""
    t = np.arange(8192) * (math.pi / 4096)
    return float((np.exp(x * (np.cos(t) - 1)) * np.cos(order * t)).mean())


def _far_i(order: int, v: float) -> float:
    """Return I exp(-x) sqrt(x) at 1 / x = v."""
    return _scaled_i(order, 1 / v) * math.sqrt(1 / v)


# ---- functions -----------------------------------------------------------------------------------


def bessel_j(order: int, x: Node) -> Node:
    """Return J of order 0 or 1."""
    size = ew.abs(x)
    near = fitted(times(x, x), partial(_regular, order, -1), 0, _NEAR**2)
    far = _waves(order, ew.maximum(size, scalar_like(_NEAR, x)))[0]
    if order == 0:
        return choose(below(size, _NEAR), near, far)
    return choose(below(size, _NEAR), times(times(x, 0.5), near), times(far, ew.sign(x)))


def bessel_y(order: int, x: Node) -> Node:
    """Return Y of order 0 or 1: minus infinity at 0, NaN below."""
    sign = -2 / math.pi if order == 0 else 2 / math.pi
    near = times(_singular_near(order, -1, x, _NEAR), sign)
    far = _waves(order, ew.maximum(x, scalar_like(_NEAR, x)))[1]
    return _on_positive(x, choose(below(x, _NEAR), near, far), -math.inf)


def bessel_i(order: int, x: Node, *, scaled: bool) -> Node:
    """Return I of order 0 or 1, times exp(-|x|) where `scaled`."""
    size = ew.abs(x)
    near = fitted(size, partial(_scaled_i, order), 0, _NEAR)
    far_size = ew.maximum(size, scalar_like(_NEAR, x))
    reciprocal = over(1.0, far_size)
    far = times(fitted(reciprocal, partial(_far_i, order), 0, 1 / _NEAR), ew.sqrt(reciprocal))
    made = choose(below(size, _NEAR), near, far)
    if not scaled:
        half = ew.exp(times(size, 0.5))
        made = times(times(made, half), half)
    return times(made, ew.sign(x)) if order else made


def bessel_k(order: int, x: Node, *, scaled: bool) -> Node:
    """Return K of order 0 or 1, times exp(x) where `scaled`: infinity at 0, NaN below."""
    near = _singular_near(order, 1, x, _NEAR_K)
    far_x = ew.maximum(x, scalar_like(_NEAR_K, x))
    reciprocal = over(1.0, far_x)
    far = times(
        fitted(reciprocal, partial(_decay, order), 0, 1 / _NEAR_K),
        ew.sqrt(times(reciprocal, math.pi / 2)),
    )
    if scaled:
        near = times(near, ew.exp(x))
    else:
        far = times(far, ew.exp(times(far_x, -1.0)))
    return _on_positive(x, choose(below(x, _NEAR_K), near, far), math.inf)


def _on_positive(x: Node, value: Node, at_zero: float) -> Node:
    """Return a value above 0, a limit at 0, NaN below."""
    return choose(below(x, 0.0), math.nan, choose(is_equal(x, 0.0), at_zero, value))


def spherical_j0(x: Node) -> Node:
    """Return sin(x) / x, near 0 by its power series (10.49.3); 0 at the infinities."""
    near = polynomial(times(x, x), *((-1) ** k / math.factorial(2 * k + 1) for k in range(8)))
    made = choose(below(ew.abs(x), 0.5), near, over(ew.sin(x), x))
    return choose(ew.isinf(x), 0.0, made)


# ---- Airy's function -----------------------------------------------------------------------------

_NEAR_AIRY = 2.0
_NEAR_ZETA = 2 / 3 * _NEAR_AIRY**1.5


def _airy_near(x: float) -> float:
    """Return Ai by its power series (9.4.1)."""
    f, g = [1.0], [x]
    for k in range(_TERMS):
        f.append(f[-1] * x**3 / ((3 * k + 2) * (3 * k + 3)))
        g.append(g[-1] * x**3 / ((3 * k + 3) * (3 * k + 4)))
    value = 1 / (3 ** (2 / 3) * math.gamma(2 / 3))
    slope = 1 / (3 ** (1 / 3) * math.gamma(1 / 3))
    return math.fsum([*(value * t for t in f), *(-slope * t for t in g)])


def _airy_integral(direction: complex, v: float) -> complex:
    """Return the integral that Ai far from 0 is a multiple of (9.5.8), at 1 / zeta = v.

    That of exp(-u) u^(-1/6) (1 + u v / (2 direction))^(-1/6) over Gamma(5 / 6), with u = t^6.
    """
    t = np.arange(1, 500) / 256
    values = 6 * t**4 * np.exp(-(t**6)) * (1 + t**6 * v / (2 * direction)) ** (-1 / 6)
    return complex(values.sum() / 256 / math.gamma(5 / 6))


def _airy_part(part: str, v: float) -> float:
    if part == "decay":
        return _airy_integral(1, v).real
    found = _airy_integral(1j, v)
    return found.real if part == "R" else found.imag / v


def airy_ai(x: Node) -> Node:
    """Return Airy's function Ai: decay on the right (9.7.5), waves on the left (9.7.9)."""
    size = ew.maximum(ew.abs(x), scalar_like(_NEAR_AIRY, x))
    root = ew.sqrt(size)
    zeta = times(times(size, root), 2 / 3)
    v = over(1.0, zeta)
    fit = {
        part: fitted(v, partial(_airy_part, part), 0, 1 / _NEAR_ZETA)
        for part in ("decay", "R", "S")
    }
    lead = over(1 / math.sqrt(math.pi), ew.sqrt(root))
    right = times(times(lead, 0.5), times(ew.exp(times(zeta, -1.0)), fit["decay"]))
    phase = minus(zeta, math.pi / 4)
    waves = plus(times(ew.cos(phase), fit["R"]), times(ew.sin(phase), times(v, fit["S"])))
    far = choose(below(x, 0.0), times(lead, waves), right)
    near = fitted(x, _airy_near, -_NEAR_AIRY, _NEAR_AIRY)
    return choose(below(ew.abs(x), _NEAR_AIRY), near, far)
