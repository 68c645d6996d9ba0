# SPDX-License-Identifier: Apache-2.0
"""Products with constant weights by Strassen's algorithm, one level: 7 products instead of 8.

Rows, steps and columns are halved (Strassen, "Gaussian Elimination is not Optimal", 1969):

    M_p = (sum of blocks of A by LEFT[p]) (sum of blocks of B by RIGHT[p])      p = 0 .. 6
    C_ij = sum of M_p by OUT[ij]

The sums of weights are made when the model is compiled, those of the values by an operator of their
own, `strassen_blocks`: products of the same values share them. Columns are halved within each pair
of panels, so that the products of a pair stay in the cache until they are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, ExprLike, int_value, select
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.types import TensorType, Type, tensor_type
from treadle.ops.accumulate import product_example
from treadle.ops.numeric import in_float64
from treadle.ops.schedules.strassen import schedule_dense_strassen, schedule_strassen_blocks
from treadle.te import tensor as te

LEFT = np.array(
    [[1, 0, 0, 1], [0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1],
     [1, 1, 0, 0], [-1, 0, 1, 0], [0, 1, 0, -1]]
)  # fmt: skip
RIGHT = np.array(
    [[1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, -1], [-1, 0, 1, 0],
     [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
)  # fmt: skip
OUT = np.array(
    [[1, 0, 0, 1, -1, 0, 1], [0, 0, 1, 0, 1, 0, 0],
     [0, 1, 0, 1, 0, 0, 0], [1, -1, 1, 0, 0, 1, 0]]
)  # fmt: skip
"""Factors of the blocks 11, 12, 21, 22 (of A, of B), and of the 7 products for each block of C."""
PRODUCTS = len(LEFT)


@dataclass(frozen=True, slots=True)
class DenseStrassenAttrs(Attrs):
    """`m`, `n`: the rows and columns of the result; what is padded beyond them is left out."""

    m: int
    n: int


def _signed_sum(values: Sequence[Expr], factors: Sequence[int]) -> Expr:
    """Return the sum of the values with factors of 1 and -1, a positive one first."""
    used = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    used.sort(key=lambda pair: -pair[0])
    total = used[0][1]
    for factor, value in used[1:]:
        total = total + value if factor > 0 else total - value
    return total


def _choose(rows: Sequence[Expr], index: Expr) -> Expr:
    """Return `rows[index]`; once `index` is known (unrolled) one row is left."""
    found = rows[-1]
    for k in range(len(rows) - 2, -1, -1):
        found = select(index == k, rows[k], found)
    return found


# ---- sums of the blocks of a matrix --------------------------------------------------------------


def _infer_blocks(attrs: Attrs, a: Type) -> TensorType:
    x = tensor_type(a)
    if x.ndim < 2 or not x.is_static or x.static_shape[-1] % 2:
        raise TypeMismatch(f"{x} is not [..., m, k] of known sizes with an even k")
    *batch, m, k = x.static_shape
    return x.with_shape((*batch, -(-m // 2), PRODUCTS, k // 2))


def _compute_blocks(attrs: Attrs, a: te.Tensor) -> list[te.Tensor]:
    *batch, high, _, steps = _infer_blocks(attrs, TensorType(a.shape, a.dtype)).static_shape
    m = int_value(a.shape[-2]) or 1

    def sums(*i: Expr) -> Expr:
        *b, r, p, k = i

        def block(down: int, across: int) -> Expr:
            value = a[(*b, r + down * high, k + across * steps)]
            is_whole = not down or m % 2 == 0
            return value if is_whole else te.if_then_else(r + high < m, value, 0.0)

        four = [block(down, across) for down in (0, 1) for across in (0, 1)]
        return _choose([_signed_sum(four, row.tolist()) for row in LEFT], p)

    return [te.compute_one((*batch, high, PRODUCTS, steps), sums, name="strassen_blocks")]


def _reference_blocks(attrs: Attrs, a: np.ndarray) -> np.ndarray:
    *batch, m, k = a.shape
    even = np.zeros((*batch, m + m % 2, k))
    even[..., :m, :] = a
    four = np.moveaxis(even.reshape(*batch, 2, -1, 2, k // 2), (-4, -2), (0, 1))
    sums = np.tensordot(LEFT, four.reshape(4, *four.shape[2:]), 1)  # [7, ..., m / 2, k / 2]
    return np.ascontiguousarray(np.moveaxis(sums, 0, -2).astype(a.dtype))


strassen_blocks: Operator[Attrs] = register(
    Operator(
        name="strassen_blocks",
        schedule={"cpu": schedule_strassen_blocks},
        infer=_infer_blocks,
        reference=_reference_blocks,
        compute=_compute_blocks,
        fusion=Fusion.OPAQUE,
        examples=(
            product_example(((4, 6),)),
            product_example(((5, 40),)),
            product_example(((2, 3, 7, 64),)),
        ),
    )
)


# ---- their products ------------------------------------------------------------------------------


def _infer(attrs: DenseStrassenAttrs, a: Type, w: Type) -> TensorType:
    x, pairs = tensor_type(a), tensor_type(w)
    if x.ndim < 3 or pairs.ndim != 4:
        raise TypeMismatch(
            f"{x} and {pairs} are not [..., m/2, 7, k/2] values and [n/(2 nb), 7, k/2, nb] weights"
        )
    if x.dtype != "float32" or pairs.dtype != "float32":
        raise TypeMismatch(f"{x} and {pairs} must be float32")
    (*batch, high, left, depth), (count, right, steps, width) = x.static_shape, pairs.static_shape
    if (left, right, depth) != (PRODUCTS, PRODUCTS, steps):
        raise TypeMismatch(f"{x} and {pairs} are not sums of blocks that multiply")
    if not (count - 1) * 2 * width < attrs.n <= count * 2 * width:
        raise TypeMismatch(f"{count} pairs of {width} columns do not hold {attrs.n} columns")
    if -(-attrs.m // 2) != high:
        raise TypeMismatch(f"sums of {high} rows are not those of a matrix of {attrs.m}")
    return x.with_shape((*batch, attrs.m, attrs.n))


def _compute(attrs: DenseStrassenAttrs, a: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    """Stages: the products of a pair of panels, and the result."""
    *batch, high, _, steps = a.shape
    pairs, _, _, width = w.shape
    k = te.reduce_axis((0, steps), "k")

    def products(p: Expr, *i: Expr) -> Expr:
        *b, r, q, c = i
        return te.sum(a[(*b, r, p, k)] * w[q, p, k, c], axis=k)

    shape: tuple[ExprLike, ...] = (PRODUCTS, *batch, high, pairs, width)
    seven = te.compute_one(shape, products, name="strassen_products")

    def element(*i: Expr) -> Expr:
        *b, r, n = i
        pair, within = te.floordiv(n, width * 2), te.floormod(n, width * 2)
        down, across = te.floordiv(r, high), te.floordiv(within, width)
        at = (*b, te.floormod(r, high), pair, te.floormod(within, width))
        values = [seven[(p, *at)] for p in range(PRODUCTS)]
        return _choose([_signed_sum(values, row.tolist()) for row in OUT], down * 2 + across)

    result = te.compute_one((*batch, attrs.m, attrs.n), element, name="dense_strassen")
    return [seven, result]


def _reference(attrs: DenseStrassenAttrs, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Any weights mean something: not all are sums of blocks."""
    *batch, high, _, _ = a.shape
    pairs, _, _, width = w.shape
    seven = np.einsum("...rpk,qpkc->p...rqc", in_float64(a), in_float64(w), optimize=True)
    four = np.tensordot(OUT, seven, 1).reshape(2, 2, *seven.shape[1:])
    whole = np.moveaxis(four, (0, 1), (-5, -2))  # [..., down, r, q, across, c]
    result: np.ndarray = whole.reshape(*batch, 2 * high, pairs * 2 * width)
    return result[..., : attrs.m, : attrs.n].astype(a.dtype)


def _flops(attrs: DenseStrassenAttrs, a: Type, w: Type) -> int:
    """The operations of the product this stands for: a rate compares with other ways."""
    *batch, _, _, steps = tensor_type(a).static_shape
    return 2 * prod(batch) * attrs.m * attrs.n * 2 * steps


dense_strassen: Operator[DenseStrassenAttrs] = register(
    Operator(
        name="dense_strassen",
        schedule={"cpu": schedule_dense_strassen},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=DenseStrassenAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        examples=(
            product_example(((2, 7, 3), (2, 7, 3, 4)), {"m": 4, "n": 16}),
            product_example(((3, 7, 4), (2, 7, 4, 8)), {"m": 5, "n": 27}),
            product_example(((2, 3, 19, 7, 4), (1, 7, 4, 16)), {"m": 37, "n": 20}),
            product_example(((1, 20, 7, 32), (2, 7, 32, 32)), {"m": 40, "n": 128}),
        ),
    )
)
