# SPDX-License-Identifier: Apache-2.0
"""The gamma function's logarithm, its derivatives and its incomplete forms, of float64 numbers."""

from __future__ import annotations

import math

from treadle.frontend.builders.arithmetic import (
    below,
    choose,
    exact_pi_times,
    is_equal,
    minus,
    over,
    plus,
    polynomial,
    times,
)
from treadle.frontend.builders.basic import broadcast, dims_of, operands, scalar_like
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew
from treadle.ops.iterated import bernoulli, hurwitz_zeta, incomplete_gamma

_FAR = 10
"""From here on, Stirling's series is exact to rounding."""
_BERNOULLI = [float(b) for b in bernoulli(21)]


def _moved(x: Node) -> tuple[Node, Node]:
    """Return whether `x` is below `_FAR`, and a number that is not: `x`, or `_FAR` more."""
    is_low = below(x, _FAR)
    return is_low, choose(is_low, plus(x, _FAR), x)


def log_gamma(x: Node) -> Node:
    """Return log |gamma(x)|: Stirling's series (DLMF 5.11.1), the recurrence and reflection."""
    reflected = below(x, 0.5)
    y = choose(reflected, minus(1.0, x), x)
    is_low, z = _moved(y)
    product = y
    for k in range(1, _FAR):
        product = times(product, plus(y, float(k)))
    reciprocal = over(1.0, z)
    series = (_BERNOULLI[2 * k] / (2 * k * (2 * k - 1)) for k in range(1, 10))
    tail = times(reciprocal, polynomial(times(reciprocal, reciprocal), *series))
    lead = plus(minus(times(minus(z, 0.5), ew.log(z)), z), 0.5 * math.log(2 * math.pi))
    far = plus(lead, tail)
    made = choose(is_low, minus(far, ew.log(product)), far)
    sine = ew.abs(ew.sin(exact_pi_times(x)))
    mirrored = minus(minus(math.log(math.pi), ew.log(sine)), made)
    whole = choose(reflected, mirrored, made)
    return choose(ew.isinf(x), math.inf, whole)


def digamma(x: Node) -> Node:
    """Return the derivative of log gamma (DLMF 5.11.2, 5.5.2, 5.5.4).

    At 0 it is infinite with the sign of -x, at the other poles NaN.
    """
    reflected = below(x, 0.5)
    y = choose(reflected, minus(1.0, x), x)
    is_low, z = _moved(y)
    shift = over(1.0, y)
    for k in range(1, _FAR):
        shift = plus(shift, over(1.0, plus(y, float(k))))
    reciprocal = over(1.0, z)
    square = times(reciprocal, reciprocal)
    series = (_BERNOULLI[2 * k] / (2 * k) for k in range(1, 10))
    tail = plus(times(reciprocal, 0.5), times(square, polynomial(square, *series)))
    far = minus(ew.log(z), tail)
    made = choose(is_low, minus(far, shift), far)
    angle = exact_pi_times(x)
    mirrored = minus(made, over(math.pi, over(ew.sin(angle), ew.cos(angle))))
    is_pole = ew.logical_and(below(x, 0.5), is_equal(angle, 0.0))
    whole = choose(is_pole, math.nan, choose(reflected, mirrored, made))
    return choose(is_equal(x, 0.0), over(-1.0, x), whole)


def polygamma(order: int, x: Node) -> Node:
    """Return a derivative of `digamma` (DLMF 25.11.12)."""
    if order == 0:
        return digamma(x)
    power = broadcast(scalar_like(order + 1.0, x), dims_of(x))
    return times(zeta(power, x), float((-1) ** (order + 1) * math.factorial(order)))


def zeta(s: Node, q: Node) -> Node:
    """Return the Hurwitz zeta function: infinite at s = 1 and at its poles, NaN for s below 1.

    For q below 0 it is NaN unless s is a whole number.
    """
    s, q = operands(s, q)
    is_whole = ew.equal(q, ew.floor(q))
    is_low = ew.less_equal(q, scalar_like(0, q))
    is_defined = ew.logical_or(ew.greater(q, scalar_like(0, q)), ew.equal(s, ew.floor(s)))
    safe_q = choose(ew.logical_and(is_low, is_whole), 1.0, q)
    safe_s = choose(ew.greater(s, scalar_like(1, s)), s, 2.0)
    made: Node = hurwitz_zeta(safe_s, safe_q)
    made = choose(is_defined, made, math.nan)
    made = choose(ew.logical_and(is_low, is_whole), math.inf, made)
    made = choose(below(s, 1.0), math.nan, made)
    made = choose(is_equal(s, 1.0), math.inf, made)
    return choose(ew.logical_or(ew.isnan(s), ew.isnan(q)), math.nan, made)


def incomplete(a: Node, x: Node, *, upper: bool) -> Node:
    """Return the regularised incomplete gamma function P(a, x), or Q(a, x), its complement."""
    a, x = operands(a, x)
    zero, one = scalar_like(0, a), scalar_like(1, a)
    is_near = ew.logical_or(ew.less_equal(x, one), ew.less_equal(x, a))
    is_usual = ew.logical_and(ew.greater(a, zero), ew.not_(ew.isinf(a)))
    safe_a = choose(is_usual, a, 1.0)
    is_series = ew.logical_and(is_usual, ew.logical_and(is_near, ew.greater(x, zero)))
    low_x = choose(is_series, x, 0.0)
    high_x = choose(ew.logical_or(is_near, ew.isinf(x)), plus(safe_a, 1.0), x)
    power = minus(minus(times(safe_a, ew.log(x)), x), log_gamma(safe_a))
    factor = ew.exp(power)
    series = incomplete_gamma(safe_a, low_x)
    fraction = incomplete_gamma(safe_a, high_x, upper=True)
    low = over(times(factor, series), safe_a)
    high = times(factor, fraction)
    inside, outside = (minus(1.0, low), high) if upper else (low, minus(1.0, high))
    return _with_limits(a, x, choose(is_near, inside, outside), upper)


def _with_limits(a: Node, x: Node, made: Node, upper: bool) -> Node:
    """Return an incomplete gamma function with its values at 0 and at infinity, NaN below 0."""
    none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
    made = choose(ew.isinf(x), all_, made)
    made = choose(ew.isinf(a), choose(ew.isinf(x), math.nan, scalar_like(none, a)), made)
    made = choose(is_equal(x, 0.0), none, made)
    at_zero = choose(ew.greater(x, scalar_like(0, x)), scalar_like(all_, x), math.nan)
    made = choose(is_equal(a, 0.0), at_zero, made)
    is_out = ew.logical_or(below(a, 0.0), below(x, 0.0))
    is_nan = ew.logical_or(ew.isnan(a), ew.isnan(x))
    return choose(ew.logical_or(is_out, is_nan), math.nan, made)
