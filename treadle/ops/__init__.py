# SPDX-License-Identifier: Apache-2.0
"""Operators, one module per family; importing this package registers all of them."""

from treadle.ops import (
    conv,
    conv_nchwc,
    conv_winograd,
    elementwise,
    from_scalar,
    image,
    matmul,
    movement,
    norm,
    pool,
    reduce,
)

__all__ = [
    "conv",
    "conv_nchwc",
    "conv_winograd",
    "elementwise",
    "from_scalar",
    "image",
    "matmul",
    "movement",
    "norm",
    "pool",
    "reduce",
]
