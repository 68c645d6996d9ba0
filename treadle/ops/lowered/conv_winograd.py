# SPDX-License-Identifier: Apache-2.0
"""Convolutions by Winograd's minimal filtering, in the channel-blocked layout.

Over volumes the image is filtered so; each tap of the depth adds its products to the same sums,
of the transform of the input image that it meets.
A signal is an image of one row.

A tile of m x m outputs of r x r taps needs (m + r - 1)^2 products per pair of channels instead of
(m r)^2 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016):

    Y = A^T [ (G g G^T) * (B^T d B) ] A        d: (m+r-1) x (m+r-1) inputs, g: r x r weights

Where the window has one row (or column) only the others are filtered: m + r - 1 products, not m r.

With a stride of 2 the even and the odd rows and columns of an image are four images, of which 2x2
taps of 3x3, or fewer, are summed without a stride: (2 m + 1)^2 products instead of 9 m^2 (after
Huang et al., "DWM: A Decomposable Winograd Method for Convolution Acceleration", AAAI 2020). All
four are summed before the one transform back. Odd images of a window of odd extent meet a tap less:
their products at infinity are zeros and left out.

The weights at all points, u, are made when a model is compiled, or by each run: from the weights of
the window, of which there are up to four times fewer to store and to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, TypeVar

import numpy as np

from treadle import te
from treadle.cost.filtering import FilterAxis, filter_axes, images_of, why_not_filtered
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.simplify import simplify
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, same_dim, tensor_type
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import input_channel, known_extent
from treadle.ops.lowered.winograd_examples import EXAMPLES
from treadle.ops.lowered.winograd_reference import filtered_image
from treadle.ops.lowered.winograd_transforms import (
    TILES,
    at_points,
    filter_transform,
    input_forms,
    output_forms,
)
from treadle.ops.numeric import element_at
from treadle.ops.schedules.winograd import schedule_winograd
from treadle.ops.window import WindowAxis, known, pad_stage, tap_views

T = TypeVar("T")

_SIGNAL, _VOLUME = 4, 6
"""Dimensions of data in blocks of channels; an image has 5."""


@dataclass(frozen=True, slots=True)
class WinogradAttrs(Attrs):
    """`tile`: outputs a tile is high and wide, 1 where the `kernel` is; `height`, `width`: outputs.

    The rows of a tile are `dilations[0]` apart, its columns `dilations[1]`: tiles interleave. The
    others say how the window moves along the depth of a volume. With a `stride` of 2, which is
    without dilation and for axes of several taps, the weights are those of four images, even
    rows first: [2, 2, ic/ib]. At infinity those of odd rows (or columns) that meet a tap less are
    zeros. Each of the `groups`, which are for images, has blocks of input and output channels of
    its own. A signal has a height, a kernel's height and a dilation of 1.

    `along_depth`: the rows are the depth of a volume, the columns all positions of its images.

    `unused`: the last input channels of an image in one group, whose weights are all zero: they
    are there to fill the last block, hold any finite value and are not read.

    `plain_weights`: the weights are those of the window, [oc/ob, ic/ib * kd, ib, kh, kw, ob], and a
    run transforms them.

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
    kernel: tuple[int, int] = (3, 3)
    along_depth: bool = False
    blocks_axis: ClassVar[int] = -2
    """Which axis of the sums counts blocks of input channels; the last counts those of a block."""

    @property
    def axes(self) -> tuple[FilterAxis, FilterAxis]:
        """How rows and columns are filtered."""
        return filter_axes(self.tile, self.kernel, self.stride, self.dilations)

    @property
    def images(self) -> int:
        """How many images a stride takes an image apart into."""
        return images_of(self.axes)

    @property
    def images_of_weights(self) -> int:
        """How many of these images the weights are for: plain ones are taken apart by a run."""
        return 1 if self.plain_weights else self.images


def weights_channels(shape: tuple[T, ...], *, is_plain: bool) -> tuple[T, T]:
    """Return the chunks that weights of a shape have, and the input channels of one.

    At points they are of all images of a stride.
    """
    chunks, ib = shape[1:3] if is_plain else shape[3:5]
    return chunks, ib


def weights_shape(
    filters: int, axes: Sequence[FilterAxis], chunks: int, ib: int, ob: int, *, is_plain: bool
) -> tuple[int, ...]:
    """Return the shape of weights: plain, or at all points down and across."""
    if is_plain:
        return (filters, chunks, ib, *(axis.kernel for axis in axes), ob)
    return (filters, *(axis.points for axis in axes), chunks, ib, ob)


def _infer(attrs: WinogradAttrs, x: Type, u: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(u)
    if data.ndim not in (4, 5, 6) or weights.ndim != 6 or attrs.tile not in TILES:
        raise TypeMismatch(
            f"the data {data} and weights {weights} are not [n, ic/ib, d?, h?, w, ib] and "
            f"[oc/ob, p, p, ic/ib * kd, ib, ob] with p = t + k - 1 points for tiles of "
            f"t = {', '.join(map(str, TILES))} and k taps"
        )
    if data.dtype != "float32" or weights.dtype != "float32":
        raise TypeMismatch(f"{data} and {weights} must be float32")
    _check_window(attrs, data)
    filters, *_, ob = weights.static_shape
    chunks, ib = weights_channels(weights.static_shape, is_plain=attrs.plain_weights)
    wanted = weights_shape(filters, attrs.axes, chunks, ib, ob, is_plain=attrs.plain_weights)
    if weights.static_shape != wanted:
        raise TypeMismatch(f"weights {weights} are not made for tiles of {attrs.tile}")
    held = known_extent(data, 1, "channel blocks")
    is_volume = data.ndim == _VOLUME and not attrs.along_depth
    if filters % attrs.groups or held % attrs.groups or (attrs.groups > 1 and is_volume):
        raise TypeMismatch(f"{attrs.groups} groups do not fit the weights {weights} and {data}")
    of_group = held // attrs.groups
    images = attrs.images_of_weights
    is_whole = chunks == of_group * images or (is_volume and chunks % (held * images) == 0)
    if not is_whole or not same_dim(data.shape[-1], ib):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    if not 0 <= attrs.unused < (1 if is_volume or attrs.groups > 1 else ib):
        raise TypeMismatch(f"{attrs.unused} of the {ib} channels of the last block are not in use")
    given = _image_of(attrs, data)
    border = border_of(attrs, given)
    is_whole = attrs.before is not None or not any(after for _, after in border)
    if min(attrs.height, attrs.width) < 1 or not is_whole or min(map(min, border)) < 0:
        read = " x ".join(str(sum(zeros) + n) for zeros, n in zip(border, given, strict=True))
        raise TypeMismatch(
            f"{attrs.height} x {attrs.width} outputs in tiles of {attrs.tile} need an image padded "
            f"to {read}, the data is {data}"
        )
    deep = tuple(a.out for a in _depth(attrs, data, chunks // (held * images)))
    image: tuple[Dim, ...] = (attrs.height, attrs.width)[data.ndim == _SIGNAL :]
    if attrs.along_depth:
        image = (attrs.height, *data.shape[3:5])
    return data.with_shape((data.shape[0], filters, *deep, *image, ob))


def _check_window(attrs: WinogradAttrs, data: TensorType) -> None:
    """Check that the attributes are those of a window that can be filtered over such data."""
    against = why_not_filtered(attrs.axes)
    if against is not None:
        raise TypeMismatch(f"a window of {attrs.kernel} in tiles of {attrs.tile}: {against}")
    if attrs.stride not in (1, 2) or (attrs.stride > 1 and attrs.dilations != (1, 1)):
        raise TypeMismatch(f"a stride of {attrs.stride} is not 1, or 2 without dilation")
    if data.ndim == _SIGNAL and (attrs.height, attrs.kernel[0]) != (1, 1):
        raise TypeMismatch(f"a signal has one row, not {attrs.height} of {attrs.kernel[0]} taps")
    if attrs.along_depth and (
        data.ndim != _VOLUME or (attrs.width, attrs.kernel[1]) != (_image_of(attrs, data)[1], 1)
    ):
        raise TypeMismatch(f"{data} is no volume of images of {attrs.width} positions")


def _image_of(attrs: WinogradAttrs, data: TensorType) -> tuple[int, int]:
    """Return how high and wide the image is that is filtered; a signal is one row."""
    wide = known_extent(data, -2, "image")
    if data.ndim == _SIGNAL:
        return 1, wide
    high = known_extent(data, -3, "image")
    return (known_extent(data, -4, "depth"), high * wide) if attrs.along_depth else (high, wide)


def border_of(attrs: WinogradAttrs, image: Sequence[int]) -> list[tuple[int, int]]:
    """Return the zeros before and after the rows and the columns of an image that whole tiles read.

    Negative numbers after it are of an image that is larger than what is read.
    """
    outputs, before = (attrs.height, attrs.width), attrs.before or (0, 0)
    return [
        (first, axis.reads(n) - size - first)
        for n, axis, size, first in zip(outputs, attrs.axes, image, before, strict=True)
    ]


def _depth(attrs: WinogradAttrs, data: TensorType, taps: int) -> tuple[WindowAxis, ...]:
    """Return the window along the depth of a volume; none for an image."""
    if data.ndim != _VOLUME or attrs.along_depth:
        return ()
    size = known_extent(data, 2, "depth")
    return (WindowAxis(size, taps, attrs.deep_stride, dilation=attrs.deep_dilation),)


def _first(number: Expr, axis: FilterAxis) -> Expr:
    """Return the first input row (or column) of a tile, by its number: a gap's phases in turn."""
    spread = axis.tile * axis.gap
    return te.floordiv(number, axis.gap) * spread + te.floormod(number, axis.gap)


def _tile_of(place: Expr, axis: FilterAxis) -> Expr:
    """Return the number of the tile that an output row (or column) is in."""
    whole = te.floordiv(place, axis.tile * axis.gap) * axis.gap
    return whole + te.floormod(place, axis.gap)


def _place_in_tile(place: Expr, axis: FilterAxis) -> Expr:
    return te.floormod(te.floordiv(place, axis.gap), axis.tile)


@dataclass(frozen=True, slots=True)
class _Extents:
    """The extents of the stages of one call.

    `chunks`: blocks of input channels that one kernel position of the depth sums, those of all
    images of a stride; `taps` are these positions. A depth counts as part of the batch: of `images`
    of the outputs, `frames` for each, and of `images_read` of the inputs, `read` for each.
    """

    made: TensorType
    depth: tuple[WindowAxis, ...]
    taps: int
    frames: int
    read: int
    images: Expr
    images_read: Expr
    chunks: int
    down: int
    across: int

    def frame_read(self, b: Expr, tap: Expr) -> Expr:
        """Return which of the images read a kernel position of the depth meets for output `b`."""
        of_image = self.depth[0].position(te.floormod(b, self.frames), tap)
        return te.floordiv(b, self.frames) * self.read + of_image


def _extents_of(attrs: WinogradAttrs, x: te.Tensor, u: te.Tensor) -> _Extents:
    data, weights = TensorType(x.shape, x.dtype), TensorType(u.shape, u.dtype)
    made = _infer(attrs, data, weights)
    summed, _ = weights_channels(weights.static_shape, is_plain=attrs.plain_weights)
    chunks = known_extent(data, 1, "channel blocks") * attrs.images
    taps = summed * attrs.images * attrs.groups // (attrs.images_of_weights * chunks)
    depth = _depth(attrs, data, taps)
    frames = known_extent(made, 2, "depth") if depth else 1
    read = known_extent(data, 2, "depth") if depth else 1
    return _Extents(
        made=made,
        depth=depth,
        taps=taps,
        frames=frames,
        read=read,
        images=simplify(x.shape[0] * frames),
        images_read=simplify(x.shape[0] * read),
        chunks=chunks,
        down=attrs.axes[0].tiles(attrs.height),
        across=attrs.axes[1].tiles(attrs.width),
    )


def _compute(attrs: WinogradAttrs, x: te.Tensor, u: te.Tensor) -> list[te.Tensor]:
    """Stages: rows of the input transform, V; the products M; rows of the output transform, Y.

    U, the weights at all points, is one more where they are not given, and so is the image with the
    zeros around it, which the schedule inlines. In the stages a depth counts as part of the batch,
    and the images that a stride takes apart as input channels.
    """
    extents = _extents_of(attrs, x, u)
    border = border_of(attrs, _image_of(attrs, TensorType(x.shape, x.dtype)))
    if len(x.shape) == _SIGNAL:
        border = border[1:]
    elif attrs.along_depth:
        border = [border[0], (0, 0), (0, 0)]
    none, (before, after) = (0,) * (len(x.shape) - 1 - len(border)), zip(*border, strict=True)
    pad = pad_stage(x, (*none, *before, 0), (*none, *after, 0))
    rows, v = _input_transform(attrs, x if pad is None else pad, extents)
    made_here = [filter_transform(attrs.axes, u)] if attrs.plain_weights else []
    products = _products(attrs, v, made_here[0] if made_here else u, extents)
    rows_out, made = _output_transform(attrs, products, extents)
    return [rows, v, products, rows_out, *made_here, *([] if pad is None else [pad]), made]


def _input_transform(
    attrs: WinogradAttrs, x: te.Tensor, extents: _Extents
) -> tuple[te.Tensor, te.Tensor]:
    """Return B^T d, [point, image, chunk, tile row, column, ib], and V = B^T d B of it."""
    high, wide = attrs.axes
    n, chunks, ib = extents.images_read, extents.chunks, x.shape[-1]
    down, across = extents.down, extents.across
    columns = wide.reads(attrs.width) // wide.stride

    def rows_in(i: Expr, b: Expr, c: Expr, p: Expr, w: Expr, cb: Expr) -> Expr:
        rows = [_first(p, high) + r * high.gap for r in range(high.points)]
        return element_at(
            input_forms([_element(attrs, x, extents, b, c, h, w, cb) for h in rows]), i
        )

    rows = te.compute_one((high.points, n, chunks, down, columns, ib), rows_in, name="input_rows")

    def columns_in(i: Expr, j: Expr, b: Expr, c: Expr, t: Expr, cb: Expr) -> Expr:
        p, left = te.floordiv(t, across), _first(te.floormod(t, across), wide)
        row = [rows[i, b, c, p, left + s * wide.gap, cb] for s in range(wide.points)]
        return element_at(input_forms(row), j)

    shape = (high.points, wide.points, n, chunks, down * across, ib)
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
        high, wide = attrs.axes
        phase, c = te.floordiv(c, x.shape[1]), te.floormod(c, x.shape[1])
        h = h * high.stride + te.floordiv(phase, wide.stride)
        w = w * wide.stride + te.floormod(phase, wide.stride)
    if len(x.shape) == _SIGNAL:
        return x[b, c, w, cb]
    if attrs.along_depth:
        across = x.shape[-2]
        return x[b, c, h, te.floordiv(w, across), te.floormod(w, across), cb]
    if not extents.depth:
        return x[b, c, h, w, cb]
    return x[te.floordiv(b, extents.read), c, te.floormod(b, extents.read), h, w, cb]


def _products(attrs: WinogradAttrs, v: te.Tensor, u: te.Tensor, extents: _Extents) -> te.Tensor:
    """Return M = U * V, summed over input channels: [point, point, image, oc/ob, tile, ob]."""
    oc, ob = u.shape[0], u.shape[5]
    icb = te.reduce_axis((0, v.shape[-1]), "icb")
    axes = zip(attrs.axes, ("top", "left"), strict=True)
    phases = [te.reduce_axis((0, axis.stride), name) for axis, name in axes]
    image, taps = extents.chunks // attrs.images, extents.taps
    of_group = image // attrs.groups
    ic = te.reduce_axis((0, of_group), "ic")
    deep = [te.reduce_axis((0, taps), "kd")] if extents.depth else []
    phase = phases[0] * attrs.axes[1].stride + phases[1]

    def products(i: Expr, j: Expr, b: Expr, o: Expr, t: Expr, obk: Expr) -> Expr:
        channel = input_channel(o, ic, int_value(oc) or 1, attrs.groups, of_group)
        frame, chunk = b, phase * of_group + ic
        if deep:
            frame, chunk = extents.frame_read(b, deep[0]), chunk * taps + deep[0]
        value = v[i, j, frame, phase * image + channel, t, icb]
        return te.sum(value * u[o, i, j, chunk, icb, obk], axis=[*phases, ic, *deep, icb])

    down, across = (axis.points for axis in attrs.axes)
    shape = (down, across, extents.images, oc, extents.down * extents.across, ob)
    return te.compute_one(shape, products, name="winograd_products")


def _output_transform(
    attrs: WinogradAttrs, products: te.Tensor, extents: _Extents
) -> tuple[te.Tensor, te.Tensor]:
    """Return A^T M, [image, oc/ob, tile row, row, tile column, point, ob], and Y = A^T M A."""
    high, wide = attrs.axes
    oc, ob = products.shape[3], products.shape[5]

    def rows_out(b: Expr, o: Expr, p: Expr, r: Expr, q: Expr, j: Expr, obk: Expr) -> Expr:
        tile = p * extents.across + q
        column = [products[i, j, b, o, tile, obk] for i in range(high.points)]
        return element_at(output_forms(column, high.tile), r)

    shape = (extents.images, oc, extents.down, high.tile, extents.across, wide.points, ob)
    rows = te.compute_one(shape, rows_out, name="output_rows")

    def columns_out(b: Expr, o: Expr, *at: Expr) -> Expr:
        *deep, z, obk = at
        y = deep.pop() if deep else Const.of(0, z.dtype)
        if attrs.along_depth:
            y, z = deep.pop(), y * extents.made.shape[-2] + z
        image = b * extents.frames + deep[0] if deep else b
        p, r, q = _tile_of(y, high), _place_in_tile(y, high), _tile_of(z, wide)
        row = [rows[image, o, p, r, q, j, obk] for j in range(wide.points)]
        return element_at(output_forms(row, wide.tile), _place_in_tile(z, wide))

    made = extents.made.shape
    names = image_axes(len(made) - 3, block="ocb")
    return rows, te.compute_one(made, columns_out, name="conv2d_winograd_nchwc", axes=names)


def _reference(attrs: WinogradAttrs, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    if attrs.plain_weights:
        return _reference(replace(attrs, plain_weights=False), x, at_points(attrs.axes, u))
    if x.ndim == _SIGNAL:
        return _reference_image(attrs, x[:, :, None], u)[:, :, 0]
    if attrs.along_depth:
        made = _reference_image(attrs, x.reshape(*x.shape[:3], -1, x.shape[-1]), u)
        return made.reshape(*made.shape[:3], *x.shape[3:5], -1)
    taps = u.shape[3] // (x.shape[1] * attrs.images)
    axes = _depth(attrs, TensorType(x.shape, "float32"), taps)
    if not axes:
        return _reference_image(attrs, x, u)
    frames = known(a.out for a in axes)
    views = [view for _, view in tap_views(np.moveaxis(x, 2, -1), axes, frames)]
    # [n, c, h, w, ib, frames] per tap -> [n, frames, c, taps, h, w, ib]
    every = np.stack(views, 2).transpose(0, 6, 1, 2, 3, 4, 5)
    n, chunks = x.shape[0], u.shape[3] // attrs.images
    made = _reference_image(attrs, every.reshape(n * frames[0], chunks, *x.shape[3:]), u)
    return np.ascontiguousarray(made.reshape(n, frames[0], *made.shape[1:]).swapaxes(1, 2))


def _reference_image(attrs: WinogradAttrs, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), *border_of(attrs, x.shape[2:4]), (0, 0)])
    made = filtered_image(padded, u, attrs.axes, attrs.groups)
    return made[:, :, : attrs.height, : attrs.width]


def _flops(attrs: WinogradAttrs, x: Type, u: Type) -> Dim:
    """The operations of the convolution this stands for: a rate compares with other ways."""
    chunks, ib = weights_channels(tensor_type(u).static_shape, is_plain=attrs.plain_weights)
    channels = chunks * ib // attrs.images_of_weights - attrs.unused
    return 2 * _infer(attrs, x, u).elements * channels * prod(attrs.kernel)


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
        examples=EXAMPLES,
    )
)
