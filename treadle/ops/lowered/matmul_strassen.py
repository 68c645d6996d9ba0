# SPDX-License-Identifier: Apache-2.0
"""Products with constant weights by Strassen's algorithm, one level: 7 products instead of 8.

Rows, steps and columns are halved (Strassen, "Gaussian Elimination is not Optimal", 1969):

    M_p = (sum of blocks of A by LEFT[p]) (sum of blocks of B by RIGHT[p])      p = 0 .. 6
    C_ij = sum of M_p by OUT[ij]

The sums of weights are made when the model is compiled, or by the run that reads them
(`plain_weights`); those of the values by an operator of their own, `strassen_blocks`: products of
the same values share them. Columns are halved within each pair of panels and rows within parts of
`2 half`, so that the products of a pair and a part stay in the cache until they are combined.

A row is added to the row `half` below. So that a row of small values keeps its digits
next to one of large values, each is first scaled by a power of two, which is exact, to a largest
value in [1, 2), and the results are scaled back. A row with a value that is not finite becomes NaN
and leaves the other as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.dtype import itemsize
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, ExprLike, call, int_value, maximum, minimum, select
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, product_of, tensor_type
from treadle.loop.nodes import ALIGNMENT
from treadle.ops.accumulate import product_example
from treadle.ops.axis_names import product_axes
from treadle.ops.numeric import element_at, in_float64
from treadle.ops.schedules.strassen import schedule_dense_strassen, schedule_strassen_blocks
from treadle.ops.summation import LANES

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
PRODUCTS, BLOCKS = len(RIGHT), len(OUT)
TRAILER = ALIGNMENT // itemsize("float32")
"""Elements behind the sums of a row, as many as keep rows aligned: the first of product 0 and of
product 1 is the power of two by which results of the upper and of the lower row are scaled."""
MANTISSA, NOT_FINITE = 23, 255
"""Bits of the mantissa of a float32, and the exponent of infinity and NaN."""


@dataclass(frozen=True, slots=True)
class StrassenBlocksAttrs(Attrs):
    """`half`: rows of half a part of the matrix; the last part may be padded."""

    half: int


@dataclass(frozen=True, slots=True)
class DenseStrassenAttrs(Attrs):
    """`m`, `n`: the rows and columns of the result; what is padded beyond them is left out.

    `half`: as of the sums of blocks. `plain_weights`: the weights are an even number of the panels
    that a plain product reads, [n/nb, k, nb], and a further stage makes the sums of their blocks.
    """

    m: int
    n: int
    half: int
    plain_weights: bool = False


def signed_sum(values: Sequence[Expr], factors: Sequence[int]) -> Expr:
    """Return the sum of the values with factors of 1 and -1, a positive one first."""
    used = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    used.sort(key=lambda pair: -pair[0])
    total = used[0][1]
    for factor, value in used[1:]:
        total = total + value if factor > 0 else total - value
    return total


# ---- sums of the blocks of a matrix --------------------------------------------------------------


def _infer_blocks(attrs: StrassenBlocksAttrs, a: Type) -> TensorType:
    x = tensor_type(a)
    if x.ndim < 2 or not x.is_static or x.static_shape[-1] % 2 or x.dtype != "float32":
        raise TypeMismatch(f"{x} is not float32[..., m, k] of known sizes with an even k")
    *batch, m, k = x.static_shape
    if attrs.half < 1:
        raise TypeMismatch(f"half a part has {attrs.half} rows, not at least 1")
    return x.with_shape((*batch, PRODUCTS, _sums(m, attrs.half), k // 2 + TRAILER))


def _sums(rows: int, half: int) -> int:
    """Return how many rows the sums of a matrix have."""
    return -(-rows // (2 * half)) * half


def _compute_blocks(attrs: StrassenBlocksAttrs, a: te.Tensor) -> list[te.Tensor]:
    """Stages: the largest magnitudes of a pair of rows, lane by lane and of all, and the sums."""
    *batch, _, high, length = _infer_blocks(attrs, TensorType(a.shape, a.dtype)).static_shape
    m, steps, half = int_value(a.shape[-2]) or 1, length - TRAILER, attrs.half

    def value(b: Sequence[Expr], r: Expr, down: ExprLike, k: Expr) -> Expr:
        """The value of a row of the upper (down = 0) or the lower half; 0 below the last row."""
        row = te.floordiv(r, half) * (2 * half) + te.floormod(r, half) + down * half
        read = a[(*b, row, k)]
        return read if m == 2 * high else te.if_then_else(row < m, read, 0.0)

    wide = 2 * LANES  # largest values that are kept while a row is read
    chunks = te.reduce_axis((0, -(-2 * steps // wide)), "chunk")

    def by_lane(*i: Expr) -> Expr:
        *b, r, down, lane = i
        k = chunks * wide + lane
        read = value(b, r, down, k)
        held = read if 2 * steps % wide == 0 else te.if_then_else(k < 2 * steps, read, 0.0)
        # Magnitudes compare as integers do, NaN above all.
        return te.max(call("bitcast", held, dtype="int32") & 0x7FFFFFFF, chunks)

    lanes = te.compute_one((*batch, high, 2, wide), by_lane, name="strassen_lane_maxima")
    lane = te.reduce_axis((0, wide), "lane")
    largest = te.compute_one(
        (*batch, high, 2), lambda *i: te.max(lanes[(*i, lane)], lane), name="strassen_maxima"
    )

    def sums(*i: Expr) -> Expr:
        *b, p, r, k = i
        exponents = [largest[(*b, r, down)] >> MANTISSA for down in (0, 1)]
        four = [
            _scaled(value(b, r, down, k + across * steps), exponents[down])
            for down in (0, 1)
            for across in (0, 1)
        ]
        total = element_at([signed_sum(four, row.tolist()) for row in LEFT], p)
        return te.if_then_else(k < steps, total, element_at([unit_of(e) for e in exponents], p))

    result = te.compute_one((*batch, PRODUCTS, high, length), sums, name="strassen_blocks")
    return [lanes, largest, result]


def _scaled(value: Expr, exponent: Expr) -> Expr:
    """Return a value of a row whose largest one has this biased exponent, over its power of two."""
    return select(exponent == NOT_FINITE, Const.of(0.0, "float32"), value * scale_of(exponent))


def scale_of(exponent: Expr) -> Expr:
    """Return the inverse of `unit_of` a row that is finite."""
    return _power(NOT_FINITE - 1 - _bounded(exponent))


def unit_of(exponent: Expr) -> Expr:
    """Return by what a row of this biased exponent is divided; NaN for one that is not finite."""
    unit = _power(_bounded(exponent))
    return select(exponent == NOT_FINITE, Const.of(float("nan"), "float32"), unit)


def _bounded(exponent: Expr) -> Expr:
    """Return a biased exponent of which the power of two and its inverse are normal numbers."""
    return minimum(maximum(exponent, 1), NOT_FINITE - 2)


def _power(exponent: Expr) -> Expr:
    return call("bitcast", exponent << MANTISSA, dtype="float32")


def _reference_blocks(attrs: StrassenBlocksAttrs, a: np.ndarray) -> np.ndarray:
    *batch, m, k = a.shape
    high = _sums(m, attrs.half)
    even = np.zeros((*batch, 2 * high, k), np.float32)
    even[..., :m, :] = a
    largest = np.abs(even).max(-1, initial=0.0, keepdims=True)
    is_finite = np.isfinite(largest)
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(np.where(is_finite, largest, 1.0)))
    units = np.exp2(np.clip(exponents, -126, 126))
    scaled = np.where(is_finite, even / units, 0.0)
    parts = (*batch, -1, 2, attrs.half)
    four = np.moveaxis(scaled.reshape(*parts, 2, k // 2), (-4, -2), (0, 1))
    sums = np.tensordot(LEFT, four.reshape(4, *batch, high, k // 2), 1)
    made = np.zeros((*batch, PRODUCTS, high, k // 2 + TRAILER), np.float32)
    made[..., : k // 2] = np.moveaxis(sums, 0, -3)
    both = np.moveaxis(np.where(is_finite, units, np.nan).reshape(parts), -2, 0)
    upper, lower = both.reshape(2, *batch, high, 1)
    made[..., 0, :, k // 2 :] = upper
    made[..., 1:, :, k // 2 :] = lower[..., np.newaxis, :, :]
    return made


strassen_blocks: Operator[StrassenBlocksAttrs] = register(
    Operator(
        name="strassen_blocks",
        schedule={"cpu": schedule_strassen_blocks},
        infer=_infer_blocks,
        reference=_reference_blocks,
        compute=_compute_blocks,
        attrs_type=StrassenBlocksAttrs,
        fusion=Fusion.OPAQUE,
        examples=(
            product_example(((4, 6),), {"half": 2}),
            product_example(((5, 40),), {"half": 3}),
            product_example(((2, 3, 7, 64),), {"half": 4}),
            product_example(((2, 13, 32),), {"half": 2}),
        ),
    )
)


# ---- their products ------------------------------------------------------------------------------


def _infer(attrs: DenseStrassenAttrs, a: Type, w: Type) -> TensorType:
    x, held = tensor_type(a), tensor_type(w)
    if x.ndim < 3 or held.ndim != (3 if attrs.plain_weights else 4):
        layout = "[n/nb, k, nb]" if attrs.plain_weights else f"[n/(2 nb), {PRODUCTS}, k/2, nb]"
        raise TypeMismatch(
            f"{x} and {held} are not values [..., 7, m/2, k/2 + {TRAILER}] and weights {layout}"
        )
    if x.dtype != "float32" or held.dtype != "float32":
        raise TypeMismatch(f"{x} and {held} must be float32")
    *batch, left, high, length = x.static_shape
    if attrs.plain_weights:
        panels, k, width = held.static_shape
        fits = panels % 2 == 0 and k % 2 == 0 and (left, length) == (PRODUCTS, k // 2 + TRAILER)
        count = panels // 2
    else:
        count, right, steps, width = held.static_shape
        fits = (left, right, length) == (PRODUCTS, PRODUCTS, steps + TRAILER)
    if not fits:
        raise TypeMismatch(f"{x} and {held} are not sums of blocks that multiply")
    if not (count - 1) * 2 * width < attrs.n <= count * 2 * width:
        raise TypeMismatch(f"{count} pairs of {width} columns do not hold {attrs.n} columns")
    if attrs.half < 1 or _sums(attrs.m, attrs.half) != high:
        raise TypeMismatch(f"sums of {high} rows are not those of a matrix of {attrs.m}")
    return x.with_shape((*batch, attrs.m, attrs.n))


def _weight_sums(w: te.Tensor) -> te.Tensor:
    """Return the sums of the blocks of weights, [pair, product, k, c].

    The blocks that a product takes are picked by its number, one loop for all: the second one times
    1, -1 or, where there is none, 0.
    """
    first, second, sign = zip(*map(_terms, RIGHT), strict=True)
    panels, steps, width = (int_value(d) or 1 for d in w.shape)
    half = steps // 2

    def sums(q: Expr, p: Expr, k: Expr, c: Expr) -> Expr:
        def block(of: Sequence[int]) -> Expr:
            down, across = (
                element_at([Const.of(at, "int32") for at in at_of], p)
                for at_of in zip(*(divmod(b, 2) for b in of), strict=True)
            )
            return w[q * 2 + across, down * half + k, c]

        factor = element_at([Const.of(float(f), w.dtype) for f in sign], p)
        return te.fma(block(second), factor, block(first))

    shape = (panels // 2, PRODUCTS, half, width)
    return te.compute_one(shape, sums, name="strassen_weights")


def _terms(signs: np.ndarray) -> tuple[int, int, int]:
    """Return the first positive block of a sum, the other block and its sign, 0 without one."""
    one = int(np.argmax(signs))
    others = [int(b) for b in np.flatnonzero(signs) if b != one]
    return (one, others[0], int(signs[others[0]])) if others else (one, one, 0)


def _compute(attrs: DenseStrassenAttrs, a: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    """Stages: the sums of plain weights; the products of a pair of panels, and the result."""
    *batch, _, high, _ = a.shape
    half = attrs.half
    made_here = [_weight_sums(w)] if attrs.plain_weights else []
    right = made_here[0] if made_here else w
    pairs, _, steps, width = right.shape
    k = te.reduce_axis((0, steps), "k")

    def products(p: Expr, *i: Expr) -> Expr:
        *b, r, q, c = i
        return te.sum(a[(*b, p, r, k)] * right[q, p, k, c], axis=k)

    shape: tuple[ExprLike, ...] = (PRODUCTS, *batch, high, pairs, width)
    seven = te.compute_one(shape, products, name="strassen_products")

    def element(*i: Expr) -> Expr:
        *b, r, n = i
        pair, within = te.floordiv(n, width * 2), te.floormod(n, width * 2)
        part, row = te.floordiv(r, 2 * half), te.floormod(r, half)
        down, across = te.floordiv(te.floormod(r, 2 * half), half), te.floordiv(within, width)
        at = (*b, part * half + row, pair, te.floormod(within, width))
        values = [seven[(p, *at)] for p in range(PRODUCTS)]
        total = element_at([signed_sum(values, row.tolist()) for row in OUT], down * 2 + across)
        return total * a[(*b, down, part * half + row, steps)]

    names = product_axes(len(batch) + 2)
    shape = (*batch, attrs.m, attrs.n)
    result = te.compute_one(shape, element, name="dense_strassen", axes=names)
    return [seven, *made_here, result]


def _reference(attrs: DenseStrassenAttrs, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Any weights mean something: not all are sums of blocks."""
    *batch, _, high, length = a.shape
    steps, width = length - TRAILER, w.shape[-1]
    values = in_float64(a)
    left, units = values[..., :steps], np.moveaxis(values[..., :2, :, steps], -2, -1)
    right = in_float64(w)
    if attrs.plain_weights:  # rounded once
        across = right.reshape(-1, 2, 2, steps, width)
        blocks = np.swapaxes(across, 1, 2).reshape(-1, BLOCKS, steps, width)
        right = in_float64(np.einsum("pb,qbkc->qpkc", RIGHT, blocks).astype(w.dtype))
    pairs = len(right)
    seven = np.einsum("...prk,qpkc->p...rqc", left, right, optimize=True)
    parts = (*batch, high // attrs.half, attrs.half)
    four = np.tensordot(OUT, seven, 1).reshape(2, 2, *parts, pairs, width)
    whole = np.moveaxis(four, (0, 1), (-5, -2))  # [..., part, down, r, q, across, c]
    result: np.ndarray = whole.reshape(*batch, 2 * high, pairs * 2 * width)
    both = np.moveaxis(units.reshape(*parts, 2), -1, -2)
    result = result * both.reshape(*batch, 2 * high, 1)
    return result[..., : attrs.m, : attrs.n].astype(a.dtype)


def _flops(attrs: DenseStrassenAttrs, a: Type, w: Type) -> Dim:
    """The operations of the product this stands for: a rate compares with other ways."""
    *batch, _, _, length = tensor_type(a).static_shape
    return 2 * product_of(batch) * attrs.m * attrs.n * 2 * (length - TRAILER)


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
        flushes_subnormals=True,
        saves=True,
        examples=(
            product_example(((7, 2, 19), (2, 7, 3, 4)), {"m": 4, "n": 16, "half": 2}),
            product_example(((7, 3, 20), (2, 7, 4, 8)), {"m": 5, "n": 27, "half": 3}),
            product_example(((2, 3, 7, 19, 20), (1, 7, 4, 16)), {"m": 37, "n": 20, "half": 19}),
            product_example(((1, 7, 20, 48), (2, 7, 32, 32)), {"m": 40, "n": 128, "half": 20}),
            product_example(((7, 12, 32), (2, 7, 16, 16)), {"m": 19, "n": 50, "half": 4}),
            product_example(
                ((7, 3, 20), (4, 8, 8)), {"m": 5, "n": 27, "half": 3, "plain_weights": True}
            ),
            product_example(
                ((2, 7, 12, 48), (4, 64, 16)),
                {"m": 19, "n": 50, "half": 4, "plain_weights": True},
            ),
        ),
    )
)
