# SPDX-License-Identifier: Apache-2.0
"""log and what is made of it: log2, log1p, softplus, asinh, acosh, atanh.

x = 2**k * m with m in [sqrt(1/2), sqrt(2)), so k = 0 wherever the logarithm is small and nothing
cancels. In float64, log(m) is a series in s = (m - 1) / (m + 1).
"""

from __future__ import annotations

from treadle.expr.nodes import Expr, call
from treadle.lower.math.blocks import (
    INF,
    LN2,
    NAN,
    absolute,
    at_least,
    fma,
    negate,
    polynomial,
    power_of_two,
    split_exponent,
    where,
    with_sign_of,
)
from treadle.lower.math.coefficients import LOG1P_F32, LOG2_F32, LOG_F32, LOG_F64, LOG_LITE
from treadle.lower.math.exponential import exp_f32, exp_f64

_LN2_HIGH_F32 = 0.693145751953125
_LN2_LOW_F32 = 1.4286068203094173e-06
_LN2_HIGH_F64 = 0.6931471803691238
_LN2_LOW_F64 = 1.9082149292705877e-10
_LOG2E = 1.0 / LN2


def _with_poles(result: Expr, x: Expr) -> Expr:
    """Return `result` but -inf at zero, NaN below, and x at infinity and NaN."""
    edge = where(x == 0.0, -INF, NAN, x)
    return where(x > 0.0, where(x < INF, result, x, x), edge, x)


def log_f32(x: Expr) -> Expr:
    """Return the natural logarithm; 1 ulp."""
    k, m = split_exponent(x)
    return _with_poles(_sum_of_logs_f32(k, m - 1.0), x)


def _sum_of_logs_f32(k: Expr, f: Expr) -> Expr:
    """Return k * ln 2 + log(1 + f)."""
    tail = fma(f, polynomial(f, LOG_F32), -0.5)
    return fma(k, _LN2_HIGH_F32, f + fma(f * f, tail, k * _LN2_LOW_F32))


def log1p_f32(x: Expr) -> Expr:
    """Return log(1 + x); 1.5 ulp.

    What rounding 1 + x loses joins the fraction of the sum, so small x stay x.
    """
    u = x + 1.0
    lost = x - (u - 1.0)
    k, m = split_exponent(u)
    unit = power_of_two(at_least(negate(k), -126.0))
    result = with_sign_of(_sum_of_logs_f32(k, fma(lost, unit, m - 1.0)), x)
    edge = where(x == -1.0, -INF, NAN, x)
    return where(x > -1.0, where(x < INF, result, x, x), edge, x)


def softplus_f32(x: Expr) -> Expr:
    """Return log(1 + e**x) = max(x, 0) + log(1 + e**-|x|), which neither overflows nor loses the
    small ones; 2 ulp (3 where `fma` rounds twice)."""
    e = exp_f32(negate(absolute(x)))
    return at_least(x, 0.0) + fma(e * polynomial(e, LOG1P_F32), e, e)


def softplus_f64(x: Expr, lite: bool = False) -> Expr:
    """As `softplus_f32`."""
    e = exp_f64(negate(absolute(x)), lite)
    return at_least(x, 0.0) + where(e == 0.0, e, _bare_log1p(e, lite), x)


def log2_f32(x: Expr) -> Expr:
    """Return the logarithm to base two; exact at powers of two."""
    k, m = split_exponent(x)
    f = m - 1.0
    return _with_poles(fma(f, polynomial(f, LOG2_F32), k), x)


def _log_parts(x: Expr, lite: bool) -> tuple[Expr, Expr, Expr]:
    """Return (k, f, c) with log(x) = k * ln 2 + f - c, |c| much smaller than |f|."""
    k, m = split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    r = z * polynomial(z, LOG_LITE if lite else LOG_F64)
    half_square = f * f * 0.5
    return k, f, half_square - s * (half_square + r)


def log_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the natural logarithm; 1 ulp."""
    return _with_poles(_bare_log(x, lite), x)


def _bare_log(x: Expr, lite: bool) -> Expr:
    k, f, c = _log_parts(x, lite)
    return fma(k, _LN2_HIGH_F64, f - (c - k * _LN2_LOW_F64))


def log2_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the logarithm to base two; exact at powers of two."""
    k, f, c = _log_parts(x, lite)
    return _with_poles(fma(f - c, _LOG2E, k), x)


def log1p_f64(x: Expr, lite: bool = False) -> Expr:
    """Return log(1 + x): what rounding 1 + x loses is added back."""
    return _with_poles_at_minus_one(_bare_log1p(x, lite), x)


def _with_poles_at_minus_one(result: Expr, x: Expr) -> Expr:
    edge = where(x == -1.0, -INF, NAN, x)
    return where(x > -1.0, where(x < INF, where(x == 0.0, x, result, x), x, x), edge, x)


def _bare_log1p(x: Expr, lite: bool, tail: Expr | None = None) -> Expr:
    """Return log(1 + x + tail) for finite x > -1 and a tail below the last bit of x."""
    u = x + 1.0
    lost = where(absolute(x) > 1.0, 1.0 - (u - x), x - (u - 1.0), x)
    if tail is not None:
        lost = lost + tail
    k, f, c = _log_parts(u, lite)
    return fma(k, _LN2_HIGH_F64, f - (c - fma(k, _LN2_LOW_F64, lost / u)))


def asinh_f64(x: Expr, lite: bool = False) -> Expr:
    """Return log(x + sqrt(x*x + 1)): as log1p near zero, as log(2x) far out."""
    size = absolute(x)
    near_size = where(size > 1e8, 1.0, size, x)
    square = near_size * near_size
    root = _sqrt(square + 1.0)
    near = _bare_log1p(near_size + square / (root + 1.0), lite)
    k, f, c = _log_parts(size, lite)
    far = fma(k + 1.0, _LN2_HIGH_F64, f - (c - (k + 1.0) * _LN2_LOW_F64))
    result = where(size > 1e8, where(size < INF, far, size, x), near, x)
    return with_sign_of(where(size > 0.0, result, size, x), x)


def acosh_f64(x: Expr, lite: bool = False) -> Expr:
    """Return log(x + sqrt(x*x - 1)) for x >= 1."""
    t = where(x > 1e8, 1.0, x - 1.0, x)
    near = _bare_log1p(t + _sqrt(fma(t, t, t * 2.0)), lite)
    k, f, c = _log_parts(x, lite)
    far = fma(k + 1.0, _LN2_HIGH_F64, f - (c - (k + 1.0) * _LN2_LOW_F64))
    result = where(x > 1e8, where(x < INF, far, x, x), where(x == 1.0, 0.0, near, x), x)
    return where(x >= 1.0, result, NAN, x)


def atanh_f64(x: Expr, lite: bool = False) -> Expr:
    """Return log((1 + x) / (1 - x)) / 2."""
    size = absolute(x)
    doubled = size * 2.0
    ratio = where(size < 0.5, doubled + doubled * size / (1.0 - size), doubled / (1.0 - size), x)
    near = _bare_log1p(ratio, lite) * 0.5
    edge = where(size == 1.0, INF, NAN, x)
    inside = where(size == 0.0, size, near, x)
    return with_sign_of(where(size < 1.0, inside, edge, x), x)


def _sqrt(x: Expr) -> Expr:
    return call("sqrt", x)
