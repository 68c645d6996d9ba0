# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions as sums over tiles of two factors that threads fetch together.

A factor is a stage of its own, [steps, rows] or [steps, columns], so that a schedule can keep the
part that a block of threads needs in its shared memory, in the order in which it is read. That of a
convolution has a column for each pixel of the result, and its padding is a test in the fetch. The
steps are rounded up to a multiple of `STEP` by zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Const, Expr, ExprLike, int_value
from treadle.graph.operator import Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, broadcast_shapes
from treadle.ops.accumulate import narrowed, product, product_example, result_type
from treadle.ops.axis_names import product_axes
from treadle.ops.conv import (
    ConvAttrs,
    conv,
    conv_axes,
    flops_conv,
    infer_conv,
    padding,
    reference_conv,
)
from treadle.ops.matmul import MatmulAttrs, matmul
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.gpu.products import schedule_staged
from treadle.ops.window import WindowAxis, grown

STEP = 8
"""Steps come in multiples of so many."""


def _rounded(steps: int) -> int:
    return -(-steps // STEP) * STEP


def _where(checks: Sequence[Expr], value: Expr) -> Expr:
    if not checks:
        return value
    return te.if_then_else(all_of(checks), value, Const.of(0, value.dtype))


def _unravel(index: Expr, extents: Sequence[int]) -> list[ExprLike]:
    """Return the index along each of some extents of a position in them, the last fastest."""
    found: list[ExprLike] = []
    rest = index
    for extent in reversed(extents[1:]):
        found.append(te.floormod(rest, extent) if extent != 1 else 0)
        rest = te.floordiv(rest, extent) if extent != 1 else rest
    return [*([rest] if extents and extents[0] != 1 else [0] * bool(extents)), *reversed(found)]


# -- matrix products


def _compute_matmul(attrs: MatmulAttrs, a: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
    batch = broadcast_shapes(dims_of(a)[:-2], dims_of(b)[:-2])
    steps = TensorType((a.shape[-1],), a.dtype).static_shape[0]
    whole, rows, columns = _rounded(steps), a.shape[-2], b.shape[-1]
    out = result_type(a.dtype, b.dtype, attrs.out_dtype)

    def checks(k: Expr) -> list[Expr]:
        return [k < steps] if whole != steps else []

    left = te.compute_one(
        (*batch, whole, rows),
        lambda *i: _where(checks(i[-2]), a[(*_own(a, i[:-2]), i[-1], i[-2])]),
        name="left",
    )
    right = te.compute_one(
        (*batch, whole, columns),
        lambda *i: _where(checks(i[-2]), b[(*_own(b, i[:-2]), i[-2], i[-1])]),
        name="right",
    )
    shape = (*batch, rows, columns)
    total = _sums(left, right, shape, whole, out, product_axes(len(shape)))
    return [left, right, *narrowed(total, out, "matmul_cast")]


def _own(x: te.Tensor, batch: Sequence[Expr]) -> tuple[ExprLike, ...]:
    """Return where `x` is read for a batch index of the result: 0 where it is broadcast."""
    own = x.shape[:-2]
    skip = len(batch) - len(own)
    return tuple(0 if int_value(d) == 1 else i for d, i in zip(own, batch[skip:], strict=True))


def _sums(
    left: te.Tensor, right: te.Tensor, shape: Sequence[Any], steps: int, out: str, names: Any
) -> te.Tensor:
    """Return [*batch, rows, columns]: sums of products of factors [*batch, steps, ...]."""
    k = te.reduce_axis((0, steps), "k")

    def element(*i: Expr) -> Expr:
        return te.sum(product(left[(*i[:-2], k, i[-2])], right[(*i[:-2], k, i[-1])], out), axis=k)

    return te.compute_one(tuple(shape), element, name="total", axes=names)


matmul_staged: Operator[MatmulAttrs] = register(
    Operator(
        name="matmul_staged",
        schedule={"gpu": schedule_staged},
        infer=matmul.infer,
        reference=matmul.reference,
        compute=_compute_matmul,
        rules=matmul.rules,
        attrs_type=MatmulAttrs,
        fusion=Fusion.ANCHOR,
        flops=matmul.flops,
        examples=(
            product_example(((33, 64), (64, 48))),
            product_example(((70, 41), (41, 90))),
            product_example(((2, 3, 40, 8), (2, 3, 8, 64))),
            product_example(((2, 1, 36, 5), (3, 5, 35))),
            product_example(((130, 16), (16, 132))),
            product_example(((35, 24), (24, 40)), dtypes=("float64", "float64")),
        ),
    )
)


# -- convolutions


def infer_conv_pixels(attrs: ConvAttrs, x: Type, w: Type) -> TensorType:
    """Return the type of a convolution whose pixels are one row: [n, oc, pixels]."""
    whole = infer_conv(attrs, x, w)
    n, filters, *sizes = whole.shape
    if not all(isinstance(d, int) for d in sizes):
        raise TypeMismatch(f"the pixels of {whole} are not known")
    return whole.with_shape((n, filters, prod(d for d in sizes if isinstance(d, int))))


def _reference_pixels(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    result = reference_conv(attrs, x, w)
    return result.reshape(*result.shape[:2], prod(result.shape[2:]))


def _compute_conv(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    filters, per_group, *kernel = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:], kernel)
    outs = [a.out for a in axes if isinstance(a.out, int)]
    taps, pixels, rows = prod(kernel), prod(outs), filters // attrs.groups
    steps = per_group * taps
    whole = _rounded(steps)
    out = result_type(x.dtype, w.dtype, attrs.out_dtype)

    def checks(k: Expr) -> list[Expr]:
        return [k < steps] if whole != steps else []

    def weight(g: Expr, k: Expr, m: Expr) -> Expr:
        tap = _unravel(te.floormod(k, taps), kernel)
        value = w[(g * rows + m, te.floordiv(k, taps), *tap)]
        return _where(checks(k), value)

    def pixel(g: Expr, k: Expr, q: Expr) -> Expr:
        tap = _unravel(te.floormod(k, taps), kernel)
        at = _unravel(te.floormod(q, pixels), outs)
        found = [_read(a, o, t) for a, o, t in zip(axes, at, tap, strict=True)]
        inside = [c for _, tests in found for c in tests]
        channel = g * per_group + te.floordiv(k, taps)
        value = x[(te.floordiv(q, pixels), channel, *(i for i, _ in found))]
        return _where([*checks(k), *inside], value)

    columns = dims_of(x)[0] * pixels
    left = te.compute_one((attrs.groups, whole, rows), weight, name="weights")
    right = te.compute_one((attrs.groups, whole, columns), pixel, name="pixels")
    shape = (attrs.groups, rows, columns)
    total = _sums(left, right, shape, whole, out, ("g", "oc", "pixel"))

    def result(n: Expr, oc: Expr, p: Expr) -> Expr:
        if attrs.groups == 1:
            return total[0, oc, n * pixels + p]
        return total[te.floordiv(oc, rows), te.floormod(oc, rows), n * pixels + p]

    stored = te.compute_one(
        (x.shape[0], filters, pixels), result, name="conv", axes=("n", "oc", "pixel")
    )
    return [left, right, total, *narrowed(stored, out, "conv_cast")]


def _read(axis: WindowAxis, window: ExprLike, tap: ExprLike) -> tuple[Expr, list[Expr]]:
    """Return the index into an axis, and what must hold for it to be inside."""
    index = Const.of(0) + window * axis.stride + tap * axis.dilation
    checks = []
    if axis.before:
        checks.append(index >= axis.before)
        if axis.size == 1 or axis.after or axis.kernel > 1:
            checks.append(index < grown(axis.size, axis.before))
    elif axis.after:
        checks.append(index < axis.size)
    return index - axis.before, checks


def _flops_pixels(attrs: ConvAttrs, x: Type, w: Type) -> Dim:
    return flops_conv(attrs, x, w)


conv_staged: Operator[ConvAttrs] = register(
    Operator(
        name="conv_staged",
        schedule={"gpu": schedule_staged},
        infer=infer_conv_pixels,
        reference=_reference_pixels,
        compute=_compute_conv,
        rules=conv.rules,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_pixels,
        examples=(
            product_example(((2, 3, 9, 7), (34, 3, 3, 3)), padding(1)),
            product_example(((1, 3, 17, 17), (32, 3, 7, 7)), {**padding(3), "strides": (2, 2)}),
            product_example(((2, 16, 6, 6), (40, 16, 1, 1))),
            product_example(((1, 16, 7, 7), (32, 16, 1, 1)), {"strides": (2, 2)}),
            product_example(((1, 8, 11, 9), (64, 4, 3, 2)), {"groups": 2, "dilations": (2, 3)}),
            product_example(((2, 5, 40), (33, 5, 5)), {"pads_before": (2,), "pads_after": (2,)}),
            product_example(((1, 2, 5, 6, 7), (32, 2, 3, 2, 3)), {"strides": (1, 2, 2)}),
            product_example(((2, 2, 5, 8, 9), (36, 2, 3, 2, 3)), {"strides": (1, 2, 2)}),
            product_example(((1, 8, 6, 6), (32, 8, 3, 3)), padding(1), ("float64", "float64")),
        ),
    )
)
