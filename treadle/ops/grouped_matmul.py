# SPDX-License-Identifier: Apache-2.0
"""Rows by the matrix of their group: what mixtures of experts multiply by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle import te
from treadle.dtype import to_numpy
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal, filled
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import narrowed, product, reference_factors, result_type
from treadle.ops.axis_names import product_axes
from treadle.ops.indexing import numpy_positions, position_in
from treadle.ops.matmul import check_dtypes, check_inner
from treadle.ops.numeric import INTEGERS, check_elements, dims_of


def _infer(_: Attrs, rows: Type, matrices: Type, groups: Type) -> TensorType:
    x, y = tensor_type(rows), tensor_type(matrices)
    at = check_elements(groups, INTEGERS, "the number of a group")
    if (x.ndim, y.ndim, at.ndim) != (2, 3, 1):
        raise TypeMismatch(
            f"rows {x}, matrices {y} and groups {at} are not [m, k], [g, k, n] and [m]"
        )
    check_dtypes(x, y)
    check_inner(x, y, y.shape[1])
    if isinstance(at.shape[0], int) and isinstance(x.shape[0], int) and at.shape != x.shape[:1]:
        raise TypeMismatch(f"{at.shape[0]} numbers of groups are given for {x.shape[0]} rows")
    return TensorType((x.shape[0], y.shape[2]), result_type(x.dtype, y.dtype))


def _rules(_: Attrs, result: Type, rows: Type, matrices: Type, groups: Type) -> Iterator[SizeRule]:
    x, y, at = (tensor_type(t).shape for t in (rows, matrices, groups))
    yield from equal([(x[1], y[1]), (x[0], at[0])])
    yield from filled(matrices, (0,), result)


def _compute(_: Attrs, rows: te.Tensor, matrices: te.Tensor, groups: te.Tensor) -> list[te.Tensor]:
    out = result_type(rows.dtype, matrices.dtype)
    k = te.reduce_axis((0, rows.shape[1]), "k")

    def element(row: Expr, column: Expr) -> Expr:
        group = position_in(groups[row], dims_of(matrices)[0])
        return te.sum(product(rows[row, k], matrices[group, k, column], out), axis=k)

    shape = (rows.shape[0], matrices.shape[2])
    total = te.compute_one(shape, element, name="grouped_matmul", axes=product_axes(2))
    return narrowed(total, out, "grouped_matmul_cast")


def _reference(_: Attrs, rows: np.ndarray, matrices: np.ndarray, groups: np.ndarray) -> np.ndarray:
    out = result_type(rows.dtype.name, matrices.dtype.name)
    x, y = reference_factors(rows, matrices, out)
    chosen = y[numpy_positions(groups, len(y))]
    result: np.ndarray = np.einsum("mk,mkn->mn", x, chosen)
    return result.astype(to_numpy(out))


def _flops(_: Attrs, rows: Type, matrices: Type, groups: Type) -> Dim:
    return 2 * tensor_type(rows).elements * tensor_type(matrices).shape[2]


def _example(
    m: int, k: int, n: int, dtype: str = "float32", rtol: float = 1e-5, atol: float = 1e-4
) -> Example:
    return Example(
        ((m, k), (4, k, n), (m,)), {}, (dtype, dtype, "int64"), -4, 3, rtol=rtol, atol=atol
    )


grouped_matmul: Operator[Attrs] = register(
    Operator(
        name="grouped_matmul",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        rules=_rules,
        fusion=Fusion.REDUCE,
        flops=_flops,
        flushes_subnormals=True,
        examples=(
            _example(5, 6, 7),
            _example(1, 1, 1),
            _example(9, 40, 33),
            _example(0, 3, 2),
            _example(3, 40, 20, "float16", rtol=1e-3, atol=1e-2),
            _example(3, 40, 20, "bfloat16", rtol=8e-3, atol=1e-1),
            _example(3, 8, 5, "float64"),
            _example(3, 8, 5, "int32"),
        ),
    )
)
"""rows [m, k], matrices [g, k, n], groups: integers [m] -> [m, n]: each row by the matrix of its
group. Numbers of groups count from the end when negative; those outside are the nearest one."""
