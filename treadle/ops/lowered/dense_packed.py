# SPDX-License-Identifier: Apache-2.0
"""`dense_packed`: products with weights laid out in panels of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import narrowed, product, product_example
from treadle.ops.axis_names import product_axes
from treadle.ops.matmul import check_dtypes, check_inner
from treadle.ops.numeric import in_float64
from treadle.ops.schedules.product_chain import schedule_dense_packed


@dataclass(frozen=True, slots=True)
class DensePackedAttrs(Attrs):
    """`n`: the columns of the result; the last panel of weights may be padded beyond them."""

    n: int


def infer_dense_packed(attrs: DensePackedAttrs, a: Type, w: Type) -> TensorType:
    """Return the type of a product with panels. Raises: TypeMismatch where they do not fit."""
    x, panels = tensor_type(a), tensor_type(w)
    if x.ndim < 1 or panels.ndim != 3:
        raise TypeMismatch(f"{x} and {panels} are not [..., k] values and [n/nb, k, nb] weights")
    check_dtypes(x, panels)
    count, k, width = panels.static_shape
    check_inner(x, panels, k)
    if not (count - 1) * width < attrs.n <= count * width:
        raise TypeMismatch(f"{count} panels of {width} columns do not hold {attrs.n} columns")
    return x.with_shape((*x.shape[:-1], attrs.n))


def dense_packed_rules(
    attrs: DensePackedAttrs, result: Type, a: Type, w: Type
) -> Iterator[SizeRule]:
    """Return what sizes known only at run time must satisfy."""
    return equal([(tensor_type(a).shape[-1], tensor_type(w).shape[1])])


def _compute_dense_packed(attrs: DensePackedAttrs, a: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    _, rows, width = w.shape
    k = te.reduce_axis((0, rows), "k")

    def element(*i: Expr) -> Expr:
        column = i[-1]
        weight = w[te.floordiv(column, width), k, te.floormod(column, width)]
        return te.sum(product(a[(*i[:-1], k)], weight), axis=k)

    names = product_axes(a.ndim)
    total = te.compute_one((*a.shape[:-1], attrs.n), element, name="dense", axes=names)
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
        compute=_compute_dense_packed,
        rules=dense_packed_rules,
        attrs_type=DensePackedAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_dense_packed,
        flushes_subnormals=True,
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
