# SPDX-License-Identifier: Apache-2.0
"""The building blocks of the elementary functions: polynomials, powers of two, choices.

Everything is branch-free and works on any number of lanes. Nothing relies on `fma` being fused:
a target without the instruction multiplies and adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import pack, unpack

from treadle.expr.nodes import Const, Expr, ExprLike, apply, binary, call, convert, select
from treadle.expr.references import Instruction

INF = math.inf
NAN = math.nan
LN2 = math.log(2.0)

_MANTISSA = {"float32": 23, "float64": 52}
_BIAS = {"float32": 127, "float64": 1023}
_WORD = {"float32": "uint32", "float64": "uint64"}


def fma(a: Expr, b: ExprLike, c: ExprLike) -> Expr:
    """Return a * b + c, fused where the target can."""
    return call("fma", a, b, c)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return the sum of coefficients[k] * x**k."""
    total: Expr = convert(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(x, total, coefficient)
    return total


def paired_polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return the sum of coefficients[k] * x**k by Estrin's scheme: pairs, pairs of pairs, ...

    Some more operations than `polynomial`, but they wait for each other half as long or less: for
    long polynomials, where a machine cannot hold enough independent ones to fill the wait.
    """
    terms: list[Expr] = [convert(c, x.dtype) for c in coefficients]
    while len(terms) > 1:
        pairs = [fma(x, high, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
        x = x * x
    return terms[0]


def negate(x: Expr) -> Expr:
    """Return -x (also of zeros and NaN)."""
    return x * -1.0


def absolute(x: Expr) -> Expr:
    """Return the size of x."""
    return call("abs", x)


def with_sign_of(size: Expr, x: Expr) -> Expr:
    """Return `size` with the sign bit of x."""
    return call("copysign", size, x)


def where(cond: Expr, then: ExprLike, other: ExprLike, like: Expr) -> Expr:
    """Return a choice between values of the type of `like`; both are evaluated."""
    return select(cond, convert(then, like.dtype), convert(other, like.dtype))


def at_most(x: Expr, limit: float) -> Expr:
    """Return the smaller of x and limit; NaN stays NaN. One instruction on most machines."""
    return where(x > limit, limit, x, x)


def at_least(x: Expr, limit: float) -> Expr:
    """Return the larger of x and limit; NaN stays NaN."""
    return where(x < limit, limit, x, x)


def word(x: Expr) -> Expr:
    """Return the bits of a float as an unsigned integer."""
    return call("bitcast", x, dtype=_WORD[x.dtype])


def from_word(bits: Expr, dtype: str) -> Expr:
    """Return the float with these bits."""
    return call("bitcast", bits, dtype=dtype)


def round_scaled(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """Return n = round(x * factor) as a float, and 2**n.

    Adding 1.5 * 2**mantissa drops the fraction; n plus the exponent bias is then in the low bits,
    and a shift makes it the exponent. For n in the range of normal exponents.
    """
    magic = _magic(x.dtype)
    shifted = fma(x, factor, magic)
    return shifted - magic, _power_of_low_bits(shifted)


def power_of_two(n: Expr) -> Expr:
    """Return 2**n for a whole float n in the range of normal exponents."""
    return _power_of_low_bits(n + _magic(n.dtype))


def _magic(dtype: str) -> float:
    return 1.5 * 2.0 ** _MANTISSA[dtype] + _BIAS[dtype]


def _power_of_low_bits(shifted: Expr) -> Expr:
    bits = binary("shl", word(shifted), _MANTISSA[shifted.dtype])
    return from_word(bits, shifted.dtype)


def nearest(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """Return n = round(x * factor) as a float, and a word with n in its low bits, signed."""
    magic = 1.5 * 2.0 ** _MANTISSA[x.dtype]
    shifted = fma(x, factor, magic)
    return shifted - magic, word(shifted)


def picked(index: Expr, words: Sequence[int], lookup: Instruction) -> Expr:
    """Return the word that the low bits of a word number, by an instruction for as many."""
    return apply(lookup, [*(Const.of(w, "uint32") for w in words), index])


def picked_float(index: Expr, values: Sequence[float], lookup: Instruction) -> Expr:
    """As `picked`, of float32 values."""
    words = [unpack("<I", pack("<f", v))[0] for v in values]
    return from_word(picked(index, words, lookup), "float32")


def root_of_two(eighths: Expr, lookup: Instruction) -> Expr:
    """Return 2**(k / 8), rounded, for the signed number k in the low 12 bits of a word.

    For results that have a normal exponent; 2**128 is infinite. The constants are the bits of
    2**(k / 8) for k from 0 to 7, less k moved up to the exponent, where all of k is added.
    """
    roots = picked(eighths, _ROOTS_OF_TWO, lookup)
    return from_word(roots + binary("shl", eighths, 20), "float32")


_ROOTS_OF_TWO = tuple(unpack("<I", pack("<f", 2.0 ** (k / 8)))[0] - (k << 20) for k in range(8))


def scale(x: Expr, n: Expr) -> Expr:
    """Return x * 2**n for a whole float n twice as far as exponents go, rounded once."""
    half, first = round_scaled(n, 0.5)
    return x * first * power_of_two(n - half)


def split_exponent(x: Expr) -> tuple[Expr, Expr]:
    """Return (k, m) with x = 2**k * m and m in [sqrt(1/2), sqrt(2)), for positive finite x.

    Zero, negatives, infinities and NaN give meaningless numbers.
    """
    dtype, mantissa = x.dtype, _MANTISSA[x.dtype]
    one, root = (0x3F800000, 0x3F3504F3)
    if dtype == "float64":
        one, root = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
    tiny = x < 2.0 ** (2 - _BIAS[dtype] - 1)
    normal = where(tiny, x * 2.0**mantissa, x, x)
    bits = word(normal) + (one - root)
    exponent = from_word((bits >> mantissa) | word(_const(2.0**mantissa, dtype)), dtype)
    low = 2.0**mantissa + _BIAS[dtype]
    k = exponent - where(tiny, low + mantissa, low, x)
    m = from_word((bits & ((1 << mantissa) - 1)) + root, dtype)
    return k, m


def _const(value: float, dtype: str) -> Expr:
    return Const.of(value, dtype)


def two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return (s, e) with s = a + b rounded and s + e = a + b exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def quick_two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """As `two_sum`, where |a| >= |b|."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return (p, e) with p = a * b rounded and p + e = a * b exactly (float64, below 2**990)."""
    p = a * b
    a1, a2 = _halves(a)
    b1, b2 = _halves(b)
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(x: Expr) -> tuple[Expr, Expr]:
    t = x * 134217729.0  # 2**27 + 1
    high = t - (t - x)
    return high, x - high
