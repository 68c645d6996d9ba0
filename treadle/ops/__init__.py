# SPDX-License-Identifier: Apache-2.0
"""Operators, one module per family; importing this package registers all of them."""

from treadle.ops import (
    attention,
    bits,
    conv,
    conv_nchwc,
    conv_winograd,
    cumulative,
    elementwise,
    from_scalar,
    image,
    matmul,
    movement,
    norm,
    pool,
    reduce,
    roi,
    scatter,
    sort,
    vision,
)

__all__ = [
    "attention",
    "bits",
    "conv",
    "conv_nchwc",
    "conv_winograd",
    "cumulative",
    "elementwise",
    "from_scalar",
    "image",
    "matmul",
    "movement",
    "norm",
    "pool",
    "reduce",
    "roi",
    "scatter",
    "sort",
    "vision",
]
