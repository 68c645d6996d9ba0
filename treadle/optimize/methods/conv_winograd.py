# SPDX-License-Identifier: Apache-2.0
"""Convolutions by Winograd's minimal filtering, a method per tile (2 to 6 outputs along an axis).

The estimate is that of the plan by which the kernel runs (`ops/schedules/winograd.py`): the fused
multiply-adds of its register tiles, remainders included; the vectors that the transforms touch; and
that weights are read from memory once per run. There are up to four times as many weights, so it
loses on small images with many channels. A method of its own for each tile leaves the weights as
they are and lets every run transform them: it takes longer, by a few per cent where many tiles
share them, and adds nothing to the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import prod

import numpy as np

from treadle.cost.filtering import (
    FilterAxis,
    filter_axes,
    images_of,
    weights_at_points,
    why_not_filtered,
)
from treadle.cost.winograd import Depth, WinogradShape, fits_weights
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_winograd import (
    WinogradAttrs,
    border_of,
    conv2d_winograd_nchwc,
)
from treadle.ops.lowered.conv_winograd_dynamic import (
    KERNEL,
    DynamicWinogradAttrs,
    conv2d_winograd_dynamic_nchwc,
)
from treadle.ops.lowered.winograd_transforms import TILES
from treadle.ops.schedules.winograd import plan_winograd
from treadle.ops.schedules.winograd_dynamic import plan_winograd_dynamic
from treadle.ops.window import WindowAxis
from treadle.optimize.blocked import IMAGES, Blocked, channels_of, has_known_image
from treadle.optimize.channel_order import ChannelOrder, merge_groups, pack_weights, packed_constant
from treadle.optimize.methods.convolution import ConvSite, padded, why_not_in_blocks
from treadle.optimize.methods.layout_moves import move_cycles
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.winograd_weights import plain_weights, transform_weights
from treadle.settings import get

_WORTHWHILE = {1: {2: 1.0, 3: 0.9, 4: 0.9, 6: 0.9}, 2: {2: 1.0, 3: 1.0, 4: 0.95, 6: 0.95}}
"""The share of another method's cycles that a tile may take, by stride: more must be gained for a
larger rounding error, and for more weights."""

_, _IMAGE, _ = IMAGES

_plan_of = lru_cache(maxsize=4096)(plan_winograd)
_dynamic_plan_of = lru_cache(maxsize=4096)(plan_winograd_dynamic)


def _applies(site: ConvSite, tile: int) -> str | None:
    against = why_not_in_blocks(site)
    if against is not None:
        return against
    if site.data.dtype != "float32":
        return "it is for float32"
    axes = _axes(site, tile)
    against = _why_no_stride(site) or why_not_filtered(axes) or _why_not_apart(site, axes)
    if against is None and _is_dynamic(site):
        against = _why_not_dynamic(site)
    elif against is None and min(known_sizes(a.out for a in site.window)) < 1:
        against = "it has no outputs"
    if against is None and not _groups_taken_as_one(site):
        return "no number of groups has whole blocks of channels in their order"
    return against or (None if get().winograd else "it is switched off")


def _is_dynamic(site: ConvSite) -> bool:
    """True for images of a size that only a run knows: see `conv_winograd_dynamic`."""
    return not has_known_image(site.data)


def _why_not_dynamic(site: ConvSite) -> str | None:
    if site.data.ndim != _IMAGE or site.groups > 1 or _gaps(site) != (1, 1):
        return "of dynamic sizes it is for images in one group, without dilation"
    if site.kernel != (KERNEL, KERNEL):
        return f"of dynamic sizes it is for windows of {KERNEL}x{KERNEL}"
    return None


def _why_no_stride(site: ConvSite) -> str | None:
    strides = {a.stride for a in _image_window(site) if a.kernel > 1}
    if len(strides) > 1 or any(a.stride > 1 for a in _image_window(site) if a.kernel == 1):
        return "the strides of rows and columns differ"
    if _is_volume(site) and site.groups > 1:
        return "groups are for images"
    if strides <= {1} or (strides == {2} and _gaps(site) == (1, 1)):
        return None
    return "it is for strides of 1, or of 2 without dilation"


def _why_not_apart(site: ConvSite, axes: Sequence[FilterAxis]) -> str | None:
    """Return why filters of a channel each are not filtered: a block of them is taken as one."""
    if site.groups == 1 or site.per_group > 1:
        return None
    taken, plain = prod(a.products for a in axes), prod(a.tile * a.kernel for a in axes)
    if site.block * taken < plain:
        return None
    return "a block of channels taken as one has more products than filtering saves"


def _is_volume(site: ConvSite) -> bool:
    return site.data.ndim > _IMAGE and not _is_along_depth(site)


def _is_along_depth(site: ConvSite) -> bool:
    """True for a volume of which each position of the images is a column, and filtered apart."""
    if site.data.ndim <= _IMAGE or site.kernel[0] == 1 or not has_known_image(site.data):
        return False
    return all(a.kernel == a.stride == 1 and not a.is_padded for a in site.window[1:])


def _image_window(site: ConvSite) -> tuple[WindowAxis, WindowAxis]:
    """Return how the window moves along rows and columns; a signal is one row."""
    if _is_along_depth(site):
        return site.window[0], WindowAxis(prod(known_sizes(site.data.shape[3:])), 1)
    high, wide = (WindowAxis(1, 1), *site.window)[-2:]
    return high, wide


def _depth(site: ConvSite) -> Depth:
    """Return how the window moves along the depth of a volume; of an image not at all."""
    if not _is_volume(site):
        return Depth()
    deep = site.window[0]
    (frames,) = known_sizes((deep.out,))
    return Depth(frames, deep.kernel, deep.stride, deep.dilation)


def _kernel(site: ConvSite) -> tuple[int, int]:
    high, wide = (a.kernel for a in _image_window(site))
    return high, wide


def _gaps(site: ConvSite) -> tuple[int, int]:
    """Return how far apart the rows and the columns of a window are."""
    high, wide = (a.dilation if a.kernel > 1 else 1 for a in _image_window(site))
    return high, wide


def _stride(site: ConvSite) -> int:
    return max(a.stride for a in _image_window(site))


def _axes(site: ConvSite, tile: int) -> tuple[FilterAxis, FilterAxis]:
    return filter_axes(tile, _kernel(site), _stride(site), _gaps(site))


def _groups_taken_as_one(site: ConvSite) -> list[int]:
    """Return how many groups may be computed as one: the fewest that fill whole blocks, or twice.

    More than these have more products. Where blocks have other widths all groups are one.
    """
    order, groups = _order(site), site.groups
    if order != ChannelOrder.natural(site.per_group * groups, site.block):
        return [groups] if order.block == site.block else []
    widths = site.per_group, site.filters // groups
    found = [
        t
        for t in range(1, groups + 1)
        if groups % t == 0 and (t == groups or all(w * t % site.block == 0 for w in widths))
    ]
    return [t for t in found if t <= 2 * found[0]]


def _applies_at_runtime(site: ConvSite, tile: int) -> str | None:
    """As `_applies`, for weights that each run transforms."""
    against = _applies(site, tile)
    if against is None and _stride(site) > 1 and _is_dynamic(site):
        return "at runtime it is for a stride of 1 where sizes are dynamic"
    if against is None and not _groups_that_fit(site, tile):
        return "level 2 does not hold a row of points of the weights of one block of channels"
    return against


def _groups_that_fit(site: ConvSite, tile: int) -> list[int]:
    """Return how many groups may be computed as one where a run transforms the weights."""
    shapes = {t: _shape(site, tile, t, at_runtime=True) for t in _groups_taken_as_one(site)}
    return [t for t, shape in shapes.items() if fits_weights(shape, site.target, 1)]


def _shape(site: ConvSite, tile: int, together: int, *, at_runtime: bool = False) -> WinogradShape:
    groups, order = site.groups // together, _order(site)
    axes = _axes(site, tile)
    images, height, width = site.image
    if site.data.ndim < _IMAGE:
        height, width = 1, height
    elif _is_along_depth(site):
        high, wide = known_sizes(a.out for a in _image_window(site))
        images, height, width = images // high, high, wide
    outputs = site.filters // groups
    return WinogradShape(
        tile,
        axes[0].tiles(height),
        axes[1].tiles(width),
        len(order.places) * images_of(axes),
        groups * (outputs + -outputs % site.block),
        site.block,
        images,
        _gaps(site),
        _stride(site),
        0 if _is_volume(site) or groups > 1 else order.unused,
        groups,
        at_runtime,
        kernel=_kernel(site),
        row=known_sizes(site.data.shape[-1:])[0] if _is_along_depth(site) else 0,
        depth=_depth(site),
    )


def _cheapest(site: ConvSite, tile: int, *, at_runtime: bool = False) -> tuple[float, int]:
    """Return the fewest cycles, and how many groups are taken as one for them.

    An image of dynamic sizes counts as one of the size that `ConvSite.image` takes for typical.
    """
    width = max(1, site.block // site.target.lanes())
    if _is_dynamic(site):
        shape = _shape(site, tile, 1, at_runtime=at_runtime)
        return _dynamic_plan_of(shape, site.target, width=width).cycles, 1
    together = _groups_that_fit(site, tile) if at_runtime else _groups_taken_as_one(site)
    shapes = {t: _shape(site, tile, t, at_runtime=at_runtime) for t in together}
    return min((_plan_of(x, site.target, width=width).cycles, t) for t, x in shapes.items())


def _estimate(site: ConvSite, tile: int, *, at_runtime: bool) -> float:
    return _blocking_cycles(site) + _cheapest(site, tile, at_runtime=at_runtime)[0]


def _order(site: ConvSite) -> ChannelOrder:
    """Return the order of the input's channels: transforms work on whole blocks of them."""
    if site.has_few_channels:
        return ChannelOrder.natural(channels_of(site.data), site.block)
    return site.input_order


def _source(site: ConvSite) -> Blocked:
    """Return the input in that order."""
    return site.values.as_blocked(site.x) if site.has_few_channels else site.blocked_input()


def _blocking_cycles(site: ConvSite) -> float:
    """Return what is spent on layouts; few channels are packed for this, and fill one block."""
    if not site.has_few_channels:
        return site.blocking_cycles()
    packed = move_cycles(site.data, site.target) * site.block / channels_of(site.data)
    return site.blocking_cycles() + packed


def _growth(site: ConvSite, tile: int, *, at_runtime: bool) -> int:
    """Return by how many bytes weights at all points are larger than those of the window.

    Those that stay plain grow by zeros, where channels are added.
    """
    plain = _plain_bytes(site) * _cheapest(site, tile, at_runtime=at_runtime)[1]
    if not at_runtime:
        plain = plain * weights_at_points(_axes(site, tile)) // prod(_kernel(site))
    return plain - site.weights.nbytes


def _plain_bytes(site: ConvSite) -> int:
    """Return the bytes of the weights of a window; few channels are filled up to a block."""
    given = site.weights.nbytes
    return given * site.block // channels_of(site.data) if site.has_few_channels else given


def _worthwhile(site: ConvSite, tile: int) -> float:
    return _WORTHWHILE[_stride(site)][tile]


def _build(site: ConvSite, tile: int, *, at_runtime: bool) -> Blocked:
    _, together = _cheapest(site, tile, at_runtime=at_runtime)
    site.shared.grow(site.node, _growth(site, tile, at_runtime=at_runtime))
    if _is_dynamic(site):
        return _build_dynamic(site, tile, at_runtime=at_runtime)
    weights, groups = site.known_weights, site.groups // together
    if together > 1:
        merged = merge_groups(weights.value, site.groups, together)
        weights = Constant.of(merged, origin=weights.origin)
    how = replace(_attrs(site, tile), groups=groups, plain_weights=at_runtime)
    source = _source(site)
    inputs = source.order
    if groups > 1:
        inputs = ChannelOrder.natural(weights.type.static_shape[1], site.block)
    elif not _is_volume(site):
        how = replace(how, unused=inputs.unused)
    high, wide = _image_window(site)
    unpadded = replace(how, before=(high.before, wide.before))
    border = border_of(unpadded, known_sizes((high.size, wide.size)))
    is_read_as_it_is = not _is_volume(site) and min(map(min, border)) >= 0
    if is_read_as_it_is and not site.is_padded_by_its_kernel:
        data, how = source.node, unpadded
    else:
        data, _ = padded(source.node, site.attrs, _window(site, border), site.origin)

    def make(order: ChannelOrder) -> Node:
        operands = (data, _packed(weights, inputs, order, how))
        return conv2d_winograd_nchwc.call(how, operands, origin=site.origin)

    order = ChannelOrder.natural(site.filters, site.block)
    return Blocked(make(order), order, make if groups == 1 else None)


def _window(site: ConvSite, border: Sequence[tuple[int, int]]) -> tuple[WindowAxis, ...]:
    """Return the window with as many zeros after rows and columns as whole tiles read."""
    (_, down), (_, across) = border
    *others, last = site.window
    if _is_along_depth(site):
        return (replace(site.window[0], after=down), *site.window[1:])
    if not others:
        return (replace(last, after=across),)
    *deep, high = others
    return (*deep, replace(high, after=down), replace(last, after=across))


def _build_dynamic(site: ConvSite, tile: int, *, at_runtime: bool) -> Blocked:
    """Return the filtering of an image that is padded as the convolution says, and no further."""
    weights, source = site.known_weights, _source(site)
    how = DynamicWinogradAttrs(tile, _stride(site), source.order.unused, at_runtime)
    data, _ = padded(source.node, site.attrs, site.window, site.origin)

    def make(order: ChannelOrder) -> Node:
        operands = (data, _packed(weights, source.order, order, how))
        return conv2d_winograd_dynamic_nchwc.call(how, operands, origin=site.origin)

    order = ChannelOrder.natural(site.filters, site.block)
    return Blocked(make(order), order, make)


def _packed(
    weights: Constant,
    inputs: ChannelOrder,
    outputs: ChannelOrder,
    how: WinogradAttrs | DynamicWinogradAttrs,
) -> Constant:
    packed = pack_weights(weights.value, inputs, outputs)
    if weights.value.ndim < _IMAGE:  # a signal's window has one row
        packed = np.expand_dims(packed, -4)
    if isinstance(how, WinogradAttrs) and how.along_depth:
        packed = packed[:, :, :, 0]
    if how.plain_weights:
        return packed_constant(plain_weights(packed), weights)
    return packed_constant(transform_weights(packed, how.axes), weights)


def _attrs(site: ConvSite, tile: int) -> WinogradAttrs:
    """Return the attributes of the filtering that stands for the convolution."""
    height, width = known_sizes(a.out for a in _image_window(site))
    sizes, gaps, kernel = (tile, height, width), _gaps(site), _kernel(site)
    if not _is_volume(site):
        how = WinogradAttrs(*sizes, dilations=gaps, stride=_stride(site), kernel=kernel)
        return replace(how, along_depth=_is_along_depth(site))
    deep = site.window[0]
    return WinogradAttrs(
        *sizes, deep.stride, deep.dilation, gaps, stride=_stride(site), kernel=kernel
    )


def _method(tile: int, *, at_runtime: bool) -> Method[ConvSite]:
    return Method(
        f"winograd-{tile}-runtime" if at_runtime else f"winograd-{tile}",
        conv,
        partial(_applies_at_runtime if at_runtime else _applies, tile=tile),
        partial(_estimate, tile=tile, at_runtime=at_runtime),
        partial(_build, tile=tile, at_runtime=at_runtime),
        worthwhile=partial(_worthwhile, tile=tile),
        growth=partial(_growth, tile=tile, at_runtime=at_runtime),
        knobs=("block", "groups taken as one"),
        layout="NCHWc",
    )


conv_winograd = tuple(
    _method(tile, at_runtime=at_runtime) for at_runtime in (False, True) for tile in TILES
)
