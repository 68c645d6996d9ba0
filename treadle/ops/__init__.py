# SPDX-License-Identifier: Apache-2.0
"""Operators, one module per family; importing this package registers all of them."""

from treadle.ops import conv, conv_nchwc, elementwise, from_scalar, matmul, movement, pool

__all__ = ["conv", "conv_nchwc", "elementwise", "from_scalar", "matmul", "movement", "pool"]
