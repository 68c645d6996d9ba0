# SPDX-License-Identifier: Apache-2.0
"""Functions of pairs of numbers by recurrences, sums and continued fractions.

How many steps they take depends on the numbers, so each is a loop per element: unlike element-wise
operators they are neither fused nor vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, ExprLike, call, cast, load, maximum, minimum, select
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import Type, shapes_may_agree
from treadle.loop.build import ZERO, assign, counter, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.numeric import INTEGERS, check_elements, check_same_elements, dims_of
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor

REAL = "float64"

Body = Callable[[Any, Expr, Expr, Callable[[ExprLike], Stmt]], Stmt]
"""body(attrs, a, b, result): what computes one element and calls `result` with it."""


def _number(name: str) -> Buffer:
    """Return a local variable for a real number."""
    return Buffer(name, REAL, (Const.of(1),), "local")


def _operator(
    name: str,
    body: Body,
    function: Callable[..., float],
    allowed: tuple[str, ...],
    examples: tuple[Example, ...],
    attrs_type: type[Attrs] = Attrs,
) -> Operator[Any]:
    """Register an operator of two tensors of one shape and type; `function` is its reference."""

    def infer(attrs: Any, a: Type, b: Type) -> Type:  # Any: as `attrs_type` says
        first = check_elements(a, allowed)
        second = check_elements(b, allowed, "the second input")
        check_same_elements(first, second)
        if not shapes_may_agree(first.shape, second.shape):
            raise TypeMismatch(f"the inputs {first} and {second} have different shapes")
        return first

    def compute(attrs: Any, a: Tensor, b: Tensor) -> Tensor:  # Any: as above
        extents = dims_of(a)

        def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
            def element(*i: Expr) -> Stmt:
                first, second = (load(x, i) for x in ins)
                return body(attrs, first, second, lambda value: put(outs[0], i, value))

            many = bool(extents) and is_much(extents)
            return nest(extents, element, "o", ["parallel"] if many else [])

        made = te.extern([extents], [a, b], build, name, a.dtype)
        assert isinstance(made, tuple)  # a list of shapes gives a tuple
        return made[0]

    def reference(attrs: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # Any: as above
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return np.array([function(attrs, x, y) for x, y in pairs], a.dtype).reshape(a.shape)

    return register(
        Operator(
            name=name,
            infer=infer,
            reference=reference,
            compute=compute,
            attrs_type=attrs_type,
            examples=examples,
        )
    )


# ---- greatest common divisors --------------------------------------------------------------------

_MOST_DIVISIONS = 96
"""Divisions that end Euclid's algorithm for numbers of 64 bits: Fibonacci numbers take most."""


def _gcd(attrs: Attrs, a: Expr, b: Expr, result: Callable[[ExprLike], Stmt]) -> Stmt:
    x, y, kept = (Buffer(n, a.dtype, (Const.of(1),), "local") for n in ("x", "y", "kept"))
    zero = Const.of(0, a.dtype)

    def size(v: Expr) -> Expr:
        return select(v < zero, -v, v) if a.dtype.startswith("int") else v

    def divide(_: Expr) -> Stmt:
        step = seq(
            assign(kept, value_of(x) % value_of(y)),
            assign(x, value_of(y)),
            assign(y, value_of(kept)),
        )
        return If(value_of(y) != zero, step)

    start = seq(assign(x, size(a)), assign(y, size(b)))
    return declared(
        [x, y, kept], seq(start, loop(_MOST_DIVISIONS, divide, "step"), result(value_of(x)))
    )


gcd = _operator(
    "gcd",
    _gcd,
    lambda attrs, a, b: math.gcd(a, b),
    INTEGERS,
    (
        Example(((4, 9),) * 2, {}, ("int64",) * 2, -60, 60),
        Example(((40,),) * 2, {}, ("uint8",) * 2, 0, 255),
        Example(((2,),) * 2, {}, ("int64",) * 2, inputs={
            0: np.array([1100087778366101931, 0]), 1: np.array([679891637638612258, 0])}),
    ),
)  # fmt: skip
"""The greatest common divisor by Euclid's algorithm, 0 of two zeros."""


# ---- orthogonal polynomials ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """p(0) = 1, p(1) = a + b x, and what gives p(k + 1) from p(k), p(k - 1), x and k."""

    first: tuple[int, int]
    next: Callable[[Any, Any, Any, Any], Any]


def _chebyshev(a: int, b: int) -> _Recurrence:
    return _Recurrence((a, b), lambda p, before, x, k: 2 * x * p - before)


POLYNOMIALS = {
    "chebyshev_t": _chebyshev(0, 1),
    "chebyshev_u": _chebyshev(0, 2),
    "chebyshev_v": _chebyshev(-1, 2),
    "chebyshev_w": _chebyshev(1, 2),
    "hermite_h": _Recurrence((0, 2), lambda p, before, x, k: 2 * x * p - 2 * k * before),
    "hermite_he": _Recurrence((0, 1), lambda p, before, x, k: x * p - k * before),
    "laguerre_l": _Recurrence(
        (1, -1), lambda p, before, x, k: ((2 * k + 1 - x) * p - k * before) / (k + 1)
    ),
    "legendre_p": _Recurrence(
        (0, 1), lambda p, before, x, k: ((2 * k + 1) * x * p - k * before) / (k + 1)
    ),
}
"""Recurrences of the classical orthogonal polynomials (DLMF, table 18.9.1)."""


@dataclass(frozen=True, slots=True)
class PolynomialAttrs(Attrs):
    """Which polynomials: a name of `POLYNOMIALS`."""

    kind: str = "chebyshev_t"


def _polynomial(
    attrs: PolynomialAttrs, x: Expr, n: Expr, result: Callable[[ExprLike], Stmt]
) -> Stmt:
    rule = POLYNOMIALS[attrs.kind]
    p, before, kept = _number("p"), _number("before"), _number("kept")
    degree = cast(n, "int64")
    a, b = rule.first

    def step(k: Expr) -> Stmt:
        real = cast(k + 1, REAL)
        return seq(
            assign(kept, value_of(p)),
            assign(p, rule.next(value_of(p), value_of(before), x, real)),
            assign(before, value_of(kept)),
        )

    start = seq(assign(before, 1.0), assign(p, x * float(b) + float(a)))
    whole = seq(start, loop(maximum(degree - 1, ZERO), step, "k"), result(value_of(p)))
    one = If(degree > 0, whole, result(select(degree == 0, Const.of(1.0, REAL), 0.0)))
    return declared([p, before, kept], one)


def _polynomial_reference(attrs: PolynomialAttrs, x: float, n: float) -> float:
    rule, degree = POLYNOMIALS[attrs.kind], int(n)
    if degree < 1:
        return float(degree == 0)
    before, p = 1.0, rule.first[0] + rule.first[1] * x
    for k in range(1, degree):
        before, p = p, rule.next(p, before, x, k)
    return p


_DEGREES = np.arange(-1, 11, dtype=REAL)

orthogonal_polynomial = _operator(
    "orthogonal_polynomial",
    _polynomial,
    _polynomial_reference,
    (REAL,),
    tuple(
        Example(((12,),) * 2, {"kind": kind}, (REAL,) * 2, inputs={1: _DEGREES})
        for kind in POLYNOMIALS
    ),
    PolynomialAttrs,
)
"""The polynomial of degree n at x, for the inputs x and n (cut towards zero): 0 below degree 0."""


# ---- the zeta function ---------------------------------------------------------------------------

_NEAR = 10
"""The terms of the zeta function up to this number are added one by one."""


def bernoulli(count: int) -> list[Fraction]:
    """Return the Bernoulli numbers B(0), B(1), ..., by their recurrence (DLMF 24.5.3)."""
    found = [Fraction(1)]
    for n in range(1, count):
        known = sum(math.comb(n + 1, k) * b for k, b in enumerate(found))
        found.append(Fraction(-known, n + 1))
    return found


_CORRECTIONS = [float(b / math.factorial(2 * k)) for k, b in enumerate(bernoulli(25)[2::2], 1)]
"""B(2k) / (2k)! for k = 1, 2, ..."""


def _zeta(attrs: Attrs, s: Expr, q: Expr, result: Callable[[ExprLike], Stmt]) -> Stmt:
    """Sum up to where Euler and Maclaurin's formula holds, which gives the rest (DLMF 25.11.28)."""
    total = _number("total")
    lacking = cast(call("ceil", minimum(_NEAR - q, 1e9)), "int64")
    count = counter("count")

    def term(k: Expr) -> Stmt:
        return assign(total, value_of(total) + call("pow", q + cast(k, REAL), -s))

    a = q + cast(value_of(count), REAL)
    power = call("pow", a, -s)
    rest, factor = power * a / (s - 1.0) + power * 0.5, s * power / a
    for k, correction in enumerate(_CORRECTIONS):
        rest = rest + correction * factor
        factor = factor * (s + float(2 * k + 1)) * (s + float(2 * k + 2)) / (a * a)
    start = seq(assign(total, 0.0), assign(count, maximum(lacking, Const.of(_NEAR))))
    terms = loop(value_of(count), term, "k")
    return declared([total, count], seq(start, terms, result(value_of(total) + rest)))


def _zeta_reference(attrs: Attrs, s: float, q: float) -> float:
    count = max(_NEAR, math.ceil(_NEAR - q)) + 20
    total = math.fsum(float((q + k) ** -s) for k in range(count))
    a = q + count
    total += a ** (1 - s) / (s - 1) + a**-s / 2
    factor = float(s * a ** (-s - 1))
    for k, correction in enumerate(_CORRECTIONS):
        total += correction * factor
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a)
    return float(total)


hurwitz_zeta = _operator(
    "hurwitz_zeta",
    _zeta,
    _zeta_reference,
    (REAL,),
    (
        Example(((5, 9),) * 2, {}, (REAL,) * 2, 1.5, 30),
        Example(((4,),) * 2, {}, (REAL,) * 2, inputs={
            0: np.array([2.0, 3, 4, 5]), 1: np.array([-2.5, -0.25, 0.125, -20.75])}),
    ),
)  # fmt: skip
"""The sum of (q + k) ** -s over k = 0, 1, ..., for the inputs s > 1 and q; below 0 for whole s."""


# ---- incomplete gamma functions ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GammaAttrs(Attrs):
    """The lower or the upper integral."""

    upper: bool = False


def _steps(a: Expr) -> Expr:
    """Return how many steps settle either integral: about sqrt(80 a) where x is near a."""
    return cast(10.0 * call("sqrt", minimum(a, 1e8)), "int64") + 150


def _incomplete(attrs: GammaAttrs, a: Expr, x: Expr, result: Callable[[ExprLike], Stmt]) -> Stmt:
    return (_fraction if attrs.upper else _series)(a, x, result)


def _series(a: Expr, x: Expr, result: Callable[[ExprLike], Stmt]) -> Stmt:
    """Return 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ... (DLMF 8.7.1)."""
    total, term = _number("total"), _number("term")

    def step(k: Expr) -> Stmt:
        return seq(
            assign(term, value_of(term) * x / (a + cast(k + 1, REAL))),
            assign(total, value_of(total) + value_of(term)),
        )

    start = seq(assign(total, 1.0), assign(term, 1.0))
    return declared([total, term], seq(start, loop(_steps(a), step, "k"), result(value_of(total))))


_TINY = 1e-300
"""Stands for 0 where the continued fraction divides by it (Thompson and Barnett)."""


def _fraction(a: Expr, x: Expr, result: Callable[[ExprLike], Stmt]) -> Stmt:
    """Return 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...)) by Lentz's method (DLMF 8.9.2)."""
    b, c, d, h = (_number(n) for n in "bcdh")

    def step(k: Expr) -> Stmt:
        i = cast(k + 1, REAL)
        top = i * (a - i)
        return seq(
            assign(b, value_of(b) + 2.0),
            assign(d, 1.0 / _not_zero(top * value_of(d) + value_of(b))),
            assign(c, _not_zero(value_of(b) + top / value_of(c))),
            assign(h, value_of(h) * value_of(c) * value_of(d)),
        )

    start = seq(
        assign(b, x + 1.0 - a),
        assign(c, 1.0 / _TINY),
        assign(d, 1.0 / _not_zero(value_of(b))),
        assign(h, value_of(d)),
    )
    steps = loop(_steps(a), step, "k")
    return declared([b, c, d, h], seq(start, steps, result(value_of(h))))


def _not_zero(x: Expr) -> Expr:
    return select(call("abs", x) < _TINY, Const.of(_TINY, REAL), x)


def _incomplete_reference(attrs: GammaAttrs, a: float, x: float) -> float:
    steps = range(1, 151 + int(10 * math.sqrt(min(a, 1e8))))
    if not attrs.upper:
        total = term = 1.0
        for k in steps:
            term *= x / (a + k)
            total += term
        return total
    below = 0.0
    for k in reversed(steps):  # the fraction from its end
        below = k * (a - k) / ((x + 2 * k + 1 - a + below) or _TINY)
    return 1 / (x + 1 - a + below)


incomplete_gamma = _operator(
    "incomplete_gamma",
    _incomplete,
    _incomplete_reference,
    (REAL,),
    (
        Example(((3, 4),) * 2, {}, (REAL,) * 2, 3, 9),
        Example(((3, 4),) * 2, {"upper": True}, (REAL,) * 2, 5, 9),
    ),
    GammaAttrs,
)
"""The integral of t ** (a - 1) exp(-t) from 0 to x, or from x on, over x ** a exp(-x), for the
inputs a and x; the lower one times a. Either converges: the lower for x up to about a, the upper
for x from about a on that are not below 1."""
