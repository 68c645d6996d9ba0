# SPDX-License-Identifier: Apache-2.0
"""3x3 convolutions of images of dynamic sizes by Winograd's minimal filtering.

The transforms are those of `conv_winograd`, and the weights are the same. Rows and columns of tiles
are axes of their own, so that no tile is found by dividing by a size that only the run knows, and
the image is not filled up to whole tiles: where a tile lies over the edge, the last row or column
of the image is read again. It reaches only outputs that are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from treadle import te
from treadle.cost.filtering import FilterAxis, filter_axes, why_not_filtered
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, int_value, minimum
from treadle.expr.simplify import simplify
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import Dim, TensorType, Type, same_dim, tensor_type
from treadle.ops.accumulate import product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import known_extent
from treadle.ops.lowered.conv_winograd import (
    WinogradAttrs,
    conv2d_winograd_nchwc,
    weights_channels,
    weights_shape,
)
from treadle.ops.lowered.winograd_examples import without_odd_ends
from treadle.ops.lowered.winograd_transforms import (
    TILES,
    filter_transform,
    input_forms,
    output_forms,
)
from treadle.ops.numeric import element_at
from treadle.ops.schedules.winograd_dynamic import schedule_winograd_dynamic
from treadle.ops.window import WindowAxis, whole_rules

KERNEL = 3
"""How high and wide windows are."""


@dataclass(frozen=True, slots=True)
class DynamicWinogradAttrs(Attrs):
    """All but the size of the image as in `WinogradAttrs`; all outputs of the image are kept."""

    tile: int
    stride: int = 1
    unused: int = 0
    plain_weights: bool = False
    blocks_axis: ClassVar[int] = -2
    """As in `WinogradAttrs`."""

    @property
    def axes(self) -> tuple[FilterAxis, FilterAxis]:
        """How rows and columns are filtered."""
        return filter_axes(self.tile, (KERNEL, KERNEL), self.stride)

    @property
    def points(self) -> int:
        """How many points a tile takes along an axis."""
        return self.axes[0].points


def _window(attrs: DynamicWinogradAttrs, data: TensorType) -> tuple[WindowAxis, WindowAxis]:
    high, wide = (WindowAxis(size, KERNEL, attrs.stride) for size in data.shape[2:4])
    return high, wide


def _infer(attrs: DynamicWinogradAttrs, x: Type, u: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(u)
    if (
        data.ndim != 5
        or weights.ndim != 6
        or data.dtype != weights.dtype
        or attrs.tile not in TILES
        or why_not_filtered(attrs.axes)
    ):
        raise TypeMismatch(
            f"{data} and {weights} are not an image in blocks and weights at points of one type",
            hint="weights are [oc/ob, points, points, chunks, ib, ob]",
        )
    filters, *_, ob = weights.static_shape
    chunks, ib = weights_channels(weights.static_shape, is_plain=attrs.plain_weights)
    wanted = weights_shape(filters, attrs.axes, chunks, ib, ob, is_plain=attrs.plain_weights)
    strides = (1,) if attrs.plain_weights else (1, 2)
    if weights.static_shape != wanted or attrs.stride not in strides:
        raise TypeMismatch(f"tiles of {attrs.tile} with a stride of {attrs.stride} take others")
    held = known_extent(data, 1, "channel blocks")
    if chunks != held * attrs.stride**2 or not same_dim(data.shape[-1], ib):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    if not 0 <= attrs.unused < ib:
        raise TypeMismatch(f"{attrs.unused} of the {ib} channels of the last block are not in use")
    sizes = (a.out for a in _window(attrs, data))
    return data.with_shape((data.shape[0], filters, *sizes, ob))


def _rules(attrs: DynamicWinogradAttrs, result: Type, x: Type, u: Type) -> Iterator[SizeRule]:
    return whole_rules(_window(attrs, tensor_type(x)))


def _tiles_along(size: Dim, tile: int) -> Expr:
    return simplify(te.floordiv(size + (tile - 1), tile))


def _compute(attrs: DynamicWinogradAttrs, x: te.Tensor, u: te.Tensor) -> list[te.Tensor]:
    """Stages as those of `conv_winograd`."""
    made = _infer(attrs, TensorType(x.shape, x.dtype), TensorType(u.shape, u.dtype))
    down, across = (_tiles_along(d, attrs.tile) for d in made.shape[2:4])
    made_here = [filter_transform(attrs.axes, u)] if attrs.plain_weights else []
    at_points = made_here[0] if made_here else u
    rows, v = _input_transform(attrs, x, at_points, down, across)
    products = _products(attrs, v, at_points)
    rows_out, result = _output_transform(attrs, products, made)
    return [rows, v, products, rows_out, *made_here, result]


def _input_transform(
    attrs: DynamicWinogradAttrs, x: te.Tensor, u: te.Tensor, down: Expr, across: Expr
) -> tuple[te.Tensor, te.Tensor]:
    """Return B^T d, [point, image, chunk, tile row, column, ib], and V = B^T d B of it."""
    m, a, step = attrs.tile, attrs.points, attrs.stride
    n, held, high, wide, ib = x.shape

    def element(b: Expr, c: Expr, h: Expr, w: Expr, cb: Expr) -> Expr:
        if step > 1:
            phase, c = te.floordiv(c, held), te.floormod(c, held)
            h = h * step + te.floordiv(phase, step)
            w = w * step + te.floormod(phase, step)
        return x[b, c, minimum(h, high - 1), minimum(w, wide - 1), cb]

    def rows_in(i: Expr, b: Expr, c: Expr, p: Expr, w: Expr, cb: Expr) -> Expr:
        return element_at(input_forms([element(b, c, p * m + r, w, cb) for r in range(a)]), i)

    columns = simplify(across * m + (a - m))
    rows = te.compute_one((a, n, u.shape[3], down, columns, ib), rows_in, name="input_rows")

    def columns_in(i: Expr, j: Expr, b: Expr, c: Expr, p: Expr, q: Expr, cb: Expr) -> Expr:
        return element_at(input_forms([rows[i, b, c, p, q * m + s, cb] for s in range(a)]), j)

    shape = (a, a, n, u.shape[3], down, across, ib)
    return rows, te.compute_one(shape, columns_in, name="input_transform")


def _products(attrs: DynamicWinogradAttrs, v: te.Tensor, u: te.Tensor) -> te.Tensor:
    """Return M = U * V, summed over input channels: [point, point, image, oc/ob, p, q, ob]."""
    icb = te.reduce_axis((0, v.shape[-1]), "icb")
    phases = [te.reduce_axis((0, attrs.stride), name) for name in ("top", "left")]
    image = (int_value(u.shape[3]) or 1) // attrs.stride**2
    ic = te.reduce_axis((0, image), "ic")
    phase = phases[0] * attrs.stride + phases[1]

    def products(i: Expr, j: Expr, b: Expr, o: Expr, p: Expr, q: Expr, obk: Expr) -> Expr:
        chunk = phase * image + ic
        value = v[i, j, b, chunk, p, q, icb] * u[o, i, j, chunk, icb, obk]
        return te.sum(value, axis=[*phases, ic, icb])

    shape = (*v.shape[:3], u.shape[0], *v.shape[4:6], u.shape[5])
    return te.compute_one(shape, products, name="winograd_products")


def _output_transform(
    attrs: DynamicWinogradAttrs, products: te.Tensor, made: TensorType
) -> tuple[te.Tensor, te.Tensor]:
    """Return A^T M, [image, oc/ob, tile row, row, tile column, point, ob], and Y = A^T M A."""
    m, a = attrs.tile, attrs.points
    _, _, n, oc, down, across, ob = products.shape

    def rows_out(b: Expr, o: Expr, p: Expr, r: Expr, q: Expr, j: Expr, obk: Expr) -> Expr:
        return element_at(output_forms([products[i, j, b, o, p, q, obk] for i in range(a)], m), r)

    rows = te.compute_one((n, oc, down, m, across, a, ob), rows_out, name="output_rows")

    def columns_out(b: Expr, o: Expr, y: Expr, z: Expr, obk: Expr) -> Expr:
        p, r, q = te.floordiv(y, m), te.floormod(y, m), te.floordiv(z, m)
        return element_at(
            output_forms([rows[b, o, p, r, q, j, obk] for j in range(a)], m), te.floormod(z, m)
        )

    names = image_axes(2, block="ocb")
    name = "conv2d_winograd_dynamic_nchwc"
    return rows, te.compute_one(made.shape, columns_out, name=name, axes=names)


def _reference(attrs: DynamicWinogradAttrs, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return what the filtering of known sizes makes of the image filled up to whole tiles."""
    out = [(size - KERNEL) // attrs.stride + 1 for size in x.shape[2:4]]
    more = [
        max(0, axis.reads(n) - size)
        for n, axis, size in zip(out, attrs.axes, x.shape[2:4], strict=True)
    ]
    whole = np.pad(x, [(0, 0), (0, 0), (0, more[0]), (0, more[1]), (0, 0)], mode="edge")
    high, wide = out
    known = WinogradAttrs(
        attrs.tile,
        high,
        wide,
        stride=attrs.stride,
        unused=attrs.unused,
        plain_weights=attrs.plain_weights,
    )
    made: np.ndarray = conv2d_winograd_nchwc.reference(known, whole, u)
    return made


def _flops(attrs: DynamicWinogradAttrs, x: Type, u: Type) -> Dim:
    """The operations of the convolution this stands for: a rate compares with other ways."""
    chunks, ib = weights_channels(tensor_type(u).static_shape, is_plain=attrs.plain_weights)
    channels = chunks * ib // attrs.stride**2 - attrs.unused
    return 2 * _infer(attrs, x, u).elements * channels * KERNEL**2


def _example(data: tuple[int, ...], weights: tuple[int, ...], **attrs: object) -> Example:
    inputs = {}
    if attrs.get("stride") == 2:  # odd images have no weights at infinity
        inputs = {1: without_odd_ends(weights)}
    return product_example((data, weights), attrs, inputs=inputs)


conv2d_winograd_dynamic_nchwc: Operator[DynamicWinogradAttrs] = register(
    Operator(
        name="conv2d_winograd_dynamic_nchwc",
        schedule={"cpu": schedule_winograd_dynamic},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        rules=_rules,
        attrs_type=DynamicWinogradAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        saves=True,
        examples=(
            _example((1, 2, 6, 10, 4), (3, 6, 6, 2, 4, 8), tile=4),
            _example((2, 1, 9, 5, 4), (1, 4, 4, 1, 4, 4), tile=2),
            _example((1, 2, 8, 11, 4), (3, 5, 5, 2, 4, 8), tile=3),
            _example((1, 2, 10, 17, 4), (3, 5, 5, 8, 4, 8), tile=4, stride=2),
            _example((1, 2, 9, 11, 4), (3, 2, 4, 3, 3, 8), tile=4, plain_weights=True),
        ),
    )
)
