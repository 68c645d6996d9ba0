# SPDX-License-Identifier: Apache-2.0
"""sin, cos, tan and their inverses.

The argument is reduced to |r| <= pi/4 by subtracting n * pi/2 in three parts of 33 bits, exact up
to |x| = 1.6e6; beyond, the error grows with |x|, and the results stay within their range.
"""

from __future__ import annotations

import math

from treadle.expr.nodes import Expr, binary, call, convert
from treadle.lower.math.blocks import (
    INF,
    absolute,
    at_least,
    at_most,
    fma,
    negate,
    polynomial,
    quick_two_sum,
    where,
    with_sign_of,
    word,
)
from treadle.lower.math.coefficients import (
    ASIN_F64,
    ASIN_LITE,
    ATAN_F64,
    ATAN_LITE,
    COS_F64,
    COS_LITE,
    SIN_F64,
    SIN_LITE,
)

_PI_2_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
"""pi/2 in parts of 33, 33 and 53 bits."""
_PI_2_REST = 6.077100506506192e-11
"""pi/2 less the first part."""
_PI_2_LOW = 6.123233995736766e-17
"""pi/2 less the nearest float64."""
_MAGIC = 1.5 * 2.0**52
_TAN_PI_8 = math.sqrt(2.0) - 1.0


def _reduce(x: Expr, lite: bool) -> tuple[Expr, Expr, Expr]:
    """Return (q, r, e): x = n * pi/2 + r + e with n = q modulo 4. `lite` leaves out e."""
    shifted = fma(x, 2.0 / math.pi, _MAGIC)
    n = shifted - _MAGIC
    first, second, third = _PI_2_PARTS
    a = x - n * first
    if lite:
        return word(shifted), _clamped(a - n * _PI_2_REST, 0.8), convert(0.0, x.dtype)
    b = n * second
    r = a - b
    lost = (a - r) - b
    c = n * third
    r, low = _clamped(r, 0.8), _clamped(lost - c, 1e-5)  # matters only for huge x
    high, low = quick_two_sum(r, low)
    return word(shifted), high, low


def _clamped(x: Expr, limit: float) -> Expr:
    return at_least(at_most(x, limit), -limit)


def _sin_parts(r: Expr, e: Expr, lite: bool) -> tuple[Expr, Expr]:
    """Return two numbers whose sum is the sine of r + e; the second is much the smaller."""
    z = r * r
    cube = z * r
    if lite:
        return r, cube * polynomial(z, SIN_LITE)
    higher = polynomial(z, SIN_F64[1:])
    return r, cube * SIN_F64[0] - (z * (e * 0.5 - cube * higher) - e)


def _cos_parts(r: Expr, e: Expr, lite: bool) -> tuple[Expr, Expr]:
    """Return two numbers whose sum is the cosine of r + e; the second is much the smaller."""
    z = r * r
    half = z * 0.5
    higher = z * z * polynomial(z, COS_LITE if lite else COS_F64)
    near = 1.0 - half
    if lite:
        return near, higher
    return near, ((1.0 - near) - half) + (higher - r * e)


def _sin_and_cos(x: Expr, lite: bool) -> tuple[Expr, Expr, Expr]:
    q, r, e = _reduce(x, lite)
    (s, s_rest), (c, c_rest) = _sin_parts(r, e, lite), _cos_parts(r, e, lite)
    return q, s + s_rest, c + c_rest


def _has_bit(q: Expr, bit: int) -> Expr:
    return binary("ne", q & bit, 0)


def _guard(result: Expr, x: Expr) -> Expr:
    """Return `result`, NaN for infinities and NaN."""
    return where(absolute(x) < INF, result, x - x, x)


def sin_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the sine; 1 ulp."""
    q, s, c = _sin_and_cos(x, lite)
    value = where(_has_bit(q, 1), c, s, x)
    signed = where(_has_bit(q, 2), negate(value), value, x)
    return _guard(where(x == 0.0, x, signed, x), x)


def cos_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the cosine; 1 ulp."""
    q, s, c = _sin_and_cos(x, lite)
    value = where(_has_bit(q, 1), s, c, x)
    return _guard(where(_has_bit(q + 1, 2), negate(value), value, x), x)


def tan_f64(x: Expr, lite: bool = False) -> Expr:
    """Return sine over cosine, corrected by what rounding the two lost; 1 ulp."""
    q, r, e = _reduce(x, lite)
    odd = _has_bit(q, 1)
    sine, cosine = _sin_parts(r, e, lite), _cos_parts(r, e, lite)
    top = [where(odd, negate(c), s, x) for s, c in zip(sine, cosine, strict=True)]
    bottom = [where(odd, s, c, x) for s, c in zip(sine, cosine, strict=True)]
    numerator, n_lost = quick_two_sum(*top)
    denominator, d_lost = quick_two_sum(*bottom)
    value = numerator / denominator
    if not lite:
        value = value + (n_lost - value * d_lost) / denominator
    return _guard(where(x == 0.0, x, value, x), x)


def _asin_tail(z: Expr, lite: bool) -> Expr:
    """Return asin(t) / t - 1 for z = t*t."""
    return z * polynomial(z, ASIN_LITE if lite else ASIN_F64)


def asin_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the arc sine: beyond 1/2 from pi/2 - 2 * asin(sqrt((1 - |x|) / 2))."""
    size = absolute(x)
    outer = size > 0.5
    z = where(outer, (1.0 - size) * 0.5, x * x, x)
    t = where(outer, call("sqrt", z), size, x)
    inner = fma(t, _asin_tail(z, lite), t)
    far = math.pi / 2 - (inner * 2.0 - _PI_2_LOW)
    return with_sign_of(where(outer, far, inner, x), x)


def acos_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the arc cosine: pi/2 - asin(x), beyond 1/2 from 2 * asin(sqrt((1 - |x|) / 2))."""
    size = absolute(x)
    outer = size > 0.5
    z = where(outer, (1.0 - size) * 0.5, x * x, x)
    t = where(outer, call("sqrt", z), x, x)
    inner = fma(t, _asin_tail(z, lite), t)
    near = math.pi / 2 - (inner - _PI_2_LOW)
    far = where(x < 0.0, math.pi - (inner * 2.0 - 2.0 * _PI_2_LOW), inner * 2.0, x)
    return where(outer, far, near, x)


def atan_f64(x: Expr, lite: bool = False) -> Expr:
    """Return the arc tangent; 1 ulp."""
    size = absolute(x)
    steep = size > 1.0
    small = where(steep, 1.0, size, x)
    large = where(steep, size, 1.0, x)
    return with_sign_of(_angle(small, large, steep, lite), x)


def _angle(small: Expr, large: Expr, swapped: Expr, lite: bool) -> Expr:
    """Return atan(small / large), of the complement where swapped; 0 <= small <= large."""
    wide = small > large * _TAN_PI_8
    top = where(wide, small - large, small, small)
    t = top / where(wide, small + large, large, small)
    z = t * t
    inner = t * z * polynomial(z, ATAN_LITE if lite else ATAN_F64)
    low = where(wide, _PI_2_LOW * 0.5, 0.0, t)
    angle = where(wide, math.pi / 4, 0.0, t) + (t + (inner + low))
    return where(swapped, math.pi / 2 - (angle - _PI_2_LOW), angle, t)


def atan2_f64(y: Expr, x: Expr, lite: bool = False) -> Expr:
    """Return the angle of the point (x, y) in (-pi, pi]."""
    rise, run = absolute(y), absolute(x)
    both = _both_infinite(rise, run)
    rise, run = where(both, 1.0, rise, y), where(both, 1.0, run, y)
    huge = (rise > 1e300) | (run > 1e300)
    factor = where(huge, 2.0**-60, 1.0, y)
    rise, run = rise * factor, run * factor
    steep = rise > run
    small, large = where(steep, run, rise, y), where(steep, rise, run, y)
    nothing = large == 0.0
    angle = _angle(small, where(nothing, 1.0, large, y), steep, lite)
    left = binary("ne", word(x) >> 63, 0)
    whole = where(left, math.pi - (angle - 2.0 * _PI_2_LOW), angle, y)
    known = binary("and", _is_number(x), _is_number(y))
    return where(known, with_sign_of(whole, y), x + y, y)


def _both_infinite(a: Expr, b: Expr) -> Expr:
    return binary("and", a == INF, b == INF)


def _is_number(x: Expr) -> Expr:
    return call("not", call("isnan", x))
