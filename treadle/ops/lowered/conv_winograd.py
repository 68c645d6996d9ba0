# SPDX-License-Identifier: Apache-2.0
"""3x3 convolutions by Winograd's minimal filtering, in the channel-blocked layout.

Over volumes the image is filtered so; each tap of the depth adds its products to the same sums.

A tile of m x m outputs needs (m + 2)^2 products per pair of channels instead of 9 m^2
(Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016):

    Y = A^T [ (G g G^T) * (B^T d B) ] A        d: (m+2) x (m+2) inputs, g: 3 x 3 weights

With a stride of 2 the even and the odd rows and columns of an image are four images, of which 2x2
taps, or fewer, are summed without a stride: (2 m + 1)^2 products instead of 9 m^2 (after Huang et
al., "DWM: A Decomposable Winograd Method for Convolution Acceleration", AAAI 2020). All four are
summed before the one transform back. Odd images meet one tap of two: their products at infinity
are zeros and left out.

The weights at all points, u, are made when a model is compiled, or by each run: from the weights of
the window, of which there are up to four times fewer to store and to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, int_value
from treadle.expr.simplify import simplify
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, same_dim, tensor_type
from treadle.ops.accumulate import product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import input_channel, known_extent
from treadle.ops.example_numbers import uniform
from treadle.ops.lowered.winograd_transforms import (
    KERNEL,
    TILES,
    at_points,
    filter_transform,
    input_forms,
    input_matrix,
    output_forms,
    output_matrix,
    taps_of_phase,
)
from treadle.ops.numeric import element_at
from treadle.ops.schedules.winograd import schedule_winograd
from treadle.ops.window import WindowAxis, known, pad_stage, tap_views

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WinogradAttrs(Attrs):
    """`tile`: outputs a tile is high and wide (2, 3 or 4); `height`, `width`: outputs to keep.

    The rows of a tile are `dilations[0]` apart, its columns `dilations[1]`: tiles interleave. The
    others say how the window moves along the depth of a volume. With a `stride` of 2, which is for
    images without dilation, the weights are those of four images, even rows first: [2, 2, ic/ib].
    At infinity those of odd rows (or columns) are zeros. Each of the `groups`, which are for
    images, has blocks of input and output channels of its own.

    `unused`: the last input channels of an image in one group, whose weights are all zero: they
    are there to fill the last block, hold any finite value and are not read.

    `plain_weights`: the weights are those of the window, [oc/ob, ic/ib * kd, ib, 3, 3, ob], and a
    run transforms them; for a stride of 1.

    `before`: how many rows and columns of zeros come before an image, which is then read as if so
    many, and after it those that whole tiles read, stood around it; None where they do.
    """

    tile: int
    height: int
    width: int
    deep_stride: int = 1
    deep_dilation: int = 1
    dilations: tuple[int, int] = (1, 1)
    stride: int = 1
    unused: int = 0
    groups: int = 1
    plain_weights: bool = False
    before: tuple[int, int] | None = None
    blocks_axis: ClassVar[int] = -2
    """Which axis of the sums counts blocks of input channels; the last counts those of a block."""

    @property
    def points(self) -> int:
        """How many points a tile takes along an axis."""
        return self.tile + taps_of_phase(self.stride) - 1


def weights_channels(shape: tuple[T, ...], *, is_plain: bool) -> tuple[T, T]:
    """Return the blocks of input channels that weights of a shape have, and the length of one."""
    chunks, ib = shape[1:3] if is_plain else shape[3:5]
    return chunks, ib


def weights_shape(
    filters: int, points: int, chunks: int, ib: int, ob: int, *, is_plain: bool
) -> tuple[int, ...]:
    """Return the shape of weights: plain, or at so many points down and across."""
    if is_plain:
        return (filters, chunks, ib, KERNEL, KERNEL, ob)
    return (filters, points, points, chunks, ib, ob)


def _infer(attrs: WinogradAttrs, x: Type, u: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(u)
    if data.ndim not in (5, 6) or weights.ndim != 6 or attrs.tile not in TILES:
        raise TypeMismatch(
            f"the data {data} and weights {weights} are not [n, ic/ib, d?, h, w, ib] and "
            f"[oc/ob, p, p, ic/ib * kd, ib, ob] with p = t + 2 points for tiles of t = 2, 3 or 4"
        )
    if data.dtype != "float32" or weights.dtype != "float32":
        raise TypeMismatch(f"{data} and {weights} must be float32")
    filters, *_, ob = weights.static_shape
    chunks, ib = weights_channels(weights.static_shape, is_plain=attrs.plain_weights)
    if attrs.plain_weights and attrs.stride > 1:
        raise TypeMismatch("weights of the window are for a stride of 1")
    wanted = weights_shape(filters, attrs.points, chunks, ib, ob, is_plain=attrs.plain_weights)
    if weights.static_shape != wanted:
        raise TypeMismatch(f"weights {weights} are not made for tiles of {attrs.tile}")
    held = known_extent(data, 1, "channel blocks")
    if attrs.stride not in (1, 2) or (
        attrs.stride > 1 and (data.ndim, attrs.dilations) != (5, (1, 1))
    ):
        raise TypeMismatch(f"a stride of {attrs.stride} is not 1, or 2 on images without dilation")
    if filters % attrs.groups or held % attrs.groups or (attrs.groups > 1 and data.ndim != 5):
        raise TypeMismatch(f"{attrs.groups} groups do not fit the weights {weights} and {data}")
    of_group = held // attrs.groups
    is_whole = chunks == of_group * attrs.stride**2 if data.ndim == 5 else chunks % held == 0
    if not is_whole or not same_dim(data.shape[-1], ib):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    if not 0 <= attrs.unused < (ib if data.ndim == 5 and attrs.groups == 1 else 1):
        raise TypeMismatch(f"{attrs.unused} of the {ib} channels of the last block are not in use")
    given = known_extent(data, -3, "image"), known_extent(data, -2, "image")
    border = border_of(attrs, given)
    is_whole = attrs.before is not None or not any(after for _, after in border)
    if min(attrs.height, attrs.width) < 1 or not is_whole or min(map(min, border)) < 0:
        read = " x ".join(str(sum(zeros) + n) for zeros, n in zip(border, given, strict=True))
        raise TypeMismatch(
            f"{attrs.height} x {attrs.width} outputs in tiles of {attrs.tile} need an image padded "
            f"to {read}, the data is {data}"
        )
    deep = tuple(a.out for a in _depth(attrs, data, chunks // held))
    return data.with_shape((data.shape[0], filters, *deep, attrs.height, attrs.width, ob))


def border_of(attrs: WinogradAttrs, image: Sequence[int]) -> list[tuple[int, int]]:
    """Return the zeros before and after the rows and the columns of an image that whole tiles read.

    Negative numbers after it are of an image that is larger than what is read.
    """
    outputs, before = (attrs.height, attrs.width), attrs.before or (0, 0)
    return [
        (first, padded_extent(n, attrs.tile, gap, attrs.stride) - size - first)
        for n, gap, size, first in zip(outputs, attrs.dilations, image, before, strict=True)
    ]


def _depth(attrs: WinogradAttrs, data: TensorType, taps: int) -> tuple[WindowAxis, ...]:
    """Return the window along the depth of a volume; none for an image."""
    if data.ndim == 5:
        return ()
    size = known_extent(data, 2, "depth")
    return (WindowAxis(size, taps, attrs.deep_stride, dilation=attrs.deep_dilation),)


def tiles_along(size: int, tile: int, gap: int = 1) -> int:
    """Return how many tiles cover `size` outputs, those of all `gap` phases together."""
    return -(-size // (tile * gap)) * gap


def padded_extent(size: int, tile: int, gap: int = 1, stride: int = 1) -> int:
    """Return how long the padded input is that whole tiles of `size` outputs read."""
    outputs = tiles_along(size, tile, gap) * tile
    return stride * (outputs + taps_of_phase(stride) - 1) if stride > 1 else outputs + 2 * gap


def _first(index: Expr, tile: int, gap: int) -> Expr:
    """Return the first row (or column) of a tile; tiles of different phases are neighbours."""
    return te.floordiv(index, gap) * (tile * gap) + te.floormod(index, gap)


def _tile_of(place: Expr, tile: int, gap: int) -> Expr:
    """Return the tile that an output row (or column) is in."""
    return te.floordiv(place, tile * gap) * gap + te.floormod(place, gap)


def _place_in_tile(place: Expr, tile: int, gap: int) -> Expr:
    return te.floormod(te.floordiv(place, gap), tile)


@dataclass(frozen=True, slots=True)
class _Extents:
    """The extents of the stages of one call.

    `chunks`: blocks of input channels that are summed, those of every kernel position of the
    depth; `images`: an output's depth counts as part of the batch, `frames` for each image.
    """

    made: TensorType
    depth: tuple[WindowAxis, ...]
    frames: int
    images: Expr
    chunks: Expr
    down: int
    across: int


def _extents_of(attrs: WinogradAttrs, x: te.Tensor, u: te.Tensor) -> _Extents:
    data, weights = TensorType(x.shape, x.dtype), TensorType(u.shape, u.dtype)
    made = _infer(attrs, data, weights)
    of_group, _ = weights_channels(u.shape, is_plain=attrs.plain_weights)
    chunks = simplify(of_group * attrs.groups)
    depth = _depth(attrs, data, _positions(x, chunks))
    frames = known_extent(made, 2, "depth") if depth else 1
    return _Extents(
        made=made,
        depth=depth,
        frames=frames,
        images=simplify(x.shape[0] * frames),
        chunks=chunks,
        down=tiles_along(attrs.height, attrs.tile, attrs.dilations[0]),
        across=tiles_along(attrs.width, attrs.tile, attrs.dilations[1]),
    )


def _positions(x: te.Tensor, chunks: Expr) -> int:
    """Return how many images, kernel positions of the depth or parts of a stride, are summed."""
    return (int_value(chunks) or 1) // (int_value(x.shape[1]) or 1)


def _compute(attrs: WinogradAttrs, x: te.Tensor, u: te.Tensor) -> list[te.Tensor]:
    """Stages: rows of the input transform, V; the products M; rows of the output transform, Y.

    U, the weights at all points, is one more where they are not given, and so is the image with the
    zeros around it, which the schedule inlines. In the stages an
    output's depth counts as part of the batch, a kernel position of the depth as input channels,
    and so do the images that a stride takes apart.
    """
    extents = _extents_of(attrs, x, u)
    border = border_of(attrs, [int_value(d) or 0 for d in x.shape[-3:-1]])
    none, (before, after) = (0,) * (len(x.shape) - 3), zip(*border, strict=True)
    pad = pad_stage(x, (*none, *before, 0), (*none, *after, 0))
    rows, v = _input_transform(attrs, x if pad is None else pad, extents)
    made_here = [filter_transform(attrs.tile, u)] if attrs.plain_weights else []
    products = _products(attrs, v, made_here[0] if made_here else u, extents)
    rows_out, made = _output_transform(attrs, products, extents)
    return [rows, v, products, rows_out, *made_here, *([] if pad is None else [pad]), made]


def _input_transform(
    attrs: WinogradAttrs, x: te.Tensor, extents: _Extents
) -> tuple[te.Tensor, te.Tensor]:
    """Return B^T d, [point, image, chunk, tile row, column, ib], and V = B^T d B of it."""
    m, a = attrs.tile, attrs.points
    dh, dw = attrs.dilations
    n, chunks, ib = extents.images, extents.chunks, x.shape[-1]
    down, across = extents.down, extents.across
    wide = padded_extent(attrs.width, m, dw, attrs.stride) // attrs.stride

    def rows_in(i: Expr, b: Expr, c: Expr, p: Expr, w: Expr, cb: Expr) -> Expr:
        top = _first(p, m, dh)
        column = [_element(attrs, x, extents, b, c, top + r * dh, w, cb) for r in range(a)]
        return element_at(input_forms(column), i)

    rows = te.compute_one((a, n, chunks, down, wide, ib), rows_in, name="input_rows")

    def columns_in(i: Expr, j: Expr, b: Expr, c: Expr, t: Expr, cb: Expr) -> Expr:
        p, left = te.floordiv(t, across), _first(te.floormod(t, across), m, dw)
        return element_at(input_forms([rows[i, b, c, p, left + s * dw, cb] for s in range(a)]), j)

    shape = (a, a, n, chunks, down * across, ib)
    return rows, te.compute_one(shape, columns_in, name="input_transform")


def _element(
    attrs: WinogradAttrs,
    x: te.Tensor,
    extents: _Extents,
    b: Expr,
    c: Expr,
    h: Expr,
    w: Expr,
    cb: Expr,
) -> Expr:
    """Return an element of the input by its image, chunk, row, column and place in the block."""
    if attrs.stride > 1:
        phase, of = te.floordiv(c, x.shape[1]), te.floormod(c, x.shape[1])
        top, left = te.floordiv(phase, attrs.stride), te.floormod(phase, attrs.stride)
        return x[b, of, h * attrs.stride + top, w * attrs.stride + left, cb]
    if not extents.depth:
        return x[b, c, h, w, cb]
    frames, positions = extents.frames, _positions(x, extents.chunks)
    at = extents.depth[0].position(te.floormod(b, frames), te.floormod(c, positions))
    return x[te.floordiv(b, frames), te.floordiv(c, positions), at, h, w, cb]


def _products(attrs: WinogradAttrs, v: te.Tensor, u: te.Tensor, extents: _Extents) -> te.Tensor:
    """Return M = U * V, summed over input channels: [point, point, image, oc/ob, tile, ob]."""
    a, oc, ob = attrs.points, u.shape[0], u.shape[5]
    icb = te.reduce_axis((0, v.shape[-1]), "icb")
    phases = [te.reduce_axis((0, attrs.stride), name) for name in ("top", "left")]
    image = (int_value(extents.chunks) or 1) // attrs.stride**2
    of_group = image // attrs.groups
    ic = te.reduce_axis((0, of_group), "ic")
    phase = phases[0] * attrs.stride + phases[1]

    def products(i: Expr, j: Expr, b: Expr, o: Expr, t: Expr, obk: Expr) -> Expr:
        channel = input_channel(o, ic, int_value(oc) or 1, attrs.groups, of_group)
        value = v[i, j, b, phase * image + channel, t, icb]
        return te.sum(value * u[o, i, j, phase * of_group + ic, icb, obk], axis=[*phases, ic, icb])

    shape = (a, a, extents.images, oc, extents.down * extents.across, ob)
    return te.compute_one(shape, products, name="winograd_products")


def _output_transform(
    attrs: WinogradAttrs, products: te.Tensor, extents: _Extents
) -> tuple[te.Tensor, te.Tensor]:
    """Return A^T M, [image, oc/ob, tile row, row, tile column, point, ob], and Y = A^T M A."""
    m, a = attrs.tile, attrs.points
    dh, dw = attrs.dilations
    oc, ob = products.shape[3], products.shape[5]

    def rows_out(b: Expr, o: Expr, p: Expr, r: Expr, q: Expr, j: Expr, obk: Expr) -> Expr:
        column = [products[i, j, b, o, p * extents.across + q, obk] for i in range(a)]
        return element_at(output_forms(column, m), r)

    shape = (extents.images, oc, extents.down, m, extents.across, a, ob)
    rows = te.compute_one(shape, rows_out, name="output_rows")

    def columns_out(b: Expr, o: Expr, *at: Expr) -> Expr:
        *deep, y, z, obk = at
        image = b * extents.frames + deep[0] if deep else b
        p, r, q = _tile_of(y, m, dh), _place_in_tile(y, m, dh), _tile_of(z, m, dw)
        row = output_forms([rows[image, o, p, r, q, j, obk] for j in range(a)], m)
        return element_at(row, _place_in_tile(z, m, dw))

    made = extents.made.shape
    names = image_axes(len(made) - 3, block="ocb")
    return rows, te.compute_one(made, columns_out, name="conv2d_winograd_nchwc", axes=names)


def _reference(attrs: WinogradAttrs, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    if attrs.plain_weights:
        return _reference(replace(attrs, plain_weights=False), x, at_points(attrs.tile, u))
    taps = u.shape[3] // x.shape[1]
    axes = _depth(attrs, TensorType(x.shape, "float32"), taps)
    if not axes:
        return _reference_image(attrs, x, u)
    frames = known(a.out for a in axes)
    views = [view for _, view in tap_views(np.moveaxis(x, 2, -1), axes, frames)]
    # [n, c, h, w, ib, frames] per tap -> [n, frames, c, taps, h, w, ib]
    every = np.stack(views, 2).transpose(0, 6, 1, 2, 3, 4, 5)
    n, chunks = x.shape[0], u.shape[3]
    made = _reference_image(attrs, every.reshape(n * frames[0], chunks, *x.shape[3:]), u)
    return np.ascontiguousarray(made.reshape(n, frames[0], *made.shape[1:]).swapaxes(1, 2))


def _reference_image(attrs: WinogradAttrs, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    dh, dw = attrs.dilations
    step = attrs.stride
    x = np.pad(x, [(0, 0), (0, 0), *border_of(attrs, x.shape[2:4]), (0, 0)])
    if step > 1:
        apart = [x[:, :, a::step, b::step] for a in range(step) for b in range(step)]
        x = np.concatenate(apart, axis=1)
    margin = taps_of_phase(step) - 1
    high, wide = x.shape[2] - margin * dh, x.shape[3] - margin * dw
    made = np.empty((x.shape[0], u.shape[0], high, wide, u.shape[5]), x.dtype)
    for a in range(dh):
        for b in range(dw):
            made[:, :, a::dh, b::dw] = _phase(attrs, x[:, :, a::dh, b::dw], u)
    return made[:, :, : attrs.height, : attrs.width]


def _phase(attrs: WinogradAttrs, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return all outputs of whole tiles of an image without dilation, a stride taken apart."""
    tile, a, taps = attrs.tile, attrs.points, taps_of_phase(attrs.stride)
    data, weights = x.astype(np.float64), u.astype(np.float64)
    n, _, high, wide, _ = x.shape
    if attrs.groups > 1:
        return np.concatenate(list(_of_groups(attrs, x, u)), axis=1)
    view = np.lib.stride_tricks.sliding_window_view(data, (a, a), axis=(2, 3))
    d = view[:, :, ::tile, ::tile]  # [n, chunks, tiles down, tiles across, ib, a, a]
    forward, back = input_matrix(tile, taps), output_matrix(tile, taps)
    v = np.einsum("ir,ncpqbrs,js->ijncpqb", forward, d, forward, optimize=True)
    m = np.einsum("ijncpqb,oijcbk->ijnopqk", v, weights, optimize=True)
    y = np.einsum("ri,ijnopqk,sj->noprqsk", back, m, back, optimize=True)
    whole: np.ndarray = y.reshape(n, u.shape[0], high - taps + 1, wide - taps + 1, u.shape[5])
    return whole


def _of_groups(attrs: WinogradAttrs, x: np.ndarray, u: np.ndarray) -> Iterator[np.ndarray]:
    """Yield what `_phase` returns for each of the groups; a stride has made more images of x."""
    n, _, *image = x.shape
    apart = x.reshape(n, attrs.stride**2, attrs.groups, -1, *image)
    alone = replace(attrs, groups=1)
    for g, weights in enumerate(np.split(u, attrs.groups)):
        yield _phase(alone, apart[:, :, g].reshape(n, -1, *image), weights)


def _without_odd_ends(shape: tuple[int, ...]) -> np.ndarray:
    """Return random weights for a stride of 2: odd images have none at infinity."""
    u = uniform(shape, -2, 2).astype(np.float32)
    of = shape[3] // 4
    u[:, -1, :, 2 * of :] = 0
    for left in (of, 3 * of):
        u[:, :, -1, left : left + of] = 0
    return u


def _without_last(unused: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return random weights, zeros for the last input channels."""
    u = uniform(shape, -2, 2).astype(np.float32)
    u[:, :, :, -1, shape[4] - unused :] = 0
    return u


def _strided_example(data: tuple[int, ...], weights: tuple[int, ...], **attrs: object) -> Example:
    inputs = {1: _without_odd_ends(weights)}
    return product_example((data, weights), {"stride": 2, **attrs}, inputs=inputs)


def _flops(attrs: WinogradAttrs, x: Type, u: Type) -> Dim:
    """The operations of the convolution this stands for: a rate compares with other ways."""
    chunks, ib = weights_channels(tensor_type(u).static_shape, is_plain=attrs.plain_weights)
    channels = chunks * ib // attrs.stride**2 - attrs.unused
    return 2 * _infer(attrs, x, u).elements * channels * KERNEL * KERNEL


conv2d_winograd_nchwc: Operator[WinogradAttrs] = register(
    Operator(
        name="conv2d_winograd_nchwc",
        schedule={"cpu": schedule_winograd},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=WinogradAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        saves=True,
        examples=(
            product_example(
                ((1, 2, 6, 10, 4), (3, 6, 6, 2, 4, 8)), {"tile": 4, "height": 4, "width": 8}
            ),
            product_example(
                ((2, 1, 10, 6, 4), (1, 6, 6, 1, 4, 4)), {"tile": 4, "height": 7, "width": 1}
            ),
            product_example(
                ((1, 2, 8, 6, 8), (2, 4, 4, 2, 8, 4)), {"tile": 2, "height": 5, "width": 4}
            ),
            product_example(
                ((2, 2, 5, 6, 10, 4), (3, 6, 6, 6, 4, 8)), {"tile": 4, "height": 4, "width": 7}
            ),
            product_example(
                ((1, 1, 6, 6, 4, 8), (2, 4, 4, 2, 8, 4)),
                {"tile": 2, "height": 3, "width": 2, "deep_stride": 2, "deep_dilation": 2},
            ),
            product_example(
                ((1, 2, 20, 30, 4), (2, 6, 6, 2, 4, 8)),
                {"tile": 4, "height": 11, "width": 24, "dilations": (2, 3)},
            ),
            product_example(
                ((2, 1, 12, 4, 4), (1, 4, 4, 1, 4, 4)),
                {"tile": 2, "height": 2, "width": 2, "dilations": (3, 1)},
            ),
            product_example(
                ((1, 2, 8, 11, 4), (3, 5, 5, 2, 4, 8)), {"tile": 3, "height": 5, "width": 9}
            ),
            product_example(
                ((1, 2, 11, 9, 4), (3, 6, 6, 2, 4, 8)),
                {"tile": 4, "height": 11, "width": 9, "before": (1, 1)},
            ),
            product_example(
                ((1, 1, 4, 7, 4), (2, 6, 6, 1, 4, 4)),
                {"tile": 4, "height": 4, "width": 8, "dilations": (1, 2), "before": (0, 3)},
            ),
            product_example(
                ((1, 2, 6, 10, 8), (2, 6, 6, 2, 8, 4)),
                {"tile": 4, "height": 4, "width": 6, "unused": 6},
                inputs={1: _without_last(6, (2, 6, 6, 2, 8, 4))},
            ),
            _strided_example((1, 2, 10, 18, 4), (3, 5, 5, 8, 4, 8), tile=4, height=4, width=7),
            _strided_example((2, 1, 10, 6, 4), (2, 3, 3, 4, 4, 4), tile=2, height=3, width=2),
            product_example(
                ((1, 4, 6, 10, 4), (6, 6, 6, 2, 4, 8)),
                {"tile": 4, "height": 4, "width": 8, "groups": 2},
            ),
            _strided_example(
                (1, 3, 10, 6, 4), (3, 3, 3, 4, 4, 8), tile=2, height=3, width=2, groups=3
            ),
            product_example(
                ((1, 2, 6, 10, 4), (3, 2, 4, 3, 3, 8)),
                {"tile": 4, "height": 4, "width": 8, "plain_weights": True},
            ),
            product_example(
                ((1, 2, 8, 11, 4), (3, 2, 4, 3, 3, 8)),
                {"tile": 3, "height": 5, "width": 9, "plain_weights": True},
            ),
            product_example(
                ((1, 1, 6, 6, 4, 8), (2, 2, 8, 3, 3, 4)),
                {
                    "tile": 2,
                    "height": 3,
                    "width": 2,
                    "deep_stride": 2,
                    "deep_dilation": 2,
                    "plain_weights": True,
                },
            ),
            product_example(
                ((1, 4, 6, 10, 4), (6, 2, 4, 3, 3, 8)),
                {"tile": 4, "height": 4, "width": 8, "groups": 2, "plain_weights": True},
            ),
        ),
    )
)
