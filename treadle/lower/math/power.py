# SPDX-License-Identifier: Apache-2.0
"""Powers and the remainder of a division: pow of floats and of integers, fmod."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.dtype import bits, is_unsigned
from treadle.expr.nodes import Broadcast, Const, Expr, binary, broadcast, call, convert, select
from treadle.lower.math.blocks import (
    INF,
    LN2,
    NAN,
    absolute,
    at_least,
    at_most,
    fma,
    polynomial,
    quick_two_sum,
    scale,
    split_exponent,
    two_product,
    two_sum,
    where,
    with_sign_of,
)
from treadle.lower.math.coefficients import EXP2_LITE, EXP_F64, LOG_LITE, LOG_TAIL_F64

_MAGIC = 1.5 * 2.0**52
_LN2_HIGH_SHORT = 0.6931471803691238  # 33 bits
_LN2_LOW_SHORT = 1.9082149292705877e-10
_LN2_REST = 1.1612227229362532e-26


def constant_of(e: Expr) -> int | float | bool | None:
    """Return the number a constant or the broadcast of one holds."""
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, Const) else None


def pow_float(x: Expr, y: Expr, lite: bool) -> Expr:
    """Return x**y of float64 values; `lite` is good to 2**-31, for float32.

    The cases are those of C: any power zero and any power of one is 1; a negative base needs a
    whole exponent; zeros and infinities keep the sign of the base for odd exponents.
    """
    size = absolute(x)
    grown = _pow_lite(size, y) if lite else _pow_full(size, y)
    whole = call("floor", y) == y
    half = y * 0.5
    odd = binary("and", whole, call("floor", half) != half)
    odd = binary("and", odd, absolute(y) < INF)
    signed = where(odd, with_sign_of(grown, x), grown, x)
    finite_negative = binary("and", x < 0.0, x > -INF)
    result = where(binary("and", finite_negative, call("not", whole)), NAN, signed, x)
    result = where(binary("and", size == 1.0, absolute(y) == INF), 1.0, result, x)
    one = binary("or", x == 1.0, y == 0.0)
    return where(one, 1.0, where(_any_nan(x, y), x + y, result, x), x)


def _any_nan(x: Expr, y: Expr) -> Expr:
    return binary("or", call("isnan", x), call("isnan", y))


def _edges(size: Expr, y: Expr, inside: Expr) -> Expr:
    """Return size**y: `inside` for finite positive sizes and finite y, limits elsewhere."""
    grows = binary("eq", size > 1.0, y > 0.0)
    limit = where(grows, INF, 0.0, size)
    usual = binary("and", binary("and", size > 0.0, size < INF), absolute(y) < INF)
    return where(usual, inside, limit, size)


def _pow_lite(size: Expr, y: Expr) -> Expr:
    k, m = split_exponent(size)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    log2 = fma(fma(s, z * polynomial(z, LOG_LITE), s * 2.0), 1.0 / LN2, k)
    t = at_least(at_most(y * log2, 1025.0), -1100.0)
    n = (t + _MAGIC) - _MAGIC
    r = t - n
    return _edges(size, y, scale(fma(r, polynomial(r, EXP2_LITE), 1.0), n))


def _pow_full(size: Expr, y: Expr) -> Expr:
    """e**(y * log(size)) with the logarithm as a sum of two float64."""
    high, low = _long_log(size)
    factor = at_least(at_most(y, 1e30), -1e30)
    p, e = two_product(factor, high)
    e = fma(factor, low, e)
    t = at_least(at_most(p, 720.0), -760.0)
    e = where(absolute(p) > 750.0, 0.0, e, y)
    shifted = fma(t, 1.0 / LN2, _MAGIC)
    n = shifted - _MAGIC
    r, rest = two_sum(t - n * _LN2_HIGH_SHORT, n * -_LN2_LOW_SHORT)
    rest = rest + e
    r, rest = quick_two_sum(r, rest)
    q = polynomial(r, EXP_F64)
    grown = fma(r * r, q, rest + rest * r) + r
    return _edges(size, y, scale(1.0 + grown, n))


def _long_log(x: Expr) -> tuple[Expr, Expr]:
    """Return log(x) for positive finite x as high + low, good to 2**-66 of it.

    log(m) = 2*s + s*z*2/3 + s*z*z*p(z): the first two terms are carried with their errors.
    """
    k, m = split_exponent(x)
    f = m - 1.0
    g, g_low = two_sum(f, convert(2.0, "float64"))
    s = f / g
    product, product_low = two_product(s, g)
    s_low = (((f - product) - product_low) - s * g_low) / g
    z, z_low = two_product(s, s)
    z_low = fma(s * 2.0, s_low, z_low)
    cube, cube_low = two_product(s, z)
    cube_low = cube_low + fma(s, z_low, s_low * z)
    third, third_low = _times_two_thirds(cube, cube_low)
    tail = cube * z * polynomial(z, LOG_TAIL_F64)
    a, a_low = quick_two_sum(s * 2.0, third)
    b, b_low = quick_two_sum(a, tail)
    lows = (a_low + b_low) + (s_low * 2.0 + third_low)
    base = k * _LN2_HIGH_SHORT
    high, rest = two_sum(base, b)
    step, step_low = two_product(k, convert(_LN2_LOW_SHORT, "float64"))
    total, total_low = two_sum(rest, step)
    return _normalised(high, total, (total_low + step_low) + fma(k, _LN2_REST, lows))


def _normalised(high: Expr, middle: Expr, low: Expr) -> tuple[Expr, Expr]:
    a, b = two_sum(high, middle)
    return quick_two_sum(a, b + low)


def _times_two_thirds(high: Expr, low: Expr) -> tuple[Expr, Expr]:
    two_thirds, rest = 2.0 / 3.0, 3.700743415417188e-17
    product, error = two_product(high, convert(two_thirds, "float64"))
    return product, error + fma(low, two_thirds, high * rest)


def pow_constant(x: Expr, exponent: float) -> Expr | None:
    """Return x**exponent where few multiplications or a root give it, else None."""
    if exponent in _PRODUCTS:
        return _PRODUCTS[exponent](x)
    if exponent in (0.5, -0.5, 1.5):
        return _root_power(x, exponent)
    return None


def _square(x: Expr) -> Expr:
    return x * x


_PRODUCTS: Mapping[float, Callable[[Expr], Expr]] = {
    0.0: lambda x: broadcast(Const.of(1.0, x.dtype), x.lanes),
    1.0: lambda x: x,
    2.0: _square,
    3.0: lambda x: _square(x) * x,
    4.0: lambda x: _square(_square(x)),
    -1.0: lambda x: 1.0 / x,
}


def _root_power(x: Expr, exponent: float) -> Expr:
    root = call("sqrt", x) + 0.0  # the root of -0.0 is 0.0 here
    if exponent == 1.5:
        return where(x == -INF, INF, x * root + 0.0, x)
    power = root if exponent == 0.5 else 1.0 / root
    return where(x == -INF, INF if exponent == 0.5 else 0.0, power, x)


def pow_integer(x: Expr, y: Expr) -> Expr:
    """Return x**y of integers, modulo 2**bits, by squaring.

    A negative exponent gives 1 / x**-y rounded towards zero: 0 except for bases of 1 and -1.
    """
    exponent = constant_of(y)
    if exponent is not None and exponent >= 0:
        return _int_power(x, int(exponent))
    one = broadcast(Const.of(1, x.dtype), x.lanes)
    result, square = one, x
    for bit in range(bits(y.dtype) if is_unsigned(y.dtype) else bits(y.dtype) - 1):
        chosen = binary("ne", binary("shr", y, bit) & 1, 0)
        result = select(chosen, binary("mul", result, square), result)
        square = binary("mul", square, square)
    if is_unsigned(y.dtype):
        return result
    return select(y < 0, _negative_power(x, y, one), result)


def _int_power(x: Expr, exponent: int) -> Expr:
    result: Expr | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else binary("mul", result, square)
        exponent >>= 1
        if exponent:
            square = binary("mul", square, square)
    return broadcast(Const.of(1, x.dtype), x.lanes) if result is None else result


def _negative_power(x: Expr, y: Expr, one: Expr) -> Expr:
    zero = binary("sub", one, one)
    if is_unsigned(x.dtype):
        return select(binary("eq", x, 1), one, zero)
    minus = select(binary("ne", y & 1, 0), x, one)
    return select(binary("eq", x, 1), one, select(binary("eq", x, -1), minus, zero))


def fmod_float(x: Expr, y: Expr, lite: bool) -> Expr:
    """Return the remainder of x / y with the sign of x, of float64 values; it is exact.

    Multiples of y * 2**(step * width) are taken off, the largest first, and one is put back where
    the rounded quotient was one too large. `lite` covers all of float32; otherwise quotients up
    to 2**150 are covered and larger ones give NaN.
    """
    steps, width = (11, 26) if lite else (3, 50)
    size, divisor = absolute(x), absolute(y)
    shrink = where(size > 1e290, 2.0**-64, 1.0, x)
    rest, unit = size * shrink, divisor * shrink
    for step in reversed(range(steps)):
        rest = _reduced(rest, unit * 2.0 ** (step * width), lite)
    covered = size * shrink < unit * 2.0 ** (steps * width)
    rest = where(covered, rest / shrink, NAN, x)
    result = where(divisor < INF, with_sign_of(rest, x), x, x)
    defined = binary("and", size < INF, divisor > 0.0)
    return where(defined, result, where(call("isnan", y), y, NAN, x), x)


def _reduced(rest: Expr, piece: Expr, lite: bool) -> Expr:
    """Return rest modulo piece, both positive, for a quotient of few enough bits."""
    count = call("trunc", rest / piece)
    if lite:  # 24 bits times 27 bits: exact
        taken = rest - count * piece
    else:
        p, e = two_product(count, piece)
        taken = (rest - p) - e
    taken = where(taken < 0.0, taken + piece, taken, rest)
    return where(rest >= piece, taken, rest, rest)
