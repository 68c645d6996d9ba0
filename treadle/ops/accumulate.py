# SPDX-License-Identifier: Apache-2.0
"""Sums of products: the element type they are kept in, in te and in the NumPy references."""

from __future__ import annotations

from functools import partial

import numpy as np

from treadle import dtype as dt
from treadle.expr.nodes import Expr, cast
from treadle.graph.operator import Example
from treadle.te import tensor as te


def sum_dtype(dtype: str) -> str:
    """Return the type a sum of `dtype` values is kept in: float32 for the 16-bit floats."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b in the type that sums of them are kept in."""
    wide = sum_dtype(a.dtype)
    return cast(a, wide) * cast(b, wide)


def narrowed(total: te.Tensor, dtype: str, name: str) -> list[te.Tensor]:
    """Return the stages from a sum to its result as `dtype`: the sum, then a cast if needed."""
    if total.dtype == dtype:
        return [total]
    shape = list(total.shape)
    return [total, te.compute_one(shape, lambda *i: cast(total[i], dtype), name=name)]


def widened(array: np.ndarray) -> np.ndarray:
    """Return floats as float64, so that a reference sums exactly enough; integers as they are."""
    if dt.is_float(dt.from_numpy(array.dtype)):
        return array.astype(np.float64)
    return array


product_example = partial(Example, atol=1e-4)
"""An example of sums of products: they may cancel, so the absolute error counts."""
