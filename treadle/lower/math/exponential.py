# SPDX-License-Identifier: Apache-2.0
"""exp and what is made of it: expm1, sigmoid, sinh, cosh, tanh.

e**x = 2**n * e**r with n = round(x / ln 2), so |r| <= ln(2) / 2, and a polynomial in r. ln 2 is
subtracted in two parts; the first has so few bits that n times it is exact.
"""

from __future__ import annotations

from treadle.expr.nodes import Expr
from treadle.expr.references import Instruction
from treadle.lower.math.blocks import (
    INF,
    LN2,
    absolute,
    at_least,
    at_most,
    fma,
    nearest,
    negate,
    polynomial,
    power_of_two,
    root_of_two,
    round_scaled,
    scale,
    where,
    with_sign_of,
)
from treadle.lower.math.coefficients import (
    EXP_EIGHTH_F32,
    EXP_F32,
    EXP_F64,
    EXP_LITE,
    EXP_SHORT_F32,
    EXP_WIDE_F32,
    SINH_F64,
)

_LN2_HIGH_F32 = 0.693145751953125  # 16 bits
_LN2_LOW_F32 = 1.4286068203094173e-06
_LN2_HIGH_F64 = 0.6931471803691238  # 33 bits
_LN2_LOW_F64 = 1.9082149292705877e-10


def _wide_parts_f32(x: Expr) -> tuple[Expr, Expr]:
    """Return (r, h) with e**x = e**r * h * h and |r| <= ln 2, for x of -104 or more.

    2**(2 * m) is multiplied in two equal steps, so that results below the normal numbers are
    rounded once and those near the largest do not overflow early.
    """
    x = at_most(x, 89.0)
    m, half = round_scaled(x, 0.5 / LN2)
    return fma(m, -2.0 * _LN2_LOW_F32, fma(m, -2.0 * _LN2_HIGH_F32, x)), half


def exp_f32(x: Expr) -> Expr:
    """Return e**x; 1.5 ulp, 0 below -103.98, inf above 88.72.

    What gives 0 is computed at 0 instead, as masked scores are: a product that underflows takes
    most CPUs many times as long as one that does not.
    """
    vanishes = x < -104.0
    r, half = _wide_parts_f32(where(vanishes, 0.0, x, x))
    return where(vanishes, 0.0, polynomial(r, (1.0, 1.0, *EXP_WIDE_F32)) * half * half, x)


def exp_f32_in_range(x: Expr) -> Expr:
    """Return e**x for x in [-87, 88]."""
    n, power = round_scaled(x, 1.0 / LN2)
    r = fma(n, -_LN2_LOW_F32, fma(n, -_LN2_HIGH_F32, x))
    return polynomial(r, (1.0, 1.0, *EXP_F32)) * power


def exp_weight_f32(x: Expr) -> Expr:
    """Return e**x for x of at most 0, by fewer operations: weights of a softmax.

    The error is 2**-22.4 of e**x for x of -10 or more; one float holds ln 2, so that it grows to
    2**-21.2 at -87 (2**-17.8 where fma rounds twice). Below -87.7 the exponent of the power of two
    is that of zero, and so is the result.
    """
    y = at_least(x, -88.0)
    n, power = round_scaled(y, 1.0 / LN2)
    return polynomial(fma(n, -LN2, y), (1.0, 1.0, *EXP_SHORT_F32)) * power


def sigmoid_f32(x: Expr) -> Expr:
    """Return 1 / (1 + e**-x), which never decreases; 4 + |x| / 40 ulp; 0 below -88.5."""
    return 1.0 / sigmoid_divisor_f32(x)


def sigmoid_divisor_f32(x: Expr) -> Expr:
    """Return 1 + e**-x, which never increases; infinite below -88.5.

    e**r - 1 is rounded before 1 is added: its error is then below the step of r. Below e**-87 the
    sum is 1 whatever is added; from e**88.4 the power of two is infinite. One float holds ln 2:
    the quotient 1 / (1 + e**-x) is within 4 + |x| / 40 ulp, 4 + |x| where fma rounds twice.
    """
    y = at_least(at_most(negate(x), 89.0), -87.0)
    n, power = round_scaled(y, 1.0 / LN2)
    r = fma(n, -LN2, y)
    grown = fma(r * r, polynomial(r, EXP_SHORT_F32), r)
    return fma(1.0 + grown, power, 1.0)


def sigmoid_divisor_by_lookup_f32(x: Expr, lookup: Instruction) -> Expr:
    """Return 1 + e**-x with fewer operations, where a machine looks up eighths of powers of two.

    As `sigmoid_divisor_f32`, from n = round(-8 * x / ln 2), but it may grow with x by a rounding
    error from one n to the next. Infinite below -88.68. `lookup` picks one of eight words.
    """
    y = at_most(at_least(x, -88.75), 87.0)
    n, eighths = nearest(y, -8.0 / LN2)
    r = fma(n, LN2 / 8.0, y)  # e**-x = 2**(n / 8) * e**-r
    grown = fma(r * r, fma(r, -EXP_EIGHTH_F32[1], EXP_EIGHTH_F32[0]), negate(r))
    return fma(1.0 + grown, root_of_two(eighths, lookup), 1.0)


def tanh_f32(x: Expr) -> Expr:
    """Return (e**2x - 1) / (e**2x + 1) through e**2x - 1, which keeps small x exact."""
    doubled = at_most(absolute(x) * 2.0, 20.0)
    n, power = round_scaled(doubled, 1.0 / LN2)
    r = fma(n, -_LN2_LOW_F32, fma(n, -_LN2_HIGH_F32, doubled))
    grown = fma(power, r * polynomial(r, (1.0, *EXP_F32)), power - 1.0)
    return with_sign_of(grown / (grown + 2.0), x)


def expm1_f32(x: Expr) -> Expr:
    """Return e**x - 1; 2 ulp. It is doubled last, as 2**n overflows before e**x does."""
    clipped = at_least(at_most(x, 89.0), -18.0)
    n, _ = round_scaled(clipped, 1.0 / LN2)
    r = fma(n, -_LN2_LOW_F32, fma(n, -_LN2_HIGH_F32, clipped))
    half = power_of_two(n - 1.0)
    grown = fma(half, r * polynomial(r, (1.0, *EXP_F32)), half - 0.5) * 2.0
    return where(absolute(x) < 2.0**-64, x, grown, x)


def _parts(x: Expr, lite: bool) -> tuple[Expr, Expr, Expr]:
    """Return (r, t, n) with e**x = (1 + r + t) * 2**n and t = O(r*r)."""
    n, _ = round_scaled(x, 1.0 / LN2)
    high, low = fma(n, -_LN2_HIGH_F64, x), n * _LN2_LOW_F64
    r = high - low
    if lite:
        return r, r * r * polynomial(r, EXP_LITE), n
    lost = (high - r) - low
    return r, fma(r * r, polynomial(r, EXP_F64), lost), n


def exp_f64(x: Expr, lite: bool = False) -> Expr:
    """Return e**x; 1 ulp (`lite`: 2**-37)."""
    r, t, n = _parts(at_least(at_most(x, 710.0), -746.0), lite)
    return scale(1.0 + (r + t), n)


def _half_expm1(x: Expr, lite: bool) -> Expr:
    """Return (e**x - 1) / 2, for x in [-40, 709]."""
    r, t, n = _parts(x, lite)
    half = power_of_two(n - 1.0)
    return fma(half, t, fma(half, r, half - 0.5))


def expm1_f64(x: Expr, lite: bool = False) -> Expr:
    """Return e**x - 1; 1 ulp."""
    grown = _half_expm1(at_least(at_most(x, 709.0), -40.0), lite) * 2.0
    return where(x > 709.0, exp_f64(x, lite), where(x == 0.0, x, grown, x), x)


def sigmoid_f64(x: Expr, lite: bool = False) -> Expr:
    """Return 1 / (1 + e**-x)."""
    return 1.0 / (1.0 + exp_f64(negate(x), lite))


def sinh_f64(x: Expr, lite: bool = False) -> Expr:
    """Return (e**x - e**-x) / 2: through expm1 where the two are comparable."""
    size = absolute(x)
    half = _half_expm1(at_most(size, 30.0), lite)
    near = half + half / fma(half, 2.0, 1.0)
    if not lite:
        z = size * size
        near = where(size < 1.0, fma(size * z, polynomial(z, SINH_F64), size), near, x)
    return with_sign_of(where(size > 22.0, _half_exp(size, lite), near, x), x)


def cosh_f64(x: Expr, lite: bool = False) -> Expr:
    """Return (e**x + e**-x) / 2."""
    size = absolute(x)
    r, t, n = _parts(at_most(size, 30.0), lite)
    half = (1.0 + (r + t)) * power_of_two(n - 1.0)
    return where(size > 22.0, _half_exp(size, lite), half + 0.25 / half, x)


def _half_exp(size: Expr, lite: bool) -> Expr:
    """Return e**size / 2, which overflows later than e**size."""
    r, t, n = _parts(at_most(size, 712.0), lite)
    return where(size > 711.0, size * INF, scale(1.0 + (r + t), n - 1.0), size)


def tanh_f64(x: Expr, lite: bool = False) -> Expr:
    """Return (e**2x - 1) / (e**2x + 1) through e**2x - 1."""
    half = _half_expm1(at_most(absolute(x) * 2.0, 44.0), lite)
    return with_sign_of(half / (half + 1.0), x)
