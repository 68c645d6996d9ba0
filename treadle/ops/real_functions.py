# SPDX-License-Identifier: Apache-2.0
"""Functions of real numbers that few models use: near 0, to base 2, of angles and of signs."""

from __future__ import annotations

import math

import numpy as np

from treadle import te
from treadle.expr import nodes
from treadle.ops.elementwise import vectorize
from treadle.ops.elementwise_factory import pair, unary
from treadle.ops.numeric import FLOATS

_erfc = vectorize(math.erfc)

log1p = unary(
    "log1p",
    lambda a, x: te.log1p(x),
    lambda a, x: np.log1p(x),
    bounds=(-0.9, 9.0),
    keeps_finite=False,
)
"""log(1 + x), exact near 0."""
expm1 = unary("expm1", lambda a, x: te.expm1(x), lambda a, x: np.expm1(x), keeps_finite=False)
"""exp(x) - 1, exact near 0."""
log2 = unary(
    "log2",
    lambda a, x: te.log2(x),
    lambda a, x: np.log2(x),
    bounds=(0.01, 20.0),
    keeps_finite=False,
)
normal_cdf = unary(
    "normal_cdf",
    lambda a, x: te.normal_cdf(x),
    lambda a, x: 0.5 * _erfc(-x * math.sqrt(0.5)),
)
"""The probability that a standard normal number is below x."""
atan2 = pair(
    "atan2",
    lambda a, y, x: nodes.call("atan2", y, x),
    lambda a, y, x: np.arctan2(y, x),
    FLOATS,
)
"""The angle of the point (x, y): the first input is y."""
copysign = pair(
    "copysign",
    lambda a, x, y: nodes.call("copysign", x, y),
    lambda a, x, y: np.copysign(x, y),
    FLOATS,
)
"""The first input's size with the second's sign, which a zero has too."""
