# SPDX-License-Identifier: Apache-2.0
"""The error function: a polynomial up to 1, from there 1 - exp(polynomial)."""

from __future__ import annotations

from treadle.expr.nodes import Expr
from treadle.lower.math.blocks import (
    absolute,
    at_least,
    at_most,
    fma,
    polynomial,
    round_scaled,
    where,
    with_sign_of,
)
from treadle.lower.math.coefficients import (
    ERF_F32,
    ERF_F64,
    EXP2_F32,
    LOG2_ERFC_F32,
    LOG_ERFC_F32,
    LOG_ERFC_FAR_F64,
    LOG_ERFC_NEAR_F64,
)
from treadle.lower.math.exponential import exp_f32_in_range, exp_f64


def erf_f32(x: Expr) -> Expr:
    """Return the error function; 1 ulp; 1 from 3.92 on."""
    size = at_most(absolute(x), 4.0)
    near = fma(x, polynomial(x * x, ERF_F32), x)
    far = 1.0 - exp_f32_in_range(polynomial(size, LOG_ERFC_F32))
    return where(size > 1.0, with_sign_of(far, x), near, x)


def one_plus_erf_f32(x: Expr) -> Expr:
    """Return 1 + erf(x), which is erfc(-x); 2.4e-7, and to 12 bits where it is small.

    One polynomial does where the sum, not erf itself, is to be exact: half the work of `erf_f32`.
    Beyond its range it falls on, until the power of two is 0.
    """
    size = absolute(x)
    exponent = at_least(size * polynomial(size, LOG2_ERFC_F32), -127.0)
    n, power = round_scaled(exponent, 1.0)
    beyond = polynomial(exponent - n, (1.0, *EXP2_F32)) * power
    return where(x < 0.0, beyond, 2.0 - beyond, x)


def erf_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the error function; 1 ulp; 1 from 5.93 on."""
    size = at_most(absolute(x), 6.0)
    near = fma(x, polynomial(x * x, ERF_F64), x)
    first = polynomial(size - 1.0, LOG_ERFC_NEAR_F64)
    second = polynomial(size - 2.5, LOG_ERFC_FAR_F64)
    far = 1.0 - exp_f64(where(size > 2.5, second, first, x), lite)
    return where(size > 1.0, with_sign_of(far, x), near, x)
