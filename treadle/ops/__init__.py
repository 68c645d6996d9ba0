# SPDX-License-Identifier: Apache-2.0
"""Operators, one module per family; importing this package registers all of them."""

from treadle.graph.operator import OPERATORS
from treadle.ops import (
    attention,
    bits,
    control,
    conv,
    cumulative,
    elementwise,
    from_scalar,
    image,
    index_checks,
    linalg,
    matmul,
    movement,
    narrow,
    norm,
    pool,
    random,
    reduce,
    roi,
    scatter,
    select,
    sizes,
    sort,
    suppress,
    unique,
    vision,
)
from treadle.ops.lowered import LOWERED

BUILT_IN = frozenset(OPERATORS.all())
"""The operators of this package; those that users register later are not among them."""

__all__ = [
    "BUILT_IN",
    "LOWERED",
    "attention",
    "bits",
    "control",
    "conv",
    "cumulative",
    "elementwise",
    "from_scalar",
    "image",
    "index_checks",
    "linalg",
    "matmul",
    "movement",
    "narrow",
    "norm",
    "pool",
    "random",
    "reduce",
    "roi",
    "scatter",
    "select",
    "sizes",
    "sort",
    "suppress",
    "unique",
    "vision",
]
