# SPDX-License-Identifier: Apache-2.0
"""Sums of products: the stages from elements to a result in the type of the factors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from treadle.expr.nodes import Expr, cast
from treadle.graph.operator import Example
from treadle.ops.axis_names import axes_like
from treadle.ops.numeric import accumulator
from treadle.te import tensor as te

Product: TypeAlias = Callable[[Expr, Expr], Expr]
"""What is summed of an element of each factor."""


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b in the type that sums of them are kept in."""
    wide = accumulator(a.dtype)
    return cast(a, wide) * cast(b, wide)


def narrowed(total: te.Tensor, dtype: str, name: str) -> list[te.Tensor]:
    """Return the stages from a sum to its result as `dtype`: the sum, then a cast if needed."""
    if total.dtype == dtype:
        return [total]
    shape = list(total.shape)
    names = axes_like(total.ndim, total)
    return [total, te.compute_one(shape, lambda *i: cast(total[i], dtype), name=name, axes=names)]


product_example = partial(Example, atol=1e-4)
"""An example of sums of products: they may cancel, so the absolute error counts."""
