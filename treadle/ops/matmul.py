# SPDX-License-Identifier: Apache-2.0
"""Matrix products: `matmul`, and `dense_packed` with weights laid out in panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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
from treadle.ops.accumulate import Product, narrowed, product, product_example
from treadle.ops.numeric import dims_of, in_float64
from treadle.ops.schedules.matmul import schedule_dense_packed, schedule_matmul
from treadle.te import tensor as te


def _check_dtypes(a: TensorType, b: TensorType) -> None:
    if a.dtype != b.dtype:
        raise TypeMismatch(f"the factors {a} and {b} have different element types")
    if a.dtype == "bool":
        raise TypeMismatch("a product of bool matrices is not defined", hint="cast them first")


def _check_inner(a: TensorType, b: TensorType, k: Dim) -> None:
    inner = a.shape[-1]
    if isinstance(inner, int) and isinstance(k, int) and inner != k:
        raise TypeMismatch(f"{a} and {b} do not multiply: {inner} columns against {k} rows")


def _infer_matmul(attrs: Attrs, a: Type, b: Type) -> TensorType:
    x, y = tensor_type(a), tensor_type(b)
    if x.ndim < 2 or y.ndim < 2:
        raise TypeMismatch(
            f"the factors {x} and {y} must have at least 2 dimensions",
            hint="reshape a vector into a matrix of one row or column",
        )
    _check_dtypes(x, y)
    _check_inner(x, y, y.shape[-2])
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return x.with_shape((*batch, x.shape[-2], y.shape[-1]))


def _matmul_rules(attrs: Attrs, result: Type, a: Type, b: Type) -> Iterator[SizeRule]:
    x, y, batch = (tensor_type(t).shape for t in (a, b, result))
    yield from equal([(x[-1], y[-2])])
    for shape in (x, y):
        yield from aligned(shape[:-2], batch[:-2])


def _batch_index(x: te.Tensor, batch: Sequence[Expr]) -> tuple[ExprLike, ...]:
    """Return where `x` is read for a batch index of the result: 0 where it is broadcast."""
    own = x.shape[:-2]
    skip = len(batch) - len(own)
    return tuple(0 if int_value(d) == 1 else i for d, i in zip(own, batch[skip:], strict=True))


def _compute_matmul(attrs: Attrs, a: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
    k = te.reduce_axis((0, a.shape[-1]), "k")
    batch = broadcast_shapes(dims_of(a)[:-2], dims_of(b)[:-2])

    def element(*i: Expr) -> Expr:
        lead, row, column = i[:-2], i[-2], i[-1]
        left = a[(*_batch_index(a, lead), row, k)]
        right = b[(*_batch_index(b, lead), k, column)]
        return te.sum(product(left, right), axis=k)

    total = te.compute_one((*batch, a.shape[-2], b.shape[-1]), element, name="matmul")
    return narrowed(total, a.dtype, "matmul_cast")


def _reference_matmul(attrs: Attrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.matmul(in_float64(a), in_float64(b))
    return result.astype(a.dtype)


def _flops_matmul(attrs: Attrs, a: Type, b: Type) -> Dim:
    out = _infer_matmul(attrs, a, b)
    return 2 * out.elements * tensor_type(a).shape[-1]


matmul: Operator[Attrs] = register(
    Operator(
        name="matmul",
        schedule={"cpu": schedule_matmul},
        infer=_infer_matmul,
        reference=_reference_matmul,
        compute=_compute_matmul,
        rules=_matmul_rules,
        fusion=Fusion.ANCHOR,
        flops=_flops_matmul,
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
            product_example(((3, 50), (50, 4)), dtypes=("int8", "int8"), low=-100, high=100),
            product_example(((3, 5), (5, 4)), dtypes=("uint64", "uint64"), low=0, high=9),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class DensePackedAttrs(Attrs):
    """`n`: the columns of the result; the last panel of weights may be padded beyond them."""

    n: int


def infer_dense_packed(attrs: DensePackedAttrs, a: Type, w: Type) -> TensorType:
    """Return the type of a product with panels. Raises: TypeMismatch where they do not fit."""
    x, panels = tensor_type(a), tensor_type(w)
    if x.ndim < 1 or panels.ndim != 3:
        raise TypeMismatch(f"{x} and {panels} are not [..., k] values and [n/nb, k, nb] weights")
    _check_dtypes(x, panels)
    count, k, width = panels.static_shape
    _check_inner(x, panels, k)
    if not (count - 1) * width < attrs.n <= count * width:
        raise TypeMismatch(f"{count} panels of {width} columns do not hold {attrs.n} columns")
    return x.with_shape((*x.shape[:-1], attrs.n))


def dense_packed_rules(
    attrs: DensePackedAttrs, result: Type, a: Type, w: Type
) -> Iterator[SizeRule]:
    """Return what sizes known only at run time must satisfy."""
    return equal([(tensor_type(a).shape[-1], tensor_type(w).shape[1])])


def compute_dense_packed(
    attrs: DensePackedAttrs, a: te.Tensor, w: te.Tensor, product: Product = product
) -> list[te.Tensor]:
    """Return the stages of a product with panels; `product` is what is summed of two elements."""
    _, rows, width = w.shape
    k = te.reduce_axis((0, rows), "k")

    def element(*i: Expr) -> Expr:
        column = i[-1]
        weight = w[te.floordiv(column, width), k, te.floormod(column, width)]
        return te.sum(product(a[(*i[:-1], k)], weight), axis=k)

    total = te.compute_one((*a.shape[:-1], attrs.n), element, name="dense")
    return narrowed(total, a.dtype, "dense_cast")


def _reference_dense_packed(attrs: DensePackedAttrs, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    matrix = w.transpose(1, 0, 2).reshape(w.shape[1], -1)[:, : attrs.n]
    result: np.ndarray = np.matmul(in_float64(a), in_float64(matrix))
    return result.astype(a.dtype)


def _flops_dense_packed(attrs: DensePackedAttrs, a: Type, w: Type) -> Dim:
    return 2 * tensor_type(a).elements * attrs.n


dense_packed: Operator[DensePackedAttrs] = register(
    Operator(
        name="dense_packed",
        schedule={"cpu": schedule_dense_packed},
        infer=infer_dense_packed,
        reference=_reference_dense_packed,
        compute=compute_dense_packed,
        rules=dense_packed_rules,
        attrs_type=DensePackedAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_dense_packed,
        examples=(
            product_example(((4, 5), (2, 5, 8)), {"n": 16}),
            product_example(((4, 5), (2, 5, 8)), {"n": 11}),
            product_example(((1, 32), (3, 32, 16)), {"n": 48}),
            product_example(((2, 3, 7), (1, 7, 16)), {"n": 10}),
            product_example(
                ((3, 9), (2, 9, 4)), {"n": 7}, ("float16", "float16"), rtol=1e-3, atol=1e-3
            ),
            product_example(((3, 9), (2, 9, 4)), {"n": 7}, ("float64", "float64")),
        ),
    )
)
