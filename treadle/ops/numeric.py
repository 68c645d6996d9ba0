# SPDX-License-Identifier: Apache-2.0
"""Element type classes, the half-precision rule and NumPy wrappers that operator families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, ExprLike, cast, int_value, select
from treadle.graph.broadcasting import is_literal_one, stretches
from treadle.graph.operator import Example
from treadle.graph.types import Dim, TensorType, Type, as_dim, tensor_type
from treadle.te.operations import Tensor

HALVES = ("float16", "bfloat16")
FLOATS = tuple(n for n in dt.NAMES if dt.is_float(n))
INTEGERS = tuple(n for n in dt.NAMES if dt.is_integer(n))
NUMBERS = INTEGERS + FLOATS
BOOL = ("bool",)
ANY = dt.NAMES

Attributes = Any  # the operator's own attribute record
Scalar = Callable[..., Expr]
"""scalar(attrs, *elements) -> element: what an element-wise operator does."""

Reference = Callable[..., Any]
"""reference(attrs, *arrays) -> array, or a tuple of arrays."""

SPECIAL_FLOATS = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-40, -1e-40, 3e38, -3e38, 88.0],
    np.float32,
)
"""Floats where formulas break: NaN, infinities, both zeros, subnormals, huge values."""


def element_at(values: Sequence[Expr], index: Expr) -> Expr:
    """Return `values[index]`; once `index` is known (unrolled) one value is left."""
    found = values[-1]
    for k in range(len(values) - 2, -1, -1):
        found = select(index == k, values[k], found)
    return found


def check_elements(x: Type, allowed: tuple[str, ...], which: str = "the input") -> TensorType:
    """Return `x` as a tensor type. Raises TypeMismatch when its element type is not allowed."""
    found = tensor_type(x)
    if found.dtype not in allowed:
        raise TypeMismatch(
            f"{which} has element type {found.dtype}",
            hint=f"cast it to one of {', '.join(allowed)}",
        )
    return found


def check_same_elements(*types: Type) -> str:
    """Return the element type of all `types`. Raises TypeMismatch when they differ."""
    dtypes = [tensor_type(t).dtype for t in types]
    if len(set(dtypes)) > 1:
        raise TypeMismatch(
            f"the inputs have different element types: {', '.join(dtypes)}",
            hint="cast them to one type",
        )
    return dtypes[0]


def check_axis(axis: int, ndim: int) -> int:
    """Return `axis`. Raises TypeMismatch unless 0 <= axis < ndim."""
    if not 0 <= axis < ndim:
        raise TypeMismatch(
            f"axis {axis} is out of range for {ndim} dimensions",
            hint=f"axes run from 0 to {ndim - 1}" if ndim else "a scalar has no axes",
        )
    return axis


def dims_of(x: Tensor) -> tuple[Dim, ...]:
    """Return the extents of a te tensor, constant ones as ints."""
    return tuple(as_dim(d) for d in x.shape)


def real_extent(extent: Dim, dtype: str) -> ExprLike:
    """Return an extent as a float: a number, or an expression of type `dtype` where symbolic."""
    return cast(extent, dtype) if isinstance(extent, Expr) else float(extent)


def accumulator(dtype: str) -> str:
    """Return the type that intermediate values of `dtype` are kept in: float32 for halves."""
    return "float32" if dtype in HALVES else dtype


def rounded_once(scalar: Scalar) -> Scalar:
    """Return `scalar` computed in float32 for half-precision elements and rounded at the end."""

    def wide(attrs: Attributes, *xs: Expr) -> Expr:
        dtype = xs[0].dtype
        if dtype not in HALVES:
            return scalar(attrs, *xs)
        result = scalar(attrs, *(cast(x, "float32") for x in xs))
        return result if result.dtype == "bool" else cast(result, dtype)

    return wide


def numpy_reference(function: Callable[..., Any]) -> Reference:
    """Return `function(attrs, *arrays)` run in float64 for floats; keeps the first input's type."""

    def reference(attrs: Attributes, *arrays: np.ndarray) -> np.ndarray:
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            return np.asarray(function(attrs, *map(in_float64, arrays))).astype(dtype)

    return reference


def in_float64(array: np.ndarray) -> np.ndarray:
    """Return a float array as float64, any other array as it is."""
    return array.astype(np.float64) if dt.is_float(array.dtype.name) else array


def half_examples(shapes: tuple[tuple[int, ...], ...], **attrs: object) -> tuple[Example, ...]:
    """Return one example per half-precision type, with the tolerance of its last bit."""
    n = len(shapes)
    return (
        Example(shapes, attrs, ("float16",) * n, rtol=1e-3, atol=1e-6),
        Example(shapes, attrs, ("bfloat16",) * n, rtol=8e-3, atol=1e-6),
    )


def broadcast_index(
    x: Tensor, index: Sequence[ExprLike], whole: Sequence[Dim] | None = None
) -> tuple[ExprLike, ...]:
    """Return where `x` is read for element `index` of a shape it is broadcast to.

    With the extents `whole` of that shape, those of `x` of which only a run knows whether they are
    1 may be repeated; without it they may not.
    """
    tail = index[len(index) - x.ndim :]
    if whole is None:
        return tuple(0 if int_value(d) == 1 else i for d, i in zip(x.shape, tail, strict=True))
    extents = zip(dims_of(x), tail, whole[len(whole) - x.ndim :], strict=True)
    return tuple(_stretched(i, d, w) for d, i, w in extents)


def _stretched(index: ExprLike, extent: Dim, whole: Dim) -> ExprLike:
    if is_literal_one(extent):
        return 0
    repeats = stretches([extent], [whole])
    return select(repeats[0], index, 0) if repeats else index
