# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.dtype import to_numpy
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, ExprLike, int_value
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, aligned, equal
from treadle.graph.types import (
    Dim,
    TensorType,
    Type,
    broadcast_shapes,
    tensor_type,
)
from treadle.ops.accumulate import (
    narrowed,
    product,
    product_example,
    reference_factors,
    result_type,
)
from treadle.ops.axis_names import product_axes
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.matmul import schedule_matmul


def check_dtypes(a: TensorType, b: TensorType) -> None:
    """Raise TypeMismatch unless two factors have one numeric type."""
    if a.dtype != b.dtype:
        raise TypeMismatch(f"the factors {a} and {b} have different element types")
    if a.dtype == "bool":
        raise TypeMismatch("a product of bool matrices is not defined", hint="cast them first")


def check_inner(a: TensorType, b: TensorType, k: Dim) -> None:
    """Raise TypeMismatch where known extents that are summed over differ."""
    inner = a.shape[-1]
    if isinstance(inner, int) and isinstance(k, int) and inner != k:
        raise TypeMismatch(f"{a} and {b} do not multiply: {inner} columns against {k} rows")


@dataclass(frozen=True, slots=True)
class MatmulAttrs(Attrs):
    """`out_dtype`: the element type of the result; empty: that of the factors, int32 of bytes."""

    out_dtype: str = ""


def _infer_matmul(attrs: MatmulAttrs, a: Type, b: Type) -> TensorType:
    x, y = tensor_type(a), tensor_type(b)
    if x.ndim < 2 or y.ndim < 2:
        raise TypeMismatch(
            f"the factors {x} and {y} must have at least 2 dimensions",
            hint="reshape a vector into a matrix of one row or column",
        )
    dtype = result_type(x.dtype, y.dtype, attrs.out_dtype)
    check_inner(x, y, y.shape[-2])
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return TensorType((*batch, x.shape[-2], y.shape[-1]), dtype)


def _matmul_rules(attrs: MatmulAttrs, result: Type, a: Type, b: Type) -> Iterator[SizeRule]:
    x, y, batch = (tensor_type(t).shape for t in (a, b, result))
    yield from equal([(x[-1], y[-2])])
    for shape in (x, y):
        yield from aligned(shape[:-2], batch[:-2])


def _batch_index(x: te.Tensor, batch: Sequence[Expr]) -> tuple[ExprLike, ...]:
    """Return where `x` is read for a batch index of the result: 0 where it is broadcast."""
    own = x.shape[:-2]
    skip = len(batch) - len(own)
    return tuple(0 if int_value(d) == 1 else i for d, i in zip(own, batch[skip:], strict=True))


def _compute_matmul(attrs: MatmulAttrs, a: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
    k = te.reduce_axis((0, a.shape[-1]), "k")
    batch = broadcast_shapes(dims_of(a)[:-2], dims_of(b)[:-2])

    def element(*i: Expr) -> Expr:
        lead, row, column = i[:-2], i[-2], i[-1]
        left = a[(*_batch_index(a, lead), row, k)]
        right = b[(*_batch_index(b, lead), k, column)]
        return te.sum(product(left, right, out), axis=k)

    out = result_type(a.dtype, b.dtype, attrs.out_dtype)
    shape = (*batch, a.shape[-2], b.shape[-1])
    total = te.compute_one(shape, element, name="matmul", axes=product_axes(len(shape)))
    return narrowed(total, out, "matmul_cast")


def _reference_matmul(attrs: MatmulAttrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = result_type(a.dtype.name, b.dtype.name, attrs.out_dtype)
    result: np.ndarray = np.matmul(*reference_factors(a, b, out))
    return result.astype(to_numpy(out))


def _flops_matmul(attrs: MatmulAttrs, a: Type, b: Type) -> Dim:
    out = _infer_matmul(attrs, a, b)
    return 2 * out.elements * tensor_type(a).shape[-1]


matmul: Operator[MatmulAttrs] = register(
    Operator(
        name="matmul",
        schedule={"cpu": schedule_matmul},
        infer=_infer_matmul,
        reference=_reference_matmul,
        compute=_compute_matmul,
        rules=_matmul_rules,
        attrs_type=MatmulAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_matmul,
        flushes_subnormals=True,
        examples=(
            product_example(((4, 5), (5, 3))),
            product_example(((1, 1), (1, 1))),
            product_example(((1, 17), (17, 33))),
            product_example(((33, 64), (64, 48))),
            product_example(((2, 3, 4, 5), (2, 3, 5, 6))),
            product_example(((2, 1, 4, 5), (3, 5, 2))),
            product_example(((4, 5), (2, 3, 5, 6))),
            product_example(((3, 0), (0, 2))),
            product_example(((3, 5), (5, 4)), dtypes=("float64", "float64")),
            product_example(
                ((3, 40), (40, 4)), dtypes=("float16", "float16"), rtol=1e-3, atol=1e-3
            ),
            product_example(
                ((3, 40), (40, 4)), dtypes=("bfloat16", "bfloat16"), rtol=8e-3, atol=8e-3
            ),
            product_example(((3, 5), (5, 4)), dtypes=("int32", "int32"), low=-9, high=9),
            product_example(((3, 50), (50, 4)), dtypes=("int8", "int8"), low=-128, high=128),
            product_example(((3, 50), (50, 20)), dtypes=("uint8", "int8"), low=0, high=120),
            product_example(((3, 50), (50, 20)), dtypes=("uint8", "uint8"), low=0, high=256),
            product_example(((3, 50), (50, 4)), dtypes=("int16", "int16"), low=-9, high=9),
            product_example(
                ((3, 50), (50, 4)), {"out_dtype": "int32"}, ("int16", "int16"), low=-999, high=999
            ),
            product_example(((3, 40), (40, 4)), {"out_dtype": "float32"}, ("bfloat16", "bfloat16")),
            product_example(((3, 40), (40, 4)), {"out_dtype": "float32"}, ("float16", "float16")),
            product_example(((3, 5), (5, 4)), dtypes=("uint64", "uint64"), low=0, high=9),
        ),
    )
)
