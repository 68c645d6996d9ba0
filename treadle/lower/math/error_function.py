# SPDX-License-Identifier: Apache-2.0
"""The error function: a polynomial up to 1, from there 1 - exp(polynomial); the normal
distribution: 2 to the power of a polynomial on its left side, which cancels nothing."""

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
    round_scaled,
    where,
    with_sign_of,
)
from treadle.lower.math.coefficients import (
    ERF_F32,
    ERF_F64,
    EXP2_F32,
    LOG2_NORMAL_CDF_F32,
    LOG_ERFC_F32,
    LOG_ERFC_FAR_F64,
    LOG_ERFC_NEAR_F64,
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
    """Return the share of a normal distribution below x; error 9e-8, 4e-6 of it down to -4."""
    size = absolute(x)
    left = where(size > 6.0, 0.0, _left_tail_f32(at_most(size, 6.0)), x)
    return where(x < 0.0, left, 1.0 - left, x)


def gelu_f32(x: Expr) -> Expr:
    """Return x * normal_cdf(x), as the larger of x and 0 less |x| * normal_cdf(-|x|).

    The share is as normal_cdf's, 0 below -6; from 6 on, what is taken off is lost in rounding.
    """
    size = absolute(at_most(x, 6.0))
    left = where(size > 6.0, 0.0, _left_tail_f32(at_most(size, 6.0)), x)
    return fma(negate(size), left, at_least(x, 0.0))


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


def _left_tail_f32(t: Expr) -> Expr:
    """Return normal_cdf(-t) for t in [0, 6]."""
    first, *others = LOG2_NORMAL_CDF_F32
    power = fma(t, paired_polynomial(t, others), first)
    n, scale = round_scaled(power, 1.0)
    rest = power - n
    return fma(rest, paired_polynomial(rest, EXP2_F32), 1.0) * scale


def normal_cdf_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the share of a normal distribution below x; error 2e-16, 1e-13 of it left of 0."""
    z = x * 0.7071067811865476
    size = at_most(absolute(z), 6.0)
    first = polynomial(size - 1.0, LOG_ERFC_NEAR_F64)
    second = polynomial(size - 2.5, LOG_ERFC_FAR_F64)
    left = exp_f64(where(size > 2.5, second, first, x), lite) * 0.5
    left = where(x < -8.4, 0.0, left, x)
    return where(z < -1.0, left, fma(erf_f64(z, lite), 0.5, 0.5), x)
