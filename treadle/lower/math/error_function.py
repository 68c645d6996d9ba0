# SPDX-License-Identifier: Apache-2.0
"""The error function: a polynomial up to 1, from there 1 - exp(polynomial); the normal
distribution: one over the 16th power of a polynomial on its left side, which cancels nothing.

The power by squaring, as in Hastings' approximation of erfc (Abramowitz and Stegun, 7.1.28), but of
1 + u by u: what is small is then not rounded next to 1, and no exponential is needed.
"""

from __future__ import annotations

from treadle.expr.nodes import Expr
from treadle.expr.references import Instruction
from treadle.lower.math.blocks import (
    absolute,
    at_least,
    at_most,
    fma,
    nearest,
    negate,
    paired_polynomial,
    picked_float,
    polynomial,
    where,
    with_sign_of,
)
from treadle.lower.math.coefficients import (
    ERF_F32,
    ERF_F64,
    LOG_ERFC_F32,
    LOG_ERFC_FAR_F64,
    LOG_ERFC_NEAR_F64,
    NORMAL_ROOT_F32,
    NORMAL_STEP_F32,
    NORMAL_TAIL_F32,
)
from treadle.lower.math.exponential import exp_f32_in_range, exp_f64


def erf_f32(x: Expr) -> Expr:
    """Return the error function; 1 ulp; 1 from 3.92 on."""
    size = at_most(absolute(x), 4.0)
    near = fma(x, polynomial(x * x, ERF_F32), x)
    far = 1.0 - exp_f32_in_range(polynomial(size, LOG_ERFC_F32))
    return where(size > 1.0, with_sign_of(far, x), near, x)


def erf_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the error function; 1 ulp; 1 from 5.93 on."""
    size = at_most(absolute(x), 6.0)
    near = fma(x, polynomial(x * x, ERF_F64), x)
    first = polynomial(size - 1.0, LOG_ERFC_NEAR_F64)
    second = polynomial(size - 2.5, LOG_ERFC_FAR_F64)
    far = 1.0 - exp_f64(where(size > 2.5, second, first, x), lite)
    return where(size > 1.0, with_sign_of(far, x), near, x)


def normal_cdf_f32(x: Expr) -> Expr:
    """Return the share of a normal distribution below x; error 1.1e-7, 5e-6 of it down to -4."""
    left = 1.0 / _tail_divisor_f32(absolute(x))
    return where(x < 0.0, left, 1.0 - left, x)


def gelu_f32(x: Expr) -> Expr:
    """Return x * normal_cdf(x), as the larger of x and 0 less |x| * normal_cdf(-|x|).

    The share is as normal_cdf's, 0 below -15; from 6 on, what is taken off is lost in rounding.
    """
    size = absolute(at_most(x, _TAIL_END))
    return at_least(x, 0.0) - size / _tail_divisor_f32(size)


def gelu_by_lookup_f32(x: Expr, lookup: Instruction) -> Expr:
    """As `gelu_f32` with half the operations, where a machine looks up 16 constants.

    The share has an error of 6e-8, and of 1e-6 of it down to -4: from sixteen polynomials.
    `lookup` picks one of sixteen words.
    """
    size = absolute(at_most(x, 6.1))
    t = at_most(size, 6.1)
    k, word = nearest(t, 1.0 / NORMAL_STEP_F32)
    r = fma(k, -NORMAL_STEP_F32, t)
    *others, left = (picked_float(word, row, lookup) for row in NORMAL_TAIL_F32)
    for coefficient in reversed(others):
        left = fma(left, r, coefficient)
    return fma(negate(size), left, at_least(x, 0.0))


_TAIL_END = 16.0
"""A normal distribution has no share below this negative that a float32 could hold."""


def _tail_divisor_f32(t: Expr) -> Expr:
    """Return 1 / normal_cdf(-t) for t of 0 or more; infinite from 15 on, and of infinity."""
    u = t * paired_polynomial(t, NORMAL_ROOT_F32)
    for _ in range(3):
        u = u * (u + 2.0)  # (1 + u)**2 - 1
    return fma(u, fma(u, 2.0, 4.0), 2.0)


def normal_cdf_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the share of a normal distribution below x; error 2e-16, 1e-13 of it left of 0."""
    z = x * 0.7071067811865476
    size = at_most(absolute(z), 6.0)
    first = polynomial(size - 1.0, LOG_ERFC_NEAR_F64)
    second = polynomial(size - 2.5, LOG_ERFC_FAR_F64)
    left = exp_f64(where(size > 2.5, second, first, x), lite) * 0.5
    left = where(x < -8.4, 0.0, left, x)
    return where(z < -1.0, left, fma(erf_f64(z, lite), 0.5, 0.5), x)
