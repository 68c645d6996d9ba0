# SPDX-License-Identifier: Apache-2.0
"""Sums of products: the stages from elements to a result in the type of the factors."""

from __future__ import annotations

from functools import partial

import numpy as np

from treadle import te
from treadle.dtype import is_integer
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, cast
from treadle.graph.operator import Example
from treadle.ops.axis_names import axes_like
from treadle.ops.numeric import accumulator, in_float64

_BYTES = ("int8", "uint8")
_SHORTS = ("int16", "uint16")


def result_type(a: str, b: str, out: str = "") -> str:
    """Return the element type of sums of products of elements `a` by `b`; `out` asks for one.

    Bytes of any sign give int32, which products of them fit. 16-bit integers may give int32, and
    16-bit floats float32, the type they are summed in; without being asked they give their own
    type, as all others do.

    Raises: TypeMismatch for types that do not multiply, and for another result than these.
    """
    if "bool" in (a, b):
        raise TypeMismatch("products of bool values are not defined", hint="cast them first")
    if a in _BYTES and b in _BYTES:
        allowed = ["int32"]
    elif a == b:
        wide = "int32" if a in _SHORTS else accumulator(a)
        allowed = list(dict.fromkeys((a, wide)))
    else:
        raise TypeMismatch(
            f"the factors have different element types, {a} and {b}",
            hint="cast one of them; only bytes with and without a sign multiply as they are",
        )
    if out and out not in allowed:
        raise TypeMismatch(
            f"products of {a} and {b} are not summed as {out}",
            hint=f"out_dtype is {' or '.join(allowed)}",
        )
    return out or allowed[0]


def product(a: Expr, b: Expr, out: str = "") -> Expr:
    """Return a * b in the type that sums of them are kept in, for results of type `out`."""
    wide = accumulator(result_type(a.dtype, b.dtype, out))
    return cast(a, wide) * cast(b, wide)


def reference_factors(a: np.ndarray, b: np.ndarray, out: str) -> tuple[np.ndarray, np.ndarray]:
    """Return factors in the type that a reference sums their products in."""
    if is_integer(out):
        return a.astype(out), b.astype(out)
    return in_float64(a), in_float64(b)


def narrowed(total: te.Tensor, dtype: str, name: str) -> list[te.Tensor]:
    """Return the stages from a sum to its result as `dtype`: the sum, then a cast if needed."""
    if total.dtype == dtype:
        return [total]
    shape = list(total.shape)
    names = axes_like(total.ndim, total)
    return [total, te.compute_one(shape, lambda *i: cast(total[i], dtype), name=name, axes=names)]


product_example = partial(Example, atol=1e-4)
"""An example of sums of products: they may cancel, so the absolute error counts."""
