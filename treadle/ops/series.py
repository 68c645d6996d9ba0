# SPDX-License-Identifier: Apache-2.0
"""Functions given by the coefficients of a series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr
from treadle.graph.operator import Attrs
from treadle.ops.elementwise_factory import unary
from treadle.ops.numeric import FLOATS


@dataclass(frozen=True, slots=True)
class ChebyshevAttrs(Attrs):
    """The coefficients of the polynomials T(0), T(1), ..."""

    coefficients: tuple[float, ...] = (1.0,)


def _check(attrs: ChebyshevAttrs) -> None:
    if not attrs.coefficients:
        raise TypeMismatch("a Chebyshev series has one coefficient at least")


def _chebyshev(attrs: ChebyshevAttrs, x: Expr) -> Expr:
    """Return the sum by Clenshaw's recurrence."""
    now: Expr = Const.of(0.0, x.dtype)
    before = now
    for c in reversed(attrs.coefficients[1:]):
        now, before = 2.0 * x * now - before + c, now
    return x * now - before + attrs.coefficients[0]


chebyshev_series = unary(
    "chebyshev_series",
    _chebyshev,
    lambda a, x: np.polynomial.chebyshev.chebval(x, a.coefficients),
    FLOATS,
    attrs_type=ChebyshevAttrs,
    variety=({"coefficients": (0.5, 0.25, -0.125, 0.0625)}, {"coefficients": (3.0,)}),
    bounds=(-1.0, 1.0),
    largest=1.0,
    check=_check,
    keeps_finite=False,
)
"""A sum of multiples of Chebyshev polynomials, meant for numbers from -1 to 1."""
