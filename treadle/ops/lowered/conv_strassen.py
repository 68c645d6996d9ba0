# SPDX-License-Identifier: Apache-2.0
"""1x1 convolutions by Strassen's algorithm, in the channel-blocked layout.

A 1x1 convolution is a product of positions x input channels with input x output channels: see
`matmul_strassen` for the algorithm, its sums and the scaling by powers of two. Here a row is a
position: the upper half of a part of an image's positions is added to the lower one, the first half
of the channels to the second, blocks of channels as they lie. The sums of `rows` positions at a
time lie together, so that a register tile reads memory in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, ExprLike, call, int_value, select
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.lowered.matmul_strassen import (
    LEFT,
    MANTISSA,
    NOT_FINITE,
    OUT,
    PRODUCTS,
    scale_of,
    signed_sum,
    unit_of,
)
from treadle.ops.numeric import element_at, in_float64
from treadle.ops.schedules.conv_strassen import (
    schedule_conv_strassen,
    schedule_strassen_blocks_nchwc,
)


@dataclass(frozen=True, slots=True)
class StrassenImageAttrs(Attrs):
    """`rows`: positions that lie together; `channels`: how many hold values, the others do not.

    A part of the image is `band` rows high. Every `strides`-th row and column of it counts.
    """

    rows: int
    channels: int
    band: int
    strides: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class ConvStrassenAttrs(Attrs):
    """`filters`: blocks of output channels; `height`, `width`: of the result.

    `band`: as of the sums of blocks.
    """

    filters: int
    height: int
    width: int
    band: int


# ---- sums of the blocks of an image --------------------------------------------------------------


def _image(attrs: StrassenImageAttrs, x: TensorType) -> tuple[int, int]:
    """Return height and width of the positions that count."""
    high, wide = x.static_shape[2:4]
    return -(-high // attrs.strides[0]), -(-wide // attrs.strides[1])


Count = TypeVar("Count", int, npt.NDArray[np.int64])


def tiles_of(high: int, wide: int, rows: Count, band: Count) -> tuple[Count, Count]:
    """Return the parts of an image, and the tiles of `rows` positions that half a part takes."""
    return -(-high // band), -(-band * wide // (2 * rows))


def _infer_blocks(attrs: StrassenImageAttrs, a: Type) -> TensorType:
    x = tensor_type(a)
    if x.ndim != 5 or not x.is_static or x.dtype != "float32":
        raise TypeMismatch(f"{x} is not float32[n, c/b, h, w, b] of known sizes")
    n, chunks, _, _, block = x.static_shape
    if not 0 < attrs.channels <= chunks * block or min(attrs.rows, attrs.band, *attrs.strides) < 1:
        raise TypeMismatch(f"{x} has no sums of {attrs.channels} channels, {attrs.rows} positions")
    parts, of_part = tiles_of(*_image(attrs, x), attrs.rows, attrs.band)
    tiles = parts * of_part
    return x.with_shape((n, PRODUCTS, tiles, -(-chunks // 2) + 1, attrs.rows, block))


def _compute_blocks(attrs: StrassenImageAttrs, a: te.Tensor) -> list[te.Tensor]:
    """Stages: the largest magnitudes of positions, lane by lane, the powers, and the sums.

    The last block of channels of product 0 and 1 holds the power of two of the upper and of the
    lower position.
    """
    type_ = TensorType(a.shape, a.dtype)
    n, _, tiles, length, rows, block = _infer_blocks(attrs, type_).static_shape
    chunks = length - 1
    high, wide = _image(attrs, type_)
    _, of_part = tiles_of(high, wide, rows, attrs.band)
    half, (down_step, right_step) = of_part * rows, attrs.strides

    def value(b: Expr, t: Expr, r: Expr, down: ExprLike, chunk: Expr, lane: Expr) -> Expr:
        """The value at a position of the upper (down = 0) or the lower half; 0 beyond the last."""
        part, tile = te.floordiv(t, of_part), te.floormod(t, of_part)
        place = down * half + tile * rows + r
        y, x = part * attrs.band + te.floordiv(place, wide), te.floormod(place, wide)
        read = a[b, chunk, y * down_step, x * right_step, lane]
        if attrs.channels < 2 * chunks * block:
            read = te.if_then_else(chunk * block + lane < attrs.channels, read, 0.0)
        if high % attrs.band:
            read = te.if_then_else(y < high, read, 0.0)
        if 2 * half == attrs.band * wide:
            return read
        return te.if_then_else(place < attrs.band * wide, read, 0.0)

    every = te.reduce_axis((0, 2 * chunks), "chunk")

    def by_lane(b: Expr, t: Expr, r: Expr, down: Expr, lane: Expr) -> Expr:
        # Magnitudes compare as integers do, NaN above all.
        held = call("bitcast", value(b, t, r, down, every, lane), dtype="int32")
        return te.max(held & 0x7FFFFFFF, every)

    lanes = te.compute_one((n, tiles, rows, 2, block), by_lane, name="strassen_lane_maxima")
    lane = te.reduce_axis((0, block), "lane")
    largest = te.compute_one(
        (n, tiles, rows, 2), lambda *i: te.max(lanes[(*i, lane)], lane), name="strassen_maxima"
    )
    factors = te.compute_one(
        (n, tiles, rows, 2), lambda *i: _factor(largest[i] >> MANTISSA), name="strassen_factors"
    )

    def sums(b: Expr, p: Expr, t: Expr, chunk: Expr, r: Expr, lane: Expr) -> Expr:
        four = [
            _scaled(value(b, t, r, down, chunk + across * chunks, lane), factors[b, t, r, down])
            for down in (0, 1)
            for across in (0, 1)
        ]
        total = element_at([signed_sum(four, row.tolist()) for row in LEFT], p)
        units = [unit_of(largest[b, t, r, down] >> MANTISSA) for down in (0, 1)]
        return te.if_then_else(chunk < chunks, total, element_at(units, p))

    shape = (n, PRODUCTS, tiles, length, rows, block)
    result = te.compute_one(shape, sums, name="strassen_blocks_nchwc")
    return [lanes, largest, factors, result]


def _factor(exponent: Expr) -> Expr:
    """Return by what a position of this biased exponent is multiplied: 0 if it is not finite."""
    return select(exponent == NOT_FINITE, Const.of(0.0, "float32"), scale_of(exponent))


def _scaled(value: Expr, factor: Expr) -> Expr:
    """Return a scaled value, 0 at a position that is not finite: 0 times infinity is NaN."""
    return select(factor == 0.0, Const.of(0.0, "float32"), value * factor)


def _reference_blocks(attrs: StrassenImageAttrs, a: np.ndarray) -> np.ndarray:
    x = a[:, :, :: attrs.strides[0], :: attrs.strides[1]]
    n, chunks, high, wide, block = x.shape
    x = np.pad(x, [(0, 0), (0, chunks % 2), *[(0, 0)] * 3])
    chunks += chunks % 2
    count, of_part = tiles_of(high, wide, attrs.rows, attrs.band)
    tiles, positions = count * of_part, attrs.band * wide
    x = np.pad(x, [(0, 0), (0, 0), (0, count * attrs.band - high), (0, 0), (0, 0)])
    x = x.reshape(n, chunks, count, positions, block)
    none = 2 * of_part * attrs.rows - positions
    x = np.pad(x, [(0, 0), (0, 0), (0, 0), (0, none), (0, 0)])
    even = x.reshape(n, chunks, -1, block)
    missing = np.arange(chunks * block).reshape(chunks, 1, block) >= attrs.channels
    even = np.where(missing, np.float32(0), even)
    largest = np.abs(even).max(axis=(1, 3), keepdims=True)
    is_finite = np.isfinite(largest)
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(np.where(is_finite, largest, 1.0)))
    units = np.exp2(np.clip(exponents, -126, 126))
    scaled = np.where(is_finite, even / units, 0.0)
    parts = (count, 2, of_part, attrs.rows)
    four = scaled.reshape(n, 2, chunks // 2, *parts, block)
    four = four.transpose(4, 1, 0, 3, 5, 2, 6, 7)  # [down, across, n, part, tile, chunk, row, lane]
    four = four.reshape(4, n, tiles, chunks // 2, attrs.rows, block)
    sums = np.tensordot(LEFT, four, 1)
    made = np.zeros((n, PRODUCTS, tiles, chunks // 2 + 1, attrs.rows, block), np.float32)
    made[:, :, :, :-1] = np.moveaxis(sums, 0, 1)
    both = np.where(is_finite, units, np.nan).reshape(n, *parts).swapaxes(1, 2)
    both = both.reshape(n, 2, tiles, attrs.rows, 1)
    made[:, 0, :, -1] = both[:, 0]
    made[:, 1:, :, -1] = both[:, 1, np.newaxis]
    return made


strassen_blocks_nchwc: Operator[StrassenImageAttrs] = register(
    Operator(
        name="strassen_blocks_nchwc",
        schedule={"cpu": schedule_strassen_blocks_nchwc},
        infer=_infer_blocks,
        reference=_reference_blocks,
        compute=_compute_blocks,
        attrs_type=StrassenImageAttrs,
        fusion=Fusion.OPAQUE,
        examples=(
            product_example(((1, 2, 3, 4, 8),), {"rows": 3, "channels": 16, "band": 3}),
            product_example(((2, 4, 5, 5, 4),), {"rows": 4, "channels": 14, "band": 5}),
            product_example(((2, 3, 7, 5, 8),), {"rows": 3, "channels": 24, "band": 3}),
            product_example(
                ((1, 2, 7, 8, 16),), {"rows": 5, "channels": 32, "strides": (2, 2), "band": 2}
            ),
        ),
    )
)


# ---- their products ------------------------------------------------------------------------------


def _infer(attrs: ConvStrassenAttrs, a: Type, w: Type) -> TensorType:
    x, pairs = tensor_type(a), tensor_type(w)
    if x.ndim != 6 or pairs.ndim != 4:
        raise TypeMismatch(
            f"{x} and {pairs} are not sums [n, 7, tiles, c/2 + 1, rows, b] and weights "
            f"[oc/(2 nb), 7, c/2 * b, nb]"
        )
    if x.dtype != "float32" or pairs.dtype != "float32":
        raise TypeMismatch(f"{x} and {pairs} must be float32")
    n, left, tiles, length, rows, block = x.static_shape
    count, right, steps, width = pairs.static_shape
    if (left, right, (length - 1) * block) != (PRODUCTS, PRODUCTS, steps) or width % block:
        raise TypeMismatch(f"{x} and {pairs} are not sums of blocks that multiply")
    if not (count - 1) * 2 * width < attrs.filters * block <= count * 2 * width:
        raise TypeMismatch(f"{count} pairs of {width} do not hold {attrs.filters} blocks")
    if attrs.band < 1 or tiles != prod(tiles_of(attrs.height, attrs.width, rows, attrs.band)):
        raise TypeMismatch(f"{tiles} tiles of {rows} are not half of the positions")
    return x.with_shape((n, attrs.filters, attrs.height, attrs.width, block))


def _compute(attrs: ConvStrassenAttrs, a: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    """Stages: the products of a pair of panels, the positions they make, and the image."""
    n, _, tiles, length, rows, block = TensorType(a.shape, a.dtype).static_shape
    pairs, _, _, width = w.shape
    parts, of_part = tiles_of(attrs.height, attrs.width, rows, attrs.band)
    half = of_part * rows
    ic, icb = te.reduce_axis((0, length - 1), "ic"), te.reduce_axis((0, block), "icb")

    def products(p: Expr, b: Expr, q: Expr, t: Expr, r: Expr, c: Expr) -> Expr:
        return te.sum(a[b, p, t, ic, r, icb] * w[q, p, ic * block + icb, c], axis=[ic, icb])

    shape: tuple[ExprLike, ...] = (PRODUCTS, n, pairs, tiles, rows, width)
    seven = te.compute_one(shape, products, name="strassen_products")

    def position(b: Expr, o: Expr, part: Expr, place: Expr, lane: Expr) -> Expr:
        column = o * block + lane
        pair, within = te.floordiv(column, width * 2), te.floormod(column, width * 2)
        down, row = te.floordiv(place, half), te.floormod(place, half)
        t, r = part * of_part + te.floordiv(row, rows), te.floormod(row, rows)
        values = _each(seven, b, pair, t, r, te.floormod(within, width))
        which = down * 2 + te.floordiv(within, width)
        total = element_at([signed_sum(values, row.tolist()) for row in OUT], which)
        return total * a[b, down, t, length - 1, r, lane]

    many = (n, attrs.filters, parts, attrs.band * attrs.width, block)
    flat = te.compute_one(many, position, name="strassen_positions")
    image = (n, attrs.filters, attrs.height, attrs.width, block)

    def element(b: Expr, o: Expr, y: Expr, x: Expr, lane: Expr) -> Expr:
        part, row = te.floordiv(y, attrs.band), te.floormod(y, attrs.band)
        return flat[b, o, part, row * attrs.width + x, lane]

    names = image_axes(2, block="ocb")
    result = te.compute_one(image, element, name="conv2d_strassen_nchwc", axes=names)
    return [seven, flat, result]


def _each(seven: te.Tensor, *at: Expr) -> Sequence[Expr]:
    return [seven[(p, *at)] for p in range(PRODUCTS)]


def _reference(attrs: ConvStrassenAttrs, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Any weights mean something: not all are sums of blocks."""
    n, _, tiles, length, rows, block = a.shape
    pairs, _, _, width = w.shape
    values = in_float64(a)
    left, units = values[:, :, :, :-1], values[:, :2, :, -1]
    weights = in_float64(w).reshape(pairs, PRODUCTS, length - 1, block, width)
    seven = np.einsum("nptcrk,qpckw->pntrqw", left, weights, optimize=True)
    four = np.tensordot(OUT, seven, 1).reshape(2, 2, *seven.shape[1:])
    # [down, across, n, t, r, q, w] -> [n, down, t, r, q, across, w]
    whole = four.transpose(2, 0, 3, 4, 5, 1, 6).reshape(n, 2, tiles, rows, -1, block)
    whole = whole * units[:, :, :, :, np.newaxis]
    parts, of_part = tiles_of(attrs.height, attrs.width, rows, attrs.band)
    whole = whole.reshape(n, 2, parts, -1, *whole.shape[4:]).swapaxes(1, 2)
    of_parts = whole.reshape(n, parts, 2 * of_part * rows, -1, block)
    image = of_parts[:, :, : attrs.band * attrs.width].reshape(n, -1, *of_parts.shape[3:])
    image = image[:, : attrs.height * attrs.width]
    placed = np.moveaxis(image[:, :, : attrs.filters], 2, 1)
    shape = (n, attrs.filters, attrs.height, attrs.width, block)
    return np.ascontiguousarray(placed.reshape(shape).astype(a.dtype))


def _flops(attrs: ConvStrassenAttrs, a: Type, w: Type) -> Dim:
    """The operations of the convolution this stands for: a rate compares with other ways."""
    return 4 * _infer(attrs, a, w).elements * (int_value(tensor_type(w).shape[2]) or 0)


conv2d_strassen_nchwc: Operator[ConvStrassenAttrs] = register(
    Operator(
        name="conv2d_strassen_nchwc",
        schedule={"cpu": schedule_conv_strassen},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=ConvStrassenAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        saves=True,
        examples=(
            product_example(
                ((1, 7, 2, 2, 3, 8), (2, 7, 8, 8)),
                {"filters": 4, "height": 3, "width": 4, "band": 3},
            ),
            product_example(
                ((2, 7, 3, 3, 4, 4), (1, 7, 8, 8)),
                {"filters": 3, "height": 3, "width": 7, "band": 3},
            ),
            product_example(
                ((1, 7, 5, 3, 5, 16), (2, 7, 32, 32)),
                {"filters": 7, "height": 7, "width": 7, "band": 7},
            ),
            product_example(
                ((1, 7, 6, 2, 3, 8), (1, 7, 8, 16)),
                {"filters": 3, "height": 5, "width": 6, "band": 2},
            ),
        ),
    )
)
