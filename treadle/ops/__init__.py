# SPDX-License-Identifier: Apache-2.0
"""Operators, one module per family; importing this package registers all of them."""

from treadle.ops import elementwise, movement, norm, reduce

__all__ = ["elementwise", "movement", "norm", "reduce"]
